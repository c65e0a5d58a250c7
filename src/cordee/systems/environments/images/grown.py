"""Images whose lower layers were made into a squashfs file before: that file is the stem, and only what lies over it is packed.

The stem is what seldom changes, such as packages under a line that somebody works on. It is kept by the digests of its layers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from cordee.machine.foreign_files import read_json, regular
from cordee.machine.images.errors import StoreError
from cordee.machine.images.oci import OciImage
from cordee.machine.images.tar_stream import TarEntry, TarReader
from cordee.machine.images.tree import FILE, FOLDER, Content, LayerTree, TreeNode
from cordee.machine.squashfs.derived import DerivedSquashfs, ListedFolder
from cordee.machine.squashfs.reader import SquashfsFault, SquashfsReader, StoredFile
from cordee.systems.environments.images.merged import MAX_ENTRIES, MergedLayers, apply_layer, merge, take_files

_STEM = -1


class Stem(NamedTuple):
    """Layers that many images begin with.

    Attributes:
        layers: how many, from the lowest on.
        folder: where their squashfs files are kept.
    """

    layers: int
    folder: Path


def grow(image: OciImage, stem: Stem, path: Path, say: Callable[[str], None] = lambda text: None) -> MergedLayers:
    """Write the root of an image into the squashfs file `path` as `merge` does, over its stem, which is made where it is not there.

    Raises:
        ImageError: a blob is damaged, or a layer cannot be part of an image.
        StoreError: there is no space left.
    """
    try:
        below, found = _stem(image, stem, say)
    except (OSError, StoreError) as error:
        say(f"the lower layers are not kept, and packed with the others: {error}")
        return merge(image, path, say)
    descriptor = regular(below)
    try:
        reader = SquashfsReader(descriptor)
        tree = _tree_of(reader, found)
        for index in range(stem.layers, len(image.layers)):
            apply_layer(image, index, tree, found, MAX_ENTRIES)
        with path.open("w+b") as out:
            derived = DerivedSquashfs(reader, descriptor, out)
            new = _new_files(image, stem.layers, tree, derived)
            derived.finish(_folders(tree, reader, new, found), (os.getuid(), os.getgid()))
        return found
    except SquashfsFault as fault:
        say(f"the lower layers are packed again: {fault}")
        shutil.rmtree(below.parent, ignore_errors=True)
        return merge(image, path, say)
    finally:
        os.close(descriptor)


def _stem(image: OciImage, stem: Stem, say: Callable[[str], None]) -> tuple[Path, MergedLayers]:
    """Return the squashfs file of the stem, and what was found in it.

    Raises:
        OSError, StoreError: there is no room for it.
    """
    names = "\n".join(str(layer.digest or layer.diff_id) for layer in image.layers[: stem.layers])
    place = stem.folder / hashlib.sha256(f"{os.getuid()} {os.getgid()} {names}".encode()).hexdigest()[:32]
    below = place / "root.squashfs"
    try:
        found = MergedLayers(**read_json(place / "contents.json"))
        if below.is_file():
            return below, found
    except (OSError, ValueError, TypeError):
        pass
    stem.folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".", dir=stem.folder))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # who finds it without may remove it
        found = merge(replace(image, layers=image.layers[: stem.layers]), made / below.name, say)
        (made / "contents.json").write_text(json.dumps(found.document()))
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # another build was first
            made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)
    return below, found


def _tree_of(reader: SquashfsReader, found: MergedLayers) -> LayerTree:
    """Return the tree of the stem; what its files hold is known by their inodes."""
    tree, contents = LayerTree(), dict[int, Content]()
    tree.root.mode, tree.root.mtime = reader.root()
    folders = {"": tree.root}
    for node in reader.walk():
        above, _, name = node.path.rpartition("/")
        made = folders[above].children[name] = TreeNode(node.kind, _STEM, node.mode, node.mtime)
        if node.kind == FOLDER:
            folders[node.path] = made
        elif node.kind == FILE:
            found.hidden += bool(node.size and node.inode not in contents)
            made.content = contents.setdefault(node.inode, Content(_STEM, node.inode, node.size))
        elif node.kind == "link":
            made.target = reader.target(node)
    return tree


def _new_files(
    image: OciImage, first: int, tree: LayerTree, derived: DerivedSquashfs
) -> dict[tuple[int, int], StoredFile]:
    """Write the content of files over the stem; return where it lies, by layer and entry."""
    nodes = [node for _, node in tree.walk() if node.content is not None and node.content.layer != _STEM]
    wanted = {(node.content.layer, node.content.entry): node.content.size_bytes for node in nodes if node.content}
    new = {key: derived.file(-number - 1).end() for number, key in enumerate(wanted) if not wanted[key]}

    def take(number: int, member: TarEntry, reader: TarReader) -> None:
        file = derived.file(-len(wanted) - len(new) - 1)
        reader.copy(member, cast(BinaryIO, file))
        new[index, number] = file.end()

    for index in range(first, len(image.layers)):
        take_files(image, index, {entry for layer, entry in wanted if layer == index and wanted[layer, entry]}, take)
    return new


def _folders(
    tree: LayerTree, reader: SquashfsReader, new: dict[tuple[int, int], StoredFile], found: MergedLayers
) -> list[ListedFolder]:
    """Return the folders of a tree, the root first, and count what is in them."""
    found.files = found.folders = found.links = found.size_bytes = 0
    old: dict[int, StoredFile] = {}
    waiting, folders, seen = [(tree.root, 0)], list[ListedFolder](), set[tuple[int, int]]()
    for node, above in waiting:
        names, files = [], dict[bytes, StoredFile]()
        for raw, child in sorted(
            (name.encode(errors="surrogateescape"), child) for name, child in node.children.items()
        ):
            number = 0
            if child.kind == FOLDER:
                waiting.append((child, len(folders)))
                number = len(waiting) - 1
            elif child.kind == FILE:
                content = cast(Content, child.content)
                key = content.layer, content.entry
                if content.layer == _STEM and content.entry not in old:
                    old[content.entry] = reader.stored(content.entry)
                files[raw] = old[content.entry] if content.layer == _STEM else new[key]
                found.size_bytes += content.size_bytes
                found.hidden -= bool(content.size_bytes and key not in seen)
                seen.add(key)
            names.append((raw, child, number))
        found.files += len(files)
        found.links += sum(child.kind == "link" for _, child, _ in names)
        found.folders += sum(child.kind == FOLDER for _, child, _ in names)
        folders.append(ListedFolder(node, above, names, files))
    return folders
