"""Python stacks as faulthandler and py-spy write them: read, told in one line, and merged over ranks."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cordee.core.draw.clean import few_ranges, one_line, ranges

_MOST_THREADS, _MOST_FRAMES = 256, 200
_HEAD = re.compile(r"(?P<current>Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')
_SPY_HEAD = re.compile(r'Thread \S+ \(.*\)(?:: "(?P<name>.*)")?')
_SPY_FRAME = re.compile(r"    (?P<name>.*) \((?P<file>.*):(?P<line>\d+)\)")
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3|node\.zip/|^<frozen|^<string>$|/cordee/(client|systems|wire)/"
)


class StackFrame(NamedTuple):
    """One call: the file, the line where it stands (0: not known), the function."""

    file: str
    line: int
    name: str

    @property
    def library(self) -> bool:
        """Whether it is no code of the user's."""
        return _LIBRARY.search(self.file) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.name})"


class ThreadStack(NamedTuple):
    """A thread's calls, the innermost first; `main`: the one that runs the script, as far as the text says."""

    main: bool
    frames: tuple[StackFrame, ...]


def read_stacks(text: str) -> list[ThreadStack]:
    """Return the threads of a text of faulthandler or of `py-spy dump`; what is not understood is passed over."""
    threads: list[tuple[bool, list[StackFrame]]] = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            threads.append((head["current"] == "Current thread", []))
        elif head := _SPY_HEAD.match(line):
            threads.append((head["name"] == "MainThread", []))
        elif threads and (match := _FRAME.fullmatch(line) or _SPY_FRAME.fullmatch(line)):
            number = match["line"]
            if len(threads[-1][1]) < _MOST_FRAMES:
                frame = StackFrame(
                    one_line(match["file"], 300), int(number) if number.isdigit() else 0, one_line(match["name"], 100)
                )
                threads[-1][1].append(frame)
        if len(threads) > _MOST_THREADS:
            break
    return [ThreadStack(main, tuple(frames)) for main, frames in threads]


def main_stack(threads: list[ThreadStack]) -> tuple[StackFrame, ...]:
    """Return the calls of the thread that runs the script: faulthandler lists it last where it did not take the signal."""
    for thread in threads:
        if thread.main and not _is_pulse(thread):
            return thread.frames
    return threads[-1].frames if threads else ()


def _is_pulse(thread: ThreadStack) -> bool:
    return any(frame.file.endswith("client/pulse.py") for frame in thread.frames)


def own_line(frames: tuple[StackFrame, ...]) -> str:
    """Return the innermost line of the user's own code, `file:line (function)`; of a library where there is none."""
    for frame in frames:
        if not frame.library:
            return str(frame)
    return str(frames[0]) if frames else ""


@dataclass
class StackNode:
    """A call, and which ranks stand below it.

    Attributes:
        frame: None for the root.
        ranks: that came here; `here`: those whose innermost call it is.
        below: the calls from here, in the order in which they were met.
    """

    frame: StackFrame | None = None
    ranks: list[int] = field(default_factory=list)
    here: list[int] = field(default_factory=list)
    below: dict[StackFrame, StackNode] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the tree as JSON: `file`, `line`, `function`, `ranks`, `below`."""
        about = (
            {}
            if self.frame is None
            else {"file": self.frame.file, "line": self.frame.line, "function": self.frame.name}
        )
        return {**about, "ranks": self.ranks, "below": [node.document() for node in self.sorted()]}

    def sorted(self) -> list[StackNode]:
        """Return the calls from here, those of most ranks first."""
        return sorted(self.below.values(), key=lambda node: (-len(node.ranks), node.ranks))


def merged(stacks: Mapping[int, tuple[StackFrame, ...]]) -> StackNode:
    """Return one tree of all ranks' stacks, the innermost call first in each, from the script's first line inwards."""
    root = StackNode()
    for rank in sorted(stacks):
        node = root
        node.ranks.append(rank)
        for frame in reversed(stacks[rank]):
            node = node.below.setdefault(frame, StackNode(frame))
            node.ranks.append(rank)
        node.here.append(rank)
    return root


def shown_tree(root: StackNode, most: int) -> dict[str, Any]:
    """Return the tree as pages show it, with at most so many calls: those of most ranks, and what they were called by.

    A call has `file`, `line`, `function`, `library` (no code of the user's), `count` and `ranks` (as text), `here` (how many stand in
    it), `below`, and `more`: how many calls from it are left out.
    """
    document = _shown(root)
    waiting: list[tuple[int, int, StackNode, dict[str, Any]]] = []
    met = 0
    for node in root.below.values():
        waiting.append((-len(node.ranks), met := met + 1, node, document))
    heapq.heapify(waiting)
    while waiting:
        _, _, node, above = heapq.heappop(waiting)
        if most <= 0:
            above["more"] += 1
            continue
        most -= 1
        shown = _shown(node)
        above["below"].append(shown)
        for below in node.below.values():
            heapq.heappush(waiting, (-len(below.ranks), met := met + 1, below, shown))
    return document


def _shown(node: StackNode) -> dict[str, Any]:
    frame = node.frame or StackFrame("", 0, "")
    return {
        "file": frame.file,
        "line": frame.line,
        "function": frame.name,
        "library": frame.library,
        "count": len(node.ranks),
        "ranks": few_ranges(node.ranks),
        "here": len(node.here),
        "below": [],
        "more": 0,
    }


def tree_lines(root: StackNode, *, every_frame: bool = False) -> Iterator[str]:
    """Yield the tree as text: who stands where, and how many.

    Calls within libraries are counted and not shown, but for the innermost of a rank, unless `every_frame`.
    """
    for node in root.sorted():
        yield from _lines(node, 0, 0, every_frame)


def _lines(node: StackNode, depth: int, hidden: int, every_frame: bool) -> Iterator[str]:
    frame = node.frame
    assert frame is not None
    shown = every_frame or not frame.library or bool(node.here) or len(node.below) > 1
    if shown:
        passed = f"   (through {hidden} call{'s' if hidden > 1 else ''} of libraries)" if hidden else ""
        who = f"{len(node.ranks)} {'ranks' if len(node.ranks) > 1 else 'rank'}: {ranges(node.ranks[:64])}"
        yield f"{'  ' * depth}{frame}  {who}{passed}"
    for below in node.sorted():
        yield from _lines(below, depth + shown, 0 if shown else hidden + 1, every_frame)
