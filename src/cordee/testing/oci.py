"""OCI images made by hand, with any entries in their layers: also those that no builder would make."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
# What `docker push` calls the same things.
_DOCKER = {
    MANIFEST: "application/vnd.docker.distribution.manifest.v2+json",
    CONFIG: "application/vnd.docker.container.image.v1+json",
    f"{LAYER}+gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


@dataclass(frozen=True)
class LayerEntry:
    """An entry of a layer.

    Args:
        name: as it stands in the archive, `..` and all.
        data: of a file.
        kind: as tarfile has it (`tarfile.SYMTYPE`, ...).
        link: the target of a link.
        mode: permission bits, set-user-id and the like included.
        more: further attributes of the TarInfo (`uid`, `mtime`, `devmajor`, `pax_headers`, ...).
    """

    name: str
    data: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    more: Mapping[str, Any] = field(default_factory=dict)


def folder(name: str, mode: int = 0o755) -> LayerEntry:
    """Return the entry of a folder."""
    return LayerEntry(name, kind=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> LayerEntry:
    """Return the entry of a symbolic link."""
    return LayerEntry(name, kind=tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> LayerEntry:
    """Return the entry of a hard link."""
    return LayerEntry(name, kind=tarfile.LNKTYPE, link=target)


def tar_of(entries: Iterable[LayerEntry], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive of exactly these entries, in this order."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form, errors="surrogateescape") as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.type, member.linkname, member.mode, member.size = entry.kind, entry.link, entry.mode, len(entry.data)
            for key, value in entry.more.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(entry.data))
    return raw.getvalue()


def digest_of(data: bytes) -> str:
    """Return the digest of a blob."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class OciLayout:
    """An OCI layout on disk, to which images are added.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifests: list[dict[str, Any]] = []
        (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self._write_index()

    def blob(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Write a blob and return its descriptor."""
        (self.folder / "blobs" / "sha256" / digest_of(data)[7:]).write_bytes(data)
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}

    def add(
        self,
        layers: Iterable[Iterable[LayerEntry] | bytes],
        *,
        config: Mapping[str, Any] | None = None,
        tag: str | None = None,
        architecture: str = "amd64",
        compression: str = "gzip",
        platform: bool = False,
        docker: bool = False,
    ) -> str:
        """Add an image and return the digest of its manifest.

        Args:
            layers: entries, or whole tar streams, the lowest first.
            config: `Env`, `Entrypoint`, `Cmd`, `WorkingDir`, ...
            compression: `gzip`, `zstd` (by the command) or `none`.
            platform: whether the index says the architecture.
            docker: whether its parts have Docker's media types.
        """
        streams = [layer if isinstance(layer, bytes) else tar_of(layer) for layer in layers]
        document = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [digest_of(stream) for stream in streams]},
        }
        kinds = _DOCKER if docker else {}
        packed = [_compress(stream, compression) for stream in streams]
        manifest = {
            "schemaVersion": 2,
            "mediaType": kinds.get(MANIFEST, MANIFEST),
            "config": self.blob(json.dumps(document).encode(), kinds.get(CONFIG, CONFIG)),
            "layers": [self.blob(data, kinds.get(kind, kind)) for data, kind in packed],
        }
        descriptor = self.blob(json.dumps(manifest).encode(), kinds.get(MANIFEST, MANIFEST))
        if tag:
            descriptor["annotations"] = {"org.opencontainers.image.ref.name": tag}
        if platform:
            descriptor["platform"] = {"architecture": architecture, "os": "linux"}
        self._manifests.append(descriptor)
        self._write_index()
        return str(descriptor["digest"])

    def _write_index(self) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._manifests}
        (self.folder / "index.json").write_text(json.dumps(index))

    def archive(self, path: Path) -> Path:
        """Write the layout as one tar archive, as `podman save --format oci-archive` does."""
        with tarfile.open(path, "w") as archive:
            for file in sorted(self.folder.rglob("*")):
                archive.add(file, arcname=str(file.relative_to(self.folder)), recursive=False)
        return path


def docker_archive(
    path: Path,
    layers: Iterable[Iterable[LayerEntry] | bytes],
    *,
    config: Mapping[str, Any] | None = None,
    tags: Iterable[str] = ("made:latest",),
    architecture: str = "amd64",
) -> Path:
    """Write an archive as `docker save` did before it wrote OCI layouts: manifest.json, a configuration, layer tars."""
    streams = [layer if isinstance(layer, bytes) else tar_of(layer) for layer in layers]
    document = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [digest_of(stream) for stream in streams]},
        }
    ).encode()
    name = f"{digest_of(document)[7:]}.json"
    names = [f"{index}/layer.tar" for index in range(len(streams))]
    manifest = json.dumps([{"Config": name, "RepoTags": list(tags), "Layers": names}]).encode()
    with tarfile.open(path, "w") as archive:
        for member, data in [*zip(names, streams, strict=True), (name, document), ("manifest.json", manifest)]:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _compress(stream: bytes, compression: str) -> tuple[bytes, str]:
    if compression == "gzip":
        return gzip.compress(stream, 1, mtime=0), f"{LAYER}+gzip"
    if compression == "zstd":
        done = subprocess.run(["zstd", "-qc"], input=stream, stdout=subprocess.PIPE, check=True)
        return done.stdout, f"{LAYER}+zstd"
    return stream, LAYER
