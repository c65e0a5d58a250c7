"""Layers merged as one tar stream into squashfs: nothing is extracted, and no privilege is needed.

The layers are read twice: first their headers, for the tree that they make together, with every blob verified; then the data
of the files that are left in it. What could gain privilege or leave the image is refused or dropped, and counted:

- a name or hard link that leads out of the image is an error; absolute ones begin at the image's root;
- device nodes are dropped; the bits for set-user-id and set-group-id are cleared; extended attributes are left out;
- symbolic links stay as they are: they are followed inside a container only.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from cordee.machine.images import tar_stream
from cordee.machine.images.blobs import LayerStream
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import OciImage
from cordee.machine.images.tar_stream import TarEntry, TarFault, TarReader
from cordee.machine.images.tree import (
    FIFO,
    FILE,
    FOLDER,
    LINK,
    MAX_PATH_BYTES,
    OPAQUE,
    WHITEOUT,
    Content,
    LayerFault,
    LayerTree,
    TreeNode,
    split_path,
)
from cordee.systems.environments.images.make import squashfs_from_tar

_MAX_TIME = (1 << 32) - 1
_KEPT_BITS = 0o1777
# More of either is no image but an attempt to fill memory or disk.
MAX_ENTRIES = 20_000_000
MAX_SPARSE_BYTES = 64 << 30


@dataclass
class MergedLayers:
    """What a merge has found; counts of entries.

    Attributes:
        files, folders, links: what the image has.
        size_bytes: data of its files; that of several names counts for each.
        hidden: files of lower layers that are not in it.
        devices, set_id, attributes: what was dropped or cleared.
    """

    files: int = 0
    folders: int = 0
    links: int = 0
    size_bytes: int = 0
    hidden: int = 0
    devices: int = 0
    set_id: int = 0
    attributes: int = 0

    def document(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    def dropped(self) -> list[str]:
        """Return what a person should know, one line each."""
        return [
            f"{count} {text}"
            for count, text in (
                (self.devices, "device nodes were left out: a container gets its devices from the host"),
                (self.set_id, "files lost their set-user-id or set-group-id bit"),
            )
            if count
        ]


def merge(image: OciImage, path: Path, say: Callable[[str], None] = lambda text: None) -> MergedLayers:
    """Write the root of an image into the squashfs file `path`, and return what is in it.

    Raises:
        ImageError: a blob is damaged, or a layer cannot be part of an image.
        StoreError: there is no space left.
    """
    found = MergedLayers()
    tree = LayerTree()
    entries = 0
    for index in range(len(image.layers)):
        say(f"reading layer {index + 1} of {len(image.layers)}")
        entries += apply_layer(image, index, tree, found, MAX_ENTRIES - entries)
    with squashfs_from_tar(path, root_mode=tree.root.mode) as out:
        wanted = _write_names(tree, out, found)
        found.hidden -= sum(len(each) for each in wanted)
        for index in range(len(image.layers)):
            if index < len(wanted) and wanted[index]:
                say(f"writing layer {index + 1} of {len(image.layers)}")
                _write_files(image, index, wanted[index], out)
        out.write(bytes(2 * tarfile.BLOCKSIZE))
    return found


def _members(stream: LayerStream) -> Iterator[tuple[int, TarEntry, TarReader]]:
    """Yield the entries of a layer with their numbers.

    Raises:
        ImageError: the layer is no tar archive.
    """
    reader = TarReader(stream)
    number = 0
    try:
        while (member := reader.next()) is not None:
            yield number, member, reader
            number += 1
    except TarFault as fault:
        raise stream.fault(f"is no tar archive, or a damaged one: {fault}") from None


def apply_layer(image: OciImage, index: int, tree: LayerTree, found: MergedLayers, most: int) -> int:
    """Put the entries of a layer into the tree of those below it, and return how many there are.

    Raises:
        ImageError: the layer is damaged, has more than `most` entries, or cannot be part of an image.
    """
    stream = image.open_layer(index)
    count = 0
    try:
        tree.begin_layer()
        for number, member, _ in _members(stream):
            count += 1
            if number >= most:
                raise ImageError(f"the image has more than {MAX_ENTRIES} entries", given=image.source.given)
            try:
                _enter(tree, member, Content(index, number, member.size_bytes), found)
            except LayerFault as fault:
                raise ImageError(f"{stream.what}: {fault}", given=image.source.given) from None
        stream.finish()
        return count
    finally:
        stream.close()


def _enter(tree: LayerTree, member: TarEntry, content: Content, found: MergedLayers) -> None:
    parts = split_path(member.name)
    name = parts[-1] if parts else ""
    if name.startswith(WHITEOUT):
        if name == OPAQUE:
            tree.opaque(parts[:-1])
        elif not name.startswith(WHITEOUT + WHITEOUT):  # the rest of these names is AUFS's own bookkeeping
            tree.whiteout([*parts[:-1], *_hidden(name)])
        return
    mode = member.mode & _KEPT_BITS
    mtime = min(max(member.mtime, 0), _MAX_TIME)
    found.attributes += member.attributes
    if member.kind == tar_stream.FOLDER:
        tree.add(parts, TreeNode(FOLDER, 0, mode | 0o700, mtime))
    elif member.kind == tar_stream.SYMBOLIC_LINK:
        if not member.link or "\0" in member.link or len(member.link.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
            raise LayerFault(f"a symbolic link leads nowhere: {member.name!r}")
        tree.add(parts, TreeNode(LINK, 0, 0o777, mtime, target=member.link))
    elif member.kind == tar_stream.HARD_LINK:
        tree.add_hard_link(parts, split_path(member.link, "a hard link"))
    elif member.kind == tar_stream.REGULAR:
        if member.pieces is not None and member.size_bytes > MAX_SPARSE_BYTES:
            raise LayerFault(
                f"a sparse file is longer than any in an image: {member.name!r}, {member.size_bytes} bytes"
            )
        found.set_id += bool(member.mode & 0o6000)
        found.hidden += bool(member.size_bytes)
        tree.add(parts, TreeNode(FILE, 0, mode | 0o400, mtime, content=content))
    elif member.kind == tar_stream.PIPE:
        tree.add(parts, TreeNode(FIFO, 0, mode, mtime))
    elif member.kind in (tar_stream.CHARACTER, tar_stream.BLOCK):
        found.devices += 1
    else:
        raise LayerFault(f"an entry is of a kind that is not known: {member.name!r} ({member.kind!r})")


def _hidden(name: str) -> list[str]:
    hidden = name.removeprefix(WHITEOUT)
    if hidden in ("", ".", ".."):
        raise LayerFault(f"a whiteout leads out of its folder: {name!r}")
    return [hidden]


@dataclass(slots=True)
class _Wanted:
    """A file that is left: the header of its first name, and its other names."""

    node: TreeNode
    names: list[str]


def _write_names(tree: LayerTree, out: BinaryIO, found: MergedLayers) -> list[dict[int, _Wanted]]:
    """Write all that has no data; return by layer and entry the files that have."""
    wanted: list[dict[int, _Wanted]] = []
    for path, node in tree.walk():
        if node.kind == FOLDER:
            found.folders += 1
            out.write(_header(path, tarfile.DIRTYPE, node))
        elif node.kind == LINK:
            found.links += 1
            out.write(_header(path, tarfile.SYMTYPE, node, link=node.target))
        elif node.kind == FIFO:
            out.write(_header(path, tarfile.FIFOTYPE, node))
        else:
            found.files += 1
            assert node.content is not None
            found.size_bytes += node.content.size_bytes
            if not node.content.size_bytes:
                out.write(_header(path, tarfile.REGTYPE, node))
                continue
            while len(wanted) <= node.content.layer:
                wanted.append({})
            wanted[node.content.layer].setdefault(node.content.entry, _Wanted(node, [])).names.append(path)
    return wanted


def _write_files(image: OciImage, index: int, wanted: dict[int, _Wanted], out: BinaryIO) -> None:
    def write(number: int, member: TarEntry, reader: TarReader) -> None:
        first, *others = wanted[number].names
        out.write(_header(first, tarfile.REGTYPE, wanted[number].node, size=member.size_bytes))
        reader.copy(member, out)
        out.write(bytes(-member.size_bytes % tarfile.BLOCKSIZE))
        for name in others:
            out.write(_header(name, tarfile.LNKTYPE, wanted[number].node, link=first))

    take_files(image, index, wanted, write)


def take_files(
    image: OciImage, index: int, wanted: Collection[int], take: Callable[[int, TarEntry, TarReader], None]
) -> None:
    """Have the data of those entries of a layer taken that are wanted.

    Raises:
        ImageError: the layer is a damaged archive.
    """
    stream = image.open_layer(index)
    left = len(wanted)
    try:
        for number, member, reader in _members(stream) if left else ():
            if number in wanted:
                take(number, member, reader)
                left -= 1
                if not left:
                    break
    except TarFault as fault:
        raise stream.fault(f"is a damaged archive: {fault}") from None
    finally:
        stream.close()


def _header(path: str, kind: bytes, node: TreeNode, *, size: int = 0, link: str = "") -> bytes:
    header = tarfile.TarInfo(path)
    header.type, header.mode, header.mtime, header.size, header.linkname = kind, node.mode, node.mtime, size, link
    return header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
