"""The live terminal view of a run."""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cordee.cli.follow import LineTail, shown
from cordee.insight.phases import phase_shares
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.reader import Run
from cordee.runs.state import RunState, replay
from cordee.units import format_duration, format_size

_REFRESH_S = 0.5
_MOST_LINES = 12
_SPARKS = "▁▂▃▄▅▆▇█"
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
    """Show a run until it has ended or q is pressed; with `once` print one picture. The run itself is not touched."""
    view = View(RunFolder(folder))
    console = Console()
    if once:
        view.read()
        console.print(view.picture(console.height if console.is_terminal else 50))
        return
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            state = view.read()
            live.update(view.picture(console.height), refresh=True)
            if state.ended or pressed(_REFRESH_S):
                break
    console.print(view.picture(console.height))


class View:
    """What the screen shows; reads only what is new since the last time.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._run = Run(folder)
        self._lines = LineTail(folder.logs)
        self._messages: deque[tuple[int, int, bytes]] = deque(maxlen=_MOST_LINES)
        self._last_of: dict[int, str] = {}
        self._steps: dict[int, int] = {}
        self._values: dict[str, deque[float]] = {}
        self._shown_rank: int | None = None
        self._usage: dict[int, tuple[float, float]] = {}
        self.state = RunState()

    def read(self) -> RunState:
        """Read what is new and return the run's state."""
        self.state = replay(read_journal(self._folder.journal), self._folder.id)
        for rank, stream, line in self._lines.read():
            self._messages.append((rank, stream, line))
            self._last_of[rank] = shown(rank, line, 1)
        for event in self._run.last_events():
            if event.attempt == self.state.attempt and event.step is not None:
                self._steps[event.rank] = event.step
            self._shown_rank = event.rank if self._shown_rank is None else min(self._shown_rank, event.rank)
            if event.rank == self._shown_rank:
                for name, value in event.values.items():
                    self._values.setdefault(name, deque(maxlen=240)).append(value)
        self._read_usage()
        return self.state

    def picture(self, height: int) -> RenderableType:
        """Return the whole screen, at most `height` rows."""
        state = self.state
        room = max(4, height - 16 - len(state.nodes[:6]))
        parts: list[RenderableType] = [self._head(), self._progress(), self._nodes(), self._ranks(max(3, room // 2))]
        if state.findings or len(state.attempts) > 1 or state.failures:
            parts.append(self._troubles())
        texts = [shown(rank, line, state.world_size) for rank, _, line in list(self._messages)[-max(3, room // 2) :]]
        parts.append(
            Panel(Text("\n".join(texts), no_wrap=True, overflow="ellipsis"), title="output", title_align="left")
        )
        if not state.ended:
            parts.append(Text("q leaves; the run goes on", style="dim"))
        return Group(*parts)

    def _head(self) -> RenderableType:
        state = self.state
        head = Text.assemble((self._folder.id, "bold"), "  ", (state.state, _STYLES.get(state.state, "")))
        if state.text:
            head.append(f"  {state.text}")
        spent = "  ".join(f"{share.name} {format_duration(share.seconds)}" for share in phase_shares(state))
        head.append(
            f"\nsegment {state.segments}  attempt {state.attempt}  restarts {state.restarts}  {spent}", style="dim"
        )
        return head

    def _progress(self) -> RenderableType:
        state = self.state
        step = min(self._steps.values(), default=state.step)
        table = Table.grid(padding=(0, 2))
        if step is not None and state.total:
            table.add_row(
                ProgressBar(total=state.total, completed=min(step + 1, state.total), width=40),
                f"step {step} of {state.total}",
            )
        elif step is not None:
            table.add_row(f"step {step}")
        for name in [name for name in ("loss", "tokens_per_s", "samples_per_s") if name in self._values]:
            values = self._values[name]
            table.add_row(sparkline(list(values)), f"{name} {values[-1]:.5g}")
        return table

    def _nodes(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("node", "verdict", "role", "ranks"):
            table.add_column(name)
        nodes = sorted(self.state.nodes, key=lambda node: (node.role == "active", node.node))[:6]
        for node in nodes:
            verdict, role = (
                Text(node.verdict, _STYLES.get(node.verdict, "")),
                Text(node.role, _STYLES.get(node.role, "")),
            )
            table.add_row(node.node, verdict, role, ", ".join(map(str, node.ranks[:16])))
        hidden = len(self.state.nodes) - len(nodes)
        if hidden > 0:
            table.add_row(f"and {hidden} more", "", "", "")
        return table

    def _ranks(self, most: int) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("rank", "node", "status", "step", "cores", "memory", "last message"):
            table.add_column(name, no_wrap=True)
        ordered = sorted(
            self.state.ranks, key=lambda rank: (rank.status != "failed", self._steps.get(rank.rank, -1), rank.rank)
        )
        for rank in ordered[:most]:
            cores, memory = self._usage.get(rank.rank, (float("nan"), float("nan")))
            table.add_row(
                str(rank.rank),
                rank.node,
                Text(rank.status, _STYLES.get(rank.status, "")),
                str(self._steps.get(rank.rank, "-")),
                "-" if cores != cores else f"{cores:.2f}",
                "-" if memory != memory else format_size(memory),
                Text(self._last_of.get(rank.rank, ""), overflow="ellipsis"),
            )
        if len(ordered) > most:
            table.add_row("", f"and {len(ordered) - most} further on", "", "", "", "", "")
        return table

    def _troubles(self) -> RenderableType:
        lines = [f"{finding.severity}: {finding.text}" for finding in self.state.findings[-3:]]
        ended = [entry for entry in self.state.attempts if entry.get("outcome") not in (None, "finished")]
        lines += [f"attempt {entry['attempt']} {entry['outcome']}: {entry.get('reason')}" for entry in ended[-3:]]
        return Text("\n".join(lines), style="yellow")

    def _read_usage(self) -> None:
        if "rank" not in self._run.groups():
            return
        grid = self._run.grid("rank", ["cpu_cores_ratio", "memory_rss_bytes"], start=time.time() - 5)
        for place, device in enumerate(grid.devices):
            columns = [grid.values[index, :, place] for index in range(len(grid.metrics))]
            known = [column[column == column] for column in columns]
            if len(known) == 2 and all(len(column) for column in known):
                self._usage[int(device)] = (float(known[0][-1]), float(known[1][-1]))


def sparkline(values: list[float], width: int = 40) -> str:
    """Return the last values as a line of blocks, from the least to the greatest; values that are no numbers are blank."""
    values = values[-width:]
    known = [value for value in values if value == value and abs(value) != float("inf")]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((value - low) * scale)] if value in known else " " for value in values)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds and returns whether q was pressed; the terminal is as before afterwards."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "\x03")

    try:
        tty.setcbreak(descriptor)
        yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
