"""What was collected of one hang, as it lies in the run's folder: RUN/hangs/N, and the dumps in RUN/flight/attempt-A."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.draw.clean import one_line
from cordee.core.errors import UsageError
from cordee.machine.foreign_files import parse_json, read_regular
from cordee.systems.explain.hang.stacks import StackFrame, main_stack, read_stacks

_FILE_BYTES = 4 << 20
_RANK = re.compile(r"rank-(\d{1,7})\.json")
_MOST_GROUPS, _MOST_PROCESSES, _MOST_LINES = 64, 64, 50


class StandingGroup(NamedTuple):
    """Where a rank is in a process group: its last collective that was called, and the last one that has ended."""

    size: int
    enqueued: int
    completed: int

    @property
    def waits(self) -> bool:
        """Whether a collective of the group has begun and not ended on this rank."""
        return self.enqueued > max(self.completed, 0)


class RankChild(NamedTuple):
    """A process that a rank has started; `state` is the kernel's letter."""

    pid: int
    name: str
    state: str
    wchan: str


class StandingRank(NamedTuple):
    """What is known of one rank; what is not known is empty or None.

    Attributes:
        stands_s, idle_s: seconds without progress, and without any other sign of activity.
        why: `stopped`, `silent` or empty, as its agent says.
        state: the letter that the kernel has for the process.
        wchan, waits_for: where its main thread waits in the kernel, and the file that it waits for.
        beat_age_s: since its interpreter last ran another thread.
        frames: of its main thread, the innermost call first.
        last_seen_at: the line at which its main thread was seen last, up to a second before it stood.
        collected: whether its node has answered.
    """

    rank: int
    node: str
    stands_s: float = 0.0
    idle_s: float = 0.0
    why: str = ""
    pid: int | None = None
    state: str = ""
    wchan: str = ""
    waits_for: str = ""
    step: int | None = None
    optimizer_steps: int | None = None
    beat_age_s: float | None = None
    processor_s: float | None = None
    groups: Mapping[str, StandingGroup] = {}
    children: tuple[RankChild, ...] = ()
    frames: tuple[StackFrame, ...] = ()
    last_seen_at: str = ""
    collected: bool = False


class StandingNode(NamedTuple):
    """What is known of a node: its kernel's words, file systems without room, and those that do not answer."""

    node: str
    kernel_log: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    hanging: tuple[str, ...] = ()


class Hang(NamedTuple):
    """One hang.

    Attributes:
        number: counts from 1 over the run.
        since, declared_at: UTC seconds.
        after_s: how long ranks had to stand.
        asked: somebody wanted to know where ranks stand; whether the run hung is not said.
        quiet: no rank has ever told of a step, and nobody has said how long it may do nothing.
        ended: ranks that have ended in this attempt, with their codes.
        world: how many ranks the attempt has.
    """

    number: int
    attempt: int
    since: float
    declared_at: float
    after_s: float
    action: str
    busy: bool
    asked: bool
    world: int
    ranks: Mapping[int, StandingRank]
    ended: Mapping[int, int | None]
    nodes: Mapping[str, StandingNode]
    quiet: bool = False


def hang_numbers(run: Path) -> list[int]:
    """Return the numbers of a run's hangs, in their order."""
    try:
        names = [path.name for path in (run / "hangs").iterdir()]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and len(name) < 7)


class HangSummary(NamedTuple):
    """One hang in short, without what was collected of each rank.

    Attributes:
        standing: how many ranks stood; ended: how many had ended before. For the others see `Hang`.
    """

    number: int
    attempt: int
    since: float
    declared_at: float
    after_s: float
    action: str
    busy: bool
    asked: bool
    world: int
    standing: int
    ended: int


def summary_of(run: Path, number: int) -> HangSummary | None:
    """Return a hang in short, None where it cannot be read: it may still be collected."""
    told = _document(run / "hangs" / str(number) / "hang.json")
    if told is None:
        return None
    standing, ended = len(_table(told.get("ranks"))), len(_table(told.get("ended")))
    return HangSummary(*_head(number, told), _whole(told.get("world")) or standing + ended, standing, ended)


def _head(number: int, told: dict[str, Any]) -> tuple[int, int, float, float, float, str, bool, bool]:
    return (
        number,
        _whole(told.get("attempt")) or 0,
        _number(told.get("since")),
        _number(told.get("declared_at")),
        _number(told.get("after_s")),
        one_line(told.get("action", ""), 20),
        told.get("busy") is True,
        told.get("asked") is True,
    )


def read_hang(run: Path, number: int) -> Hang:
    """Return what was collected of a hang; files that cannot be read count as not collected.

    Raises:
        UsageError: there is no such hang.
    """
    folder = run / "hangs" / str(number)
    told = _document(folder / "hang.json")
    if told is None:
        raise UsageError("nothing was collected of this hang", given=number, allowed=hang_numbers(run))
    ranks = {}
    for key, values in _table(told.get("ranks")).items():
        if key.isdecimal() and isinstance(values, list) and len(values) >= 4:
            rank = int(key)
            ranks[rank] = StandingRank(
                rank, one_line(values[0], 200), _number(values[1]), _number(values[2]), one_line(values[3], 50)
            )
    nodes = {}
    for path in _listed(folder):
        if match := _RANK.fullmatch(path.name):
            rank = int(match[1])
            ranks[rank] = _rank(path, ranks.get(rank, StandingRank(rank, "")))
        elif path.name.startswith("node-") and path.suffix == ".json":
            node = _node(path)
            nodes[node.node] = node
    ended = {int(key): _whole(code) for key, code in _table(told.get("ended")).items() if key.isdecimal()}
    return Hang(
        *_head(number, told),
        _whole(told.get("world")) or len(ranks) + len(ended),
        ranks,
        ended,
        nodes,
        told.get("quiet") is True,
    )


def _rank(path: Path, known: StandingRank) -> StandingRank:
    told = _document(path)
    stacks = _text(path.with_suffix(".stacks"))
    known = known._replace(frames=main_stack(read_stacks(stacks)), collected=bool(told or stacks))
    if told is None:
        return known
    beat, processor = told.get("beat_age_s"), told.get("processor_s")
    return known._replace(
        node=known.node or one_line(told.get("node", ""), 200),
        why=known.why or one_line(told.get("why", ""), 50),
        pid=_whole(told.get("pid")),
        state=one_line(told.get("state", ""), 1),
        wchan=one_line(told.get("wchan") or "", 100),
        waits_for=one_line(told.get("open") or "", 300),
        last_seen_at=one_line(told.get("last_seen_at") or "", 300),
        step=_whole(told.get("step")),
        optimizer_steps=_whole(told.get("optimizer_steps")),
        beat_age_s=None if beat is None else _number(beat),
        processor_s=None if processor is None else _number(processor),
        groups=dict(_groups(told.get("groups"))),
        children=tuple(_children(told.get("children"))),
    )


def _groups(told: Any) -> Iterator[tuple[str, StandingGroup]]:
    for one in _list(told)[:_MOST_GROUPS]:
        about = _table(one)
        size, enqueued, completed = (_whole(about.get(key)) for key in ("size", "enqueued", "completed"))
        if enqueued is not None:
            yield (
                one_line(about.get("name", ""), 100),
                StandingGroup(size or 0, enqueued, -1 if completed is None else completed),
            )


def _children(told: Any) -> Iterator[RankChild]:
    for one in _list(told)[:_MOST_PROCESSES]:
        about = _table(one)
        texts = (one_line(about.get(key) or "", 100) for key in ("name", "state", "wchan"))
        yield RankChild(_whole(about.get("pid")) or 0, *texts)


def _node(path: Path) -> StandingNode:
    told = _document(path) or {}
    full, hanging, said = (
        tuple(one_line(one, 300) for one in _list(told.get(key))[:_MOST_LINES])
        for key in ("full", "hanging", "kernel_log")
    )
    return StandingNode(one_line(told.get("node") or path.stem[5:], 200), said, full, hanging)


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = parse_json(read_regular(path, limit_bytes=_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _text(path: Path) -> str:
    try:
        return read_regular(path, limit_bytes=_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
