"""The layers of an image and its configuration: what is in the end, and what a later layer only seems to delete."""

from __future__ import annotations

import datetime
import json
import os
import time
from typing import Any

from cordee.machine.images import tar_stream
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import OciImage, image_in
from cordee.machine.images.sources import ImageSource
from cordee.machine.images.tar_stream import TarEntry, TarFault, TarReader
from cordee.machine.images.tree import (
    FILE,
    FOLDER,
    LINK,
    OPAQUE,
    WHITEOUT,
    Content,
    LayerFault,
    LayerTree,
    TreeNode,
    split_path,
)
from cordee.systems.scan.images.found import ELF, ImageFinder, is_wanted, may_be_model
from cordee.systems.scan.node.formats.texts import secret_sights
from cordee.systems.scan.node.source import BytesSource, FileSource, Source
from cordee.systems.scan.node.verdict import Sight

_MOST_ENTRIES = 20_000_000
_TEXTS_BYTES = 512 << 20
_MEMORY_BYTES, _SPARSE_BYTES = 1 << 20, 4 << 30
_OLD_S, _DAY_S = 365 * 86_400.0, 86_400.0
_MOST_FAULTS = 20
_ARCHITECTURES = ("amd64", "arm64")


class LayerLook:
    """The look at one image, layer by layer.

    Args:
        image: that is open.
        finder: takes what is found.
        spool: of an empty file, in which what may be a model is kept while it is looked at.
    """

    def __init__(self, image: OciImage, finder: ImageFinder, spool: int) -> None:
        self._image, self._finder, self._spool = image, finder, spool
        self._models: dict[tuple[int, int], list[Sight]] = {}
        self._tree = LayerTree()
        self._contents: dict[tuple[int, int], tuple[str, bytes]] = {}
        self._rights: dict[tuple[int, int], tuple[int, int, bool]] = {}
        self._left: set[tuple[int, int]] = set()
        self._entries = self._texts = self._faults = 0

    def look(self) -> None:
        """Look at all layers, then at what they make together."""
        for index in range(len(self._image.layers)):
            try:
                self._layer(index)
            except ImageError as error:
                where = f"layer {index + 1}"
                self._finder.saw("image-unreadable", "unknown", error.text, where)
        for path, node in self._tree.walk():
            if node.content is None:
                continue
            key = node.content.layer, node.content.entry
            mode, uid, capable = self._rights.get(key, (node.mode, 0, False))
            self._finder.name(path, "file", mode, uid, capable=capable)
            self._finder.keep(self._models.get(key, ()))
            if key in self._contents:
                self._finder.content(path, self._contents[key][1])
                self._left.add(key)
        for key in sorted(self._contents.keys() - self._left):
            path, content = self._contents[key]
            self._finder.text(
                path, content, f", in layer {key[0] + 1}: a later one replaces or deletes the file, and it stays there"
            )

    def _layer(self, index: int) -> None:
        stream = self._image.open_layer(index)
        try:
            self._tree.begin_layer()
            reader = TarReader(stream)
            number = 0
            while (member := reader.next()) is not None:
                self._entries += 1
                if self._entries > _MOST_ENTRIES:
                    raise ImageError(f"it has more than {_MOST_ENTRIES:,} entries")
                try:
                    self._enter(member, Content(index, number, member.size_bytes), reader)
                except LayerFault as fault:
                    self._faults += 1
                    if self._faults <= _MOST_FAULTS:
                        self._finder.saw("image-hostile", "block", str(fault)[:300], f"layer {index + 1}")
                number += 1
            stream.finish()
        except TarFault as fault:
            raise stream.fault(f"is no tar archive, or a damaged one: {fault}") from None
        finally:
            stream.close()

    def _enter(self, member: TarEntry, content: Content, reader: TarReader) -> None:
        parts = split_path(member.name)
        name = parts[-1] if parts else ""
        if name.startswith(WHITEOUT):
            if name == OPAQUE:
                self._tree.opaque(parts[:-1])
            elif not name.startswith(WHITEOUT + WHITEOUT) and name != WHITEOUT:
                self._tree.whiteout([*parts[:-1], name.removeprefix(WHITEOUT)])
        elif member.kind == tar_stream.FOLDER:
            self._tree.add(parts, TreeNode(FOLDER, 0, member.mode, member.mtime))
        elif member.kind == tar_stream.SYMBOLIC_LINK:
            self._tree.add(parts, TreeNode(LINK, 0, 0o777, member.mtime, target=member.link))
        elif member.kind == tar_stream.HARD_LINK:
            self._tree.add_hard_link(parts, split_path(member.link, "a hard link"))
        elif member.kind == tar_stream.REGULAR:
            self._tree.add(parts, TreeNode(FILE, 0, member.mode, member.mtime, content=content))
            self._file("/".join(parts), member, content, reader)

    def _file(self, path: str, member: TarEntry, content: Content, reader: TarReader) -> None:
        key = content.layer, content.entry
        if member.mode & 0o6000 or member.capable:
            self._rights[key] = member.mode, member.uid, member.capable
        wanted = is_wanted(path, member.size_bytes)
        if not wanted and not may_be_model(path, member.size_bytes):
            return
        if member.pieces is not None and member.size_bytes > _SPARSE_BYTES:
            self._models[key] = [Sight("image-model-unknown", "unknown", "it is a sparse file of many GB", f"/{path}")]
            return
        out = SpooledFile(self._spool)
        reader.copy(member, out)  # type: ignore[arg-type]
        if out.fault:
            said = f"it is too large to be looked at here: {out.fault}"
            self._models[key] = [Sight("image-model-unknown", "unknown", said, f"/{path}")]
            return
        if may_be_model(path, member.size_bytes):
            self._models[key] = self._finder.model(path, out.source())
        if wanted:
            self._texts += member.size_bytes
            if self._texts > _TEXTS_BYTES:
                self._finder.saw("image-too-much", "unknown", "it has more text than could be looked at")
                return
            self._contents[key] = path, out.source().at(0, member.size_bytes)


class SpooledFile:
    """Takes the content of a file: little in memory, the rest in a file that is used again; of a program nothing.

    Args:
        descriptor: of that file.

    Attributes:
        fault: why it could not be taken.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._memory, self._size, self.fault = descriptor, bytearray(), 0, ""

    def write(self, data: bytes) -> int:
        """Take more of it; what goes wrong is kept, for the archive must be read on."""
        if not self.fault and not self._memory.startswith(ELF):
            if self._size + len(data) <= _MEMORY_BYTES:
                self._memory += data
            else:
                self._put(data)
            self._size += len(data)
        return len(data)

    def source(self) -> Source:
        """Return what was taken."""
        if self._size <= len(self._memory):
            return BytesSource(bytes(self._memory))
        return FileSource(self._descriptor).part(0, self._size)

    def _put(self, data: bytes) -> None:
        try:
            if self._size == len(self._memory):
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                self._whole(bytes(self._memory))
            self._whole(data)
        except OSError as error:
            self.fault = error.strerror or str(error)

    def _whole(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def look_at_layers(source: ImageSource, finder: ImageFinder, tag: str | None, spool: int) -> None:
    """Look at the image in a layout or archive; `spool` is an empty file to write to.

    Raises:
        ImageError: there is none, or several.
    """
    image = _for_any_machine(source, tag)
    look_at_configuration(image.document, finder, time.time())
    LayerLook(image, finder, spool).look()


def _for_any_machine(source: ImageSource, tag: str | None) -> OciImage:
    """Return the image for this machine, else the one that there is: login nodes look at what compute nodes will run."""
    try:
        return image_in(source, tag=tag)
    except ImageError as error:
        for architecture in _ARCHITECTURES:
            try:
                return image_in(source, tag=tag, architecture=architecture)
            except ImageError:
                continue
        raise error


def look_at_configuration(document: dict[str, Any], finder: ImageFinder, now_s: float) -> None:
    """Look at what an image says of itself: its user, its age, keys in its variables, labels and history."""
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    user = str(config.get("User") or "").partition(":")[0]
    if user in ("", "0", "root"):
        finder.saw("image-root", "warn", "it runs as root, as it names no other user", "configuration")
    try:
        made = datetime.datetime.fromisoformat(str(document.get("created") or "")[:19]).replace(tzinfo=datetime.UTC)
        age_s = now_s - made.timestamp()
    except (ValueError, OverflowError):
        age_s = 0.0
    look_at_age(age_s, finder)
    texts = [(str(one), "Env") for one in _list(config.get("Env"))]
    texts += (
        [(f"{key}={value}", "Labels") for key, value in (config.get("Labels") or {}).items()]
        if isinstance(config.get("Labels"), dict)
        else []
    )
    texts += [
        (str(one.get("created_by", "")), "history") for one in _list(document.get("history")) if isinstance(one, dict)
    ]
    texts += [(json.dumps(config.get(key)), key) for key in ("Cmd", "Entrypoint", "Healthcheck") if config.get(key)]
    for text, where in texts:
        for sight in secret_sights(text[: 1 << 20], where):
            finder.saw("image-secret-config", sight.severity, f"{sight.text}, in the configuration of the image", where)


def look_at_age(age_s: float, finder: ImageFinder) -> None:
    """Tell an image that is old, or of a time to come."""
    if age_s > _OLD_S:
        finder.saw("image-old", "warn", f"it was built {int(age_s / _DAY_S)} days ago")
    elif age_s < -_DAY_S:
        finder.saw("image-date", "unknown", "it says that it was built at a time to come")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
