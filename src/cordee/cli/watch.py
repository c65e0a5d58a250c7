"""The live terminal view of a run."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cordee.cli.standing import stand, words
from cordee.cli.watch_reading import JournalTail, OutputTail, UsageTail
from cordee.insight.phases import phase_shares
from cordee.report.clean import one_line, ranges
from cordee.report.text import failure_text
from cordee.runs.folder import RunFolder
from cordee.runs.state import NodeState, RunState
from cordee.runs.tail import LiveEvents
from cordee.units import format_duration, format_size

_REFRESH_S = 0.5
_STANDING_S = 5.0
_MOST_LINES = 60
_MOST_VALUES = 240
_PIPE_HEIGHT = 50
_SPARKS = "▁▂▃▄▅▆▇█"
_RATES = ("_per_s", "_per_second", "throughput")
_STYLES = {"finished": "green", "running": "cyan", "queued": "yellow", "failed": "bold red", "cancelled": "yellow"}
_STYLES |= {
    "healthy": "green",
    "suspect": "yellow",
    "bad": "bold red",
    "unknown": "yellow",
    "lost": "red",
    "excluded": "red",
}


def watch(folder: Path, *, once: bool = False) -> None:
    """Show a run until it has ended or q is pressed; with `once` print one picture. The run itself is not touched.

    Raises:
        RunFolderError: the journal cannot be read, for instance because the folder was deleted.
    """
    view = View(RunFolder(folder))
    console = Console()
    view.read()
    if once:
        console.print(view.picture(console.height if console.is_terminal else _PIPE_HEIGHT))
        return
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(view.picture(console.height), refresh=True)
            if view.state.ended or pressed(_REFRESH_S):
                break
            view.read()
    console.print(view.picture(console.height))


class View:
    """What the screen shows; reads only what is new since the last time.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.state = RunState()
        self._folder = folder
        self._journal = JournalTail(folder)
        self._events = LiveEvents(folder.telemetry)
        self._usage = UsageTail(folder.telemetry)
        self._output = OutputTail(folder.logs)
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=_MOST_LINES)
        self._last_of: dict[int, bytes] = {}
        self._steps: dict[int, int] = {}
        self._values: dict[str, deque[float]] = {}
        self._standing, self._next_standing = "", 0.0
        self._shown_rank: int | None = None
        self._attempt = 0

    def read(self) -> RunState:
        """Read what is new and return the run's state."""
        self.state = self._journal.read()
        self._ask_scheduler()
        if self.state.attempt != self._attempt:
            self._attempt = self.state.attempt
            self._steps.clear()
        for event in self._events.read():
            if event.attempt == self.state.attempt and event.step is not None:
                self._steps[event.rank] = event.step
            self._shown_rank = event.rank if self._shown_rank is None else min(self._shown_rank, event.rank)
            if event.rank == self._shown_rank:
                for name, value in event.values.items():
                    self._values.setdefault(name, deque(maxlen=_MOST_VALUES)).append(value)
        self._usage.read()
        for rank, line in self._output.read():
            self._messages.append((rank, line))
            self._last_of[rank] = line
        return self.state

    def _ask_scheduler(self) -> None:
        """Learn why the run waits, and that its job is gone when nobody in it could say so."""
        if self.state.ended or time.monotonic() < self._next_standing:
            return
        self._next_standing = time.monotonic() + _STANDING_S
        state, standing = stand(self._folder, self.state)
        waits = standing is not None and state.state == "queued"
        self._standing = words(standing) if standing is not None and waits else ""
        if state.ended:
            self.state = self._journal.read()

    def picture(self, height: int) -> RenderableType:
        """Return the whole screen, at most `height` rows; what does not fit is counted, the worst comes first."""
        state = self.state
        head, now, troubles = self._head(), self._now()[: max(0, height - 12)], self._troubles()[: max(0, height - 15)]
        foot = [] if state.ended else [Text("q leaves; the run goes on", style="dim")]
        room = height - len(head) - len(now) - len(troubles) - len(foot) - 3  # two headings, one rule
        most_nodes = min(len(state.nodes), max(1, room // 4))
        room -= most_nodes + (len(state.nodes) > most_nodes)
        lines = max(1, room // 2)
        most_ranks = min(len(state.ranks), max(1, room - lines - 1))
        lines = max(1, room - most_ranks - (len(state.ranks) > most_ranks))
        parts = [*head, *now]
        parts += [self._nodes(most_nodes)] if state.nodes else []
        parts += [self._ranks(most_ranks)] if state.ranks else []
        parts += troubles
        parts += [Rule("output", align="left", style="dim"), *self._shown_lines(lines), *foot]
        return Group(*parts)

    def _head(self) -> list[RenderableType]:
        state = self.state
        head = _line(self._folder.id, "bold")
        head.append("  ").append(state.state, _STYLES.get(state.state, ""))
        if state.text:
            head.append(f"  {one_line(state.text)}")
        spent = "  ".join(f"{share.name} {format_duration(share.seconds)}" for share in phase_shares(state))
        job = f"  job {state.job}" if state.job else ""
        counts = f"segment {state.segments}  attempt {state.attempt}  restarts {state.restarts}{job}"
        lines: list[RenderableType] = [head, _line(counts, "dim"), _line(spent, "dim")]
        if state.state == "queued" and self._standing:
            lines.append(_line(f"{self._standing}; `cordee advise` says more", "yellow"))
        return lines

    def _now(self) -> list[RenderableType]:
        """Return the bar of steps, and what a rank logs now with how it went."""
        state = self.state
        step = min(self._steps.values(), default=state.step)
        parts: list[RenderableType] = []
        if step is not None:
            table = Table.grid(padding=(0, 2))
            cells: list[RenderableType] = [_line(f"step {step}" + (f" of {state.total}" if state.total else ""))]
            if state.total:
                cells.insert(0, ProgressBar(total=state.total, completed=min(step + 1, state.total), width=40))
            table.add_row(*cells)
            parts.append(table)
        rates = [name for name in self._values if name.endswith(_RATES)]
        for name in [name for name in ("loss", *sorted(rates)[:2]) if name in self._values]:
            values = self._values[name]
            parts.append(_line(f"{sparkline(list(values)):40}  {one_line(name, 30)} {values[-1]:.5g}"))
        return parts

    def _nodes(self, most: int) -> RenderableType:
        table = _table("node", "verdict", "role", "ranks", "why")
        ordered = sorted(self.state.nodes, key=_worst_node)
        for node in ordered[:most]:
            table.add_row(
                _line(node.node),
                _line(node.verdict, _STYLES.get(node.verdict, "")),
                _line(node.role, _STYLES.get(node.role, "")),
                _line(ranges(node.ranks)),
                _line(_why(node), "dim"),
            )
        if len(ordered) > most:
            table.add_row(_line(f"and {len(ordered) - most} more", "dim"))
        return table

    def _ranks(self, most: int) -> RenderableType:
        table = _table("rank", "node", "status", "step", "cores", "memory", "last message")
        silent_last = 2 * len(self._steps) <= len(self.state.ranks)  # as when only rank 0 logs
        unlogged = sys.maxsize if silent_last else -1
        ordered = sorted(
            self.state.ranks,
            key=lambda rank: (rank.status != "failed", self._steps.get(rank.rank, unlogged), rank.rank),
        )
        for rank in ordered[:most]:
            used = self._usage.of.get(rank.rank, {})
            cores, memory = used.get("cpu_cores_ratio"), used.get("memory_rss_bytes")
            table.add_row(
                str(rank.rank),
                _line(rank.node),
                _line(rank.status, _STYLES.get(rank.status, "")),
                str(self._steps.get(rank.rank, "-")),
                "-" if cores is None else f"{cores:.2f}",
                "-" if memory is None else format_size(memory),
                _line(_printed(self._output.partial.get(rank.rank) or self._last_of.get(rank.rank, b""))),
            )
        if len(ordered) > most:
            table.add_row("", _line(f"and {len(ordered) - most} further on", "dim"))
        return table

    def _troubles(self) -> list[RenderableType]:
        lines = [f"{finding.severity}: {finding.text}" for finding in self.state.findings[-3:]]
        lines += [f"attempt {failure.get('attempt')}: {failure_text(failure)}" for failure in self.state.failures[-3:]]
        return [_line(text, "yellow") for text in lines]

    def _shown_lines(self, most: int) -> list[RenderableType]:
        several = self.state.world_size > 1
        names = {rank: "[set-up] " if rank < 0 else f"[{rank}] " if several else "" for rank, _ in self._messages}
        return [_line(names[rank] + _printed(line)) for rank, line in list(self._messages)[-most:]]


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return the last values as a line of blocks, from the least to the greatest; values that are no numbers are blank."""
    values = values[-width:]
    known = [value for value in values if _finite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((value - low) * scale)] if _finite(value) else " " for value in values)


def _finite(value: float) -> bool:
    return value == value and abs(value) != float("inf")


def _line(text: str, style: str = "") -> Text:
    """Return one row of the screen, cut at its edge; nothing in it is read as markup or by the terminal."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis", end="\n")


def _printed(line: bytes) -> str:
    """Return what a terminal would show of a line that was drawn over with carriage returns."""
    return one_line(line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace"))


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in names[:-1]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    table.add_column(names[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _worst_node(node: NodeState) -> tuple[bool, bool, int, str]:
    return node.role in ("active", "spare"), node.verdict == "healthy", len(node.node), node.node


def _why(node: NodeState) -> str:
    wanting = [result for result in node.results if result.get("status") not in ("pass", "skip")]
    return node.reason or "; ".join(f"{result.get('check')}: {result.get('evidence')}" for result in wanting)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds and returns whether q was pressed; the terminal is as before afterwards."""
    if not sys.stdin.isatty():
        with contextlib.suppress(KeyboardInterrupt):
            yield _sleep
        return
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return False
        keys = os.read(descriptor, 64)
        return not keys or any(key in b"qQ\x03\x04" for key in keys)

    try:
        tty.setcbreak(descriptor)
        yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
