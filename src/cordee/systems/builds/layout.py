"""Images as OCI layouts: layers, configuration, manifest and index, the same bytes for the same image.

Layers are archives that are not compressed: what a compressor makes of one differs from release to release, and with it would
the image's digest. The layout is that of the OCI image specification (image-layout.md, manifest.md, config.md).
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import UsageError
from cordee.systems.builds.errors import BuildError

_PREFIX = "application/vnd.oci.image."
_MANIFEST, _CONFIG = f"{_PREFIX}manifest.v1+json", f"{_PREFIX}config.v1+json"
_LAYERS = {b"\x1f\x8b": "layer.v1.tar+gzip", b"\x28\xb5": "layer.v1.tar+zstd"}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LayerBlob(NamedTuple):
    """One layer as an image carries it.

    Attributes:
        path: of the blob.
        digest, bytes: of the blob.
        diff_id: digest of the archive in it.
        created_by: for people.
    """

    path: Path
    digest: str
    bytes: int
    diff_id: str
    created_by: str


def media_type(path: Path) -> str:
    """Return the media type of a layer, by its first bytes."""
    with path.open("rb") as file:
        return _PREFIX + _LAYERS.get(file.read(2), "layer.v1.tar")


def image_config(
    config: Mapping[str, Any], layers: Iterable[LayerBlob], *, architecture: str, epoch: int
) -> dict[str, Any]:
    """Return the configuration document of an image.

    Args:
        config: `Env` as a table, `WorkingDir`, `Entrypoint`, `Cmd`, `Labels`.
        layers: the lowest first.
        architecture: as OCI spells it.
        epoch: seconds, when it was made.
    """
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = list(layers)
    env = {"PATH": DEFAULT_PATH, **config["Env"]}
    inner = {**config, "Env": [f"{key}={value}" for key, value in sorted(env.items())]}
    return {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {key: value for key, value in inner.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in found]},
        "history": [{"created": created, "created_by": layer.created_by} for layer in found],
    }


def write_layout(folder: Path, layers: Iterable[LayerBlob], config: Mapping[str, Any], name: str) -> str:
    """Write an image into an empty folder and return the digest of its manifest.

    Args:
        layers: the lowest first; their files are linked where that can be.
        config: as `image_config` returns it.
        name: a tag for whoever reads the layout.

    Raises:
        OSError: the folder cannot be written.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    described = []
    for layer in layers:
        link_or_copy(layer.path, blobs / layer.digest.partition(":")[2])
        described.append({"mediaType": media_type(layer.path), "digest": layer.digest, "size": layer.bytes})
    configuration = _put(blobs, config, _CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": configuration, "layers": described}
    descriptor = _put(blobs, manifest, _MANIFEST)
    described_name = {"annotations": {"org.opencontainers.image.ref.name": name}} if name else {}
    index = {"schemaVersion": 2, "manifests": [{**descriptor, **described_name}]}
    (folder / "index.json").write_bytes(_bytes(index))
    (folder / "oci-layout").write_bytes(_bytes({"imageLayoutVersion": "1.0.0"}))
    return str(descriptor["digest"])


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or a copy on another file system.

    Raises:
        OSError: neither can be.
    """
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _put(blobs: Path, document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    data = _bytes(document)
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def check_layout(layout: Path) -> None:
    """Read the blobs of a layout of the cache whole.

    Raises:
        BuildError: one is not what its digest says.
    """
    for blob in sorted((layout / "blobs" / "sha256").iterdir()):
        with blob.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != blob.name:
                raise BuildError(
                    "a file in the cache of builds is damaged",
                    given=str(blob),
                    next=f"remove {layout.parent.parent}, of which all can be made again, and build",
                )


def copy_layout(layout: Path, target: Path) -> None:
    """Copy a layout of the cache to a folder that is new or empty.

    Raises:
        BuildError: it is damaged.
        UsageError: there is something in it, or it cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError("the folder for the image is not empty", given=str(target), next="name a new one")
        check_layout(layout)
        shutil.copytree(layout, target, dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(f"the image cannot be written: {error.strerror or error}", given=str(target)) from None
