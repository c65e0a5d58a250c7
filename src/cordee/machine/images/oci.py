"""Images as OCI layouts and archives, and as `docker save` writes them: from the index to layers and configuration.

The layout is that of the OCI image specification (image-layout.md, image-index.md, manifest.md, config.md).
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.machine.foreign_files import parse_json
from cordee.machine.image_config import ImageConfig
from cordee.machine.images.blobs import LayerStream, VerifiedReader, open_blob, read_all
from cordee.machine.images.errors import ImageError
from cordee.machine.images.sources import ArchiveSource, DownloadSource, ImageSource, LayoutFolder

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_NAME = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"
_MAX_DEPTH = 4
INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


@dataclass(frozen=True)
class OciLayer:
    """One layer; `digest` and `size_bytes` are those of the blob, None where `docker save` does not say them."""

    name: str
    digest: str | None
    size_bytes: int | None
    diff_id: str | None


@dataclass(frozen=True)
class OciImage:
    """An image that is ready to be read.

    Attributes:
        source: where its files are.
        config: what it says of itself; its digest is the manifest's, or the configuration's where there is no manifest.
        layers: the lowest first.
        document: its configuration as it is written.
    """

    source: ImageSource
    config: ImageConfig
    layers: tuple[OciLayer, ...]
    document: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """What the image is known by."""
        assert self.config.digest is not None
        return self.config.digest

    def open_layer(self, index: int) -> LayerStream:
        """Return the tar stream of a layer, verified when it has been read to its end.

        Raises:
            ImageError: it is not there.
        """
        layer = self.layers[index]
        what = f"layer {index + 1} of {len(self.layers)}"
        if layer.digest:
            blob = open_blob(self.source, layer.digest, layer.size_bytes, what)
            return LayerStream(blob, what=what, given=self.source.given)
        try:
            file, size = self.source.open(layer.name)
        except KeyError:
            raise ImageError(f"{what} is missing ({layer.name})", given=self.source.given) from None
        blob = VerifiedReader(file, size, name=what, given=self.source.given, digest=None, expected_bytes=None)
        return LayerStream(blob, what=what, given=self.source.given, diff_id=layer.diff_id)


def this_architecture() -> str:
    """Return this machine's architecture as OCI spells it: `amd64`, `arm64`."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


def is_layout(path: Path) -> bool:
    """Return whether a folder is an OCI layout and not a root."""
    return (path / "oci-layout").is_file() and (path / "index.json").is_file()


def open_image(path: Path, *, tag: str | None = None, architecture: str | None = None) -> OciImage:
    """Return the image for an architecture (default: this machine's) in a layout or archive.

    Args:
        tag: which one, if there are several.

    Raises:
        ImageError: it is none, damaged, for other architectures, or `tag` does not name one of those in it.
    """
    return image_in(LayoutFolder(path) if path.is_dir() else ArchiveSource(path), tag=tag, architecture=architecture)


def image_in(source: ImageSource, *, tag: str | None = None, architecture: str | None = None) -> OciImage:
    """Return the image in a layout or archive that is open, as `open_image` does."""
    with _forms(source):
        return _open(source, tag, architecture or this_architecture())


@contextmanager
def _forms(source: ImageSource) -> Iterator[None]:
    """Turn what comes of a list where a table should be, and the like, into an ImageError."""
    try:
        yield
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise ImageError(
            f"a document of the image is of a form that is not known: {error}", given=source.given
        ) from None


def _open(source: ImageSource, tag: str | None, wanted: str) -> OciImage:
    try:
        index = _document(_whole(source, "index.json"), "index.json", source)
    except KeyError:
        return _docker_image(source, tag, wanted)
    candidates = [image for image in _manifests(source, index, (), 0) if tag is None or _named(image[1], tag)]
    if not candidates:
        names = sorted({name for image in _manifests(source, index, (), 0) for name in image[1]})
        raise ImageError(
            "there is no image of that tag" if tag else "there is no image in it",
            given=f"{source.given}:{tag}" if tag else source.given,
            allowed=names or None,
        )
    return _choose(source, candidates, wanted)


def open_download(folder: Path) -> OciImage:
    """Return the image in a folder that `skopeo copy ... dir:FOLDER` wrote, under the digest it has in its registry.

    Raises:
        ImageError: it is damaged.
    """
    source = DownloadSource(folder)
    try:
        manifest = _whole(source, "manifest.json")
    except KeyError:
        raise ImageError("the download holds no manifest", given=str(folder)) from None
    with _forms(source):
        return _image(source, {"digest": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}, manifest)


def _whole(source: ImageSource, name: str) -> bytes:
    file, size = source.open(name)
    reader = VerifiedReader(file, size, name=name, given=source.given, digest=None, expected_bytes=None)
    return read_all(reader, name, source.given)


def _document(data: bytes, what: str, source: ImageSource) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise ImageError(f"{what} is no JSON document: {error}", given=source.given) from None


def _manifests(
    source: ImageSource, index: Any, names: tuple[str, ...], depth: int
) -> Iterator[tuple[dict[str, Any], tuple[str, ...], str | None]]:
    """Yield (descriptor, names, architecture if said) of all manifests below an index."""
    if depth > _MAX_DEPTH:
        raise ImageError("an index of the image leads too deep", given=source.given)
    for descriptor in _table(index, "an index", source).get("manifests") or ():
        descriptor = _table(descriptor, "an entry of an index", source)
        annotations = descriptor.get("annotations") or {}
        own = tuple(str(annotations[key]) for key in (_NAME, _FULL_NAME) if key in annotations)
        says = descriptor.get("platform") or {}
        if says.get("os") == "unknown" or annotations.get("vnd.docker.reference.type"):
            continue  # an attestation, which is no image
        if descriptor.get("mediaType") in INDEX_TYPES:
            inner = _document(_blob(source, descriptor, "an index"), "an index", source)
            yield from _manifests(source, inner, names + own, depth + 1)
        else:
            yield descriptor, names + own, says.get("architecture")


def _named(names: tuple[str, ...], tag: str) -> bool:
    return any(name == tag or name.endswith((f":{tag}", f"/{tag}")) for name in names)


def _choose(
    source: ImageSource, candidates: list[tuple[dict[str, Any], tuple[str, ...], str | None]], wanted: str
) -> OciImage:
    images: dict[str, OciImage] = {}
    others: set[str] = set()
    names: set[str] = set()
    for descriptor, own, says in candidates:
        if says is not None and says != wanted:
            others.add(says)
            continue
        image = _image(source, descriptor)
        if image.config.architecture not in (None, "", wanted):
            others.add(str(image.config.architecture))
            continue
        images[image.digest] = image
        names.update(own)
    if not images:
        raise ImageError(
            f"the image is not for this machine, which is {wanted}",
            given=f"{source.given}, for {', '.join(sorted(others))}",
            allowed=f"an image for {wanted}",
            next=f"save or build it with --platform linux/{wanted}",
        )
    if len(images) > 1:
        raise ImageError(
            "there are several images in it",
            given=source.given,
            allowed=sorted(names) or sorted(images),
            next="add a colon and the tag",
        )
    return next(iter(images.values()))


def _image(source: ImageSource, descriptor: dict[str, Any], data: bytes | None = None) -> OciImage:
    data = _blob(source, descriptor, "the manifest") if data is None else data
    manifest = _table(_document(data, "the manifest", source), "the manifest", source)
    if "config" not in manifest or not isinstance(manifest.get("layers"), list):
        raise ImageError(
            "the manifest is of a form that is not known",
            given=f"{source.given} ({descriptor.get('mediaType') or manifest.get('schemaVersion')})",
            allowed="an OCI manifest, or Docker's of version 2",
        )
    config = _table(_document(_blob(source, manifest["config"], "the configuration"), "", source), "config", source)
    layers = []
    for position, given in enumerate(manifest["layers"]):
        layer = _table(given, "a layer", source)
        if "encrypted" in str(layer.get("mediaType")):
            raise ImageError(f"layer {position + 1} is encrypted", given=source.given, next="decrypt the image")
        layers.append(OciLayer("", _digest(layer, source), _size(layer, source), None))
    return OciImage(source, _config(config, str(descriptor["digest"]), source), tuple(layers), config)


def _docker_image(source: ImageSource, tag: str | None, wanted: str) -> OciImage:
    """Return the image of an archive of `docker save`: manifest.json names the files of each image."""
    try:
        entries = _document(_whole(source, "manifest.json"), "manifest.json", source)
    except KeyError:
        raise ImageError(
            "there is no image in it: neither index.json (OCI) nor manifest.json (docker save)", given=source.given
        ) from None
    entries = [_table(entry, "an entry of manifest.json", source) for entry in entries]
    tags = {name: entry for entry in entries for name in entry.get("RepoTags") or ()}
    if tag is not None:
        entries = [entry for name, entry in tags.items() if _named((name,), tag)][:1]
    if len(entries) != 1:
        text = "there are several images in it" if entries else "there is no image of that tag"
        raise ImageError(text, given=source.given, allowed=sorted(tags) or None, next="add a colon and the tag")
    try:
        data = _whole(source, str(entries[0]["Config"]))
    except KeyError:
        raise ImageError("the configuration of the image is missing", given=source.given) from None
    config = _table(_document(data, "the configuration", source), "config", source)
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or []
    names = entries[0].get("Layers") or []
    if len(diff_ids) != len(names):
        raise ImageError("the configuration names another number of layers than the manifest", given=source.given)
    image = OciImage(
        source,
        _config(config, f"sha256:{hashlib.sha256(data).hexdigest()}", source),
        tuple(
            OciLayer(str(name), None, None, _digest({"digest": each}, source))
            for name, each in zip(names, diff_ids, strict=True)
        ),
        config,
    )
    if image.config.architecture not in (None, wanted):
        raise ImageError(
            f"the image is not for this machine, which is {wanted}",
            given=f"{source.given}, for {image.config.architecture}",
            next=f"save or build it with --platform linux/{wanted}",
        )
    return image


def _config(document: dict[str, Any], digest: str, source: ImageSource) -> ImageConfig:
    if document.get("os") not in (None, "", "linux"):
        raise ImageError(f"the image is for {document['os']}, not for Linux", given=source.given)
    inner = _table(document.get("config") or {}, "config", source)
    pairs = (str(each).partition("=") for each in _words(inner.get("Env")))
    return ImageConfig(
        env={key: value for key, _, value in pairs if key},
        entrypoint=_words(inner.get("Entrypoint")),
        command=_words(inner.get("Cmd")),
        workdir=str(inner.get("WorkingDir") or "") or None,
        architecture=str(document.get("architecture") or "") or None,
        digest=digest,
    )


def _words(value: Any) -> tuple[str, ...]:
    """Return an argument vector; builders of long ago wrote one word as a string."""
    words = [value] if isinstance(value, str) else value or []
    if not isinstance(words, list):
        raise TypeError(f"{words!r} is no list of words")
    return tuple(str(word) for word in words)


def _blob(source: ImageSource, descriptor: Any, what: str) -> bytes:
    table = _table(descriptor, what, source)
    reader = open_blob(source, _digest(table, source), _size(table, source), what)
    return read_all(reader, what, source.given)


def _digest(descriptor: dict[str, Any], source: ImageSource) -> str:
    digest = descriptor.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ImageError("a digest in the image is none", given=f"{source.given} ({digest!r})")
    return digest


def _size(descriptor: dict[str, Any], source: ImageSource) -> int | None:
    size = descriptor.get("size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise ImageError("a size in the image is none", given=f"{source.given} ({size!r})")
    return size


def _table(value: Any, what: str, source: ImageSource) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ImageError(f"{what} of the image is no JSON object", given=source.given)
    return value
