"""The tree that the layers of an image make together: upper over lower, whiteouts, links. It never touches a file system.

Layers are applied as the OCI specification says (layer.md): lowest first, each entry after the other. Paths lead through
symbolic links as they would inside a container, so that none can lead out of the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

FOLDER, FILE, LINK, FIFO = "folder", "file", "link", "fifo"
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4095
_MAX_HOPS = 255


class LayerFault(Exception):
    """An entry of a layer cannot be part of any tree; the text says why."""


@dataclass(slots=True)
class Content:
    """The data of a file, which several names may share: the entry of a layer that holds it."""

    layer: int
    entry: int
    size_bytes: int


@dataclass(slots=True)
class TreeNode:
    """What is at a path; `layer` is the last one that put it there, or something below it."""

    kind: str
    layer: int
    mode: int
    mtime: int
    target: str = ""
    content: Content | None = None
    children: dict[str, TreeNode] = field(default_factory=dict)


def split_path(path: str, what: str = "a name") -> list[str]:
    """Return the parts of a path from the root of the image; a leading `/` means that root.

    Raises:
        LayerFault: it leads out of the root, or is longer than any system takes.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise LayerFault(f"{what} leads out of the image: {path!r}")
    if "\0" in path:
        raise LayerFault(f"{what} holds a zero byte: {path!r}")
    if len(path.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
        raise LayerFault(f"{what} is longer than {MAX_PATH_BYTES} bytes: {path[:80]!r}...")
    for part in parts:
        if len(part) > MAX_NAME_BYTES // 4 and len(part.encode(errors="surrogateescape")) > MAX_NAME_BYTES:
            raise LayerFault(f"{what} has a part longer than {MAX_NAME_BYTES} bytes: {part[:80]!r}...")
    return parts


class LayerTree:
    """The root after the layers applied so far; `begin_layer` comes before the entries of each."""

    def __init__(self) -> None:
        self.root = TreeNode(FOLDER, -1, 0o755, 0)
        self._layer = -1
        # What this layer has taken away: its hard links may still name it.
        self._gone: dict[tuple[str, ...], TreeNode] = {}

    def begin_layer(self) -> None:
        """Take the entries that follow for those of the next layer."""
        self._layer += 1
        self._gone = {}

    def add(self, parts: list[str], node: TreeNode) -> None:
        """Put an entry at a path; folders on the way are made, a folder over a folder keeps what is in it.

        Raises:
            LayerFault: a file of the same layer is on the way, or links lead in circles.
        """
        node.layer = self._layer
        if not parts:
            if node.kind == FOLDER:
                self.root.mode, self.root.mtime = node.mode, node.mtime
            return
        folder, above = self._folder(parts[:-1], make=True)
        assert folder is not None
        old = folder.children.get(parts[-1])
        if old is not None:
            if old.kind == FOLDER and node.kind == FOLDER:
                old.mode, old.mtime, old.layer = node.mode, node.mtime, self._layer
                return
            self._gone[(*above, parts[-1])] = old
        folder.children[parts[-1]] = node

    def add_hard_link(self, parts: list[str], target: list[str]) -> None:
        """Give what is at `target` another name.

        Raises:
            LayerFault: there is nothing there, or it is a folder.
        """
        found = self._find(target)
        if found is None:
            raise LayerFault(f"a hard link names what is not in the image: {'/'.join(parts)!r} -> {'/'.join(target)!r}")
        if found.kind == FOLDER:
            raise LayerFault(f"a hard link names a folder: {'/'.join(parts)!r} -> {'/'.join(target)!r}")
        if parts != target:
            self.add(parts, TreeNode(found.kind, self._layer, found.mode, found.mtime, found.target, found.content))

    def whiteout(self, parts: list[str]) -> None:
        """Take away what lower layers have at a path; what this layer put there stays."""
        folder, above = self._folder(parts[:-1], make=False)
        child = folder.children.get(parts[-1]) if folder else None
        if folder is None or child is None:
            return
        if child.layer < self._layer:
            self._gone[(*above, parts[-1])] = folder.children.pop(parts[-1])
        else:
            self._clear(child, (*above, parts[-1]))

    def opaque(self, parts: list[str]) -> None:
        """Take away all that lower layers have in a folder."""
        folder, above = self._folder(parts, make=False)
        if folder is not None:
            self._clear(folder, above)

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Yield every path below the root with its node, folders before what is in them."""
        waiting = [("", self.root)]
        while waiting:
            prefix, folder = waiting.pop()
            for name in sorted(folder.children):
                child = folder.children[name]
                yield prefix + name, child
                if child.kind == FOLDER:
                    waiting.append((f"{prefix}{name}/", child))

    def _clear(self, top: TreeNode, above: tuple[str, ...]) -> None:
        waiting = [(top, above)]
        while waiting:
            node, path = waiting.pop()
            for name in [name for name, child in node.children.items() if child.layer < self._layer]:
                self._gone[(*path, name)] = node.children.pop(name)
            waiting += [(child, (*path, name)) for name, child in node.children.items() if child.kind == FOLDER]

    def _find(self, parts: list[str]) -> TreeNode | None:
        """Return what is at a path, or was until this layer took it away; a link at the end is not followed."""
        if not parts:
            return self.root
        folder, above = self._folder(parts[:-1], make=False)
        if folder is not None and parts[-1] in folder.children:
            return folder.children[parts[-1]]
        whole = (*(above if folder is not None else parts[:-1]), parts[-1])
        for length in range(len(whole), 0, -1):
            node = self._gone.get(whole[:length])
            for part in whole[length:]:
                node = node.children.get(part) if node else None
            if node is not None:
                return node
        return None

    def _folder(self, parts: list[str], *, make: bool) -> tuple[TreeNode | None, tuple[str, ...]]:
        """Return the folder at a path and its true path: links are followed, none out of the root."""
        way: list[tuple[str, TreeNode]] = []
        left, hops = parts[::-1], 0
        while left:
            part = left.pop()
            if part == "..":
                way = way[:-1]
                continue
            here = way[-1][1] if way else self.root
            child = here.children.get(part)
            if child is not None and child.kind == LINK:
                hops += 1
                if hops > _MAX_HOPS:
                    raise LayerFault(f"symbolic links lead in circles: {'/'.join(parts)!r}")
                if child.target.startswith("/"):
                    way = []
                left += [piece for piece in child.target.split("/") if piece not in ("", ".")][::-1]
                continue
            if child is None or child.kind != FOLDER:
                if not make:
                    return None, ()
                child = self._make_folder(here, part, child, parts)
            way.append((part, child))
        if make:
            for _, folder in way:
                folder.layer = self._layer
        return (way[-1][1] if way else self.root), tuple(name for name, _ in way)

    def _make_folder(self, here: TreeNode, name: str, old: TreeNode | None, parts: list[str]) -> TreeNode:
        if old is not None and old.layer == self._layer:
            raise LayerFault(f"an entry lies below one that is no folder: {'/'.join(parts)!r}")
        here.children[name] = TreeNode(FOLDER, self._layer, 0o755, 0)
        return here.children[name]
