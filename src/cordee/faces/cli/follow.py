"""Following a run in the terminal: its output as it comes, its progress below, and a question at Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cordee.core.draw.clean import one_line
from cordee.core.errors import CordeeError
from cordee.core.hostlist import fold_nodes
from cordee.core.units import format_duration, natural
from cordee.faces.cli.scheduler_state import ask, hold_words, state_word, words
from cordee.faces.report.completion import reported
from cordee.faces.report.segments import end_words
from cordee.job.submit import Standing, submitter_of
from cordee.job.submit.parent import open_children
from cordee.job.submit.settle import settle
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.log_tails import output_mask
from cordee.runs.logframes import Frame
from cordee.runs.logtail import LogTail
from cordee.runs.lookout import Lookout
from cordee.runs.state import RunState, called

_LONGEST_REPORT_POLL_S = 2.0
_REPORT_S, _GIVEN_BACK_S = 120.0, 10.0
_GONE_S = 5.0
_CALL_S = 1.0
_FIRST_STANDING_S = 1.0
_QUEUE_WORDS_S = 600.0
_LONGEST_LINE = 4096
_MOST_FINDINGS = 50
_DOING = {
    "queue": "waiting for nodes",
    "train": "training",
    "start": "starting",
    "vet": "vetting",
    "restart": "restarting",
    "held": "held in the queue",
    "suspended": "suspended",
}


class LineTail:
    """Turns the frames of all nodes' logs into lines, each with its rank and without keys; remembers how far it has read.

    Args:
        folder: the run's `logs/` folder.
        rank, node: read only this rank's or this node's output.
    """

    def __init__(self, folder: Path, rank: int | None = None, node: str | None = None) -> None:
        self._folder, self._rank = folder, rank
        self._tail = LogTail(folder, node=node)
        self._unreadable: set[str] = set()
        self._partial: dict[tuple[str, int, int, int], bytes] = {}
        self._mask = output_mask(RunFolder(folder.parent))

    def read(self, names: Collection[str] | None = None, *, everything: bool = True) -> list[tuple[int, int, bytes]]:
        """Return new whole lines `(rank, stream, line)`, in the order of their frames within each file; see `LogTail.read`."""
        lines = []
        for frame in self._tail.read(names, everything=everything):
            if self._rank is None or frame.rank == self._rank:
                lines += self._split(frame)
        for name, error in self._tail.troubles.items():
            if name not in self._unreadable:
                click.echo(f"cordee: {self._folder / name} cannot be read: {error.strerror}", err=True)
            self._unreadable.add(name)
        return lines

    def rest(self) -> list[tuple[int, int, bytes]]:
        """Return the last lines that have no line end."""
        left = [(key[2], key[3], self._mask.line(text, key, key[2])) for key, text in self._partial.items() if text]
        self._partial.clear()
        return left

    def _split(self, frame: Frame) -> list[tuple[int, int, bytes]]:
        key = (frame.file, frame.attempt, frame.rank, frame.stream)
        *whole, partial = (self._partial.get(key, b"") + frame.data).split(b"\n")
        if len(partial) > _LONGEST_LINE:
            whole.append(partial)
            partial = b""
        self._partial[key] = partial
        return [(frame.rank, frame.stream, self._mask.line(line, key, frame.rank)) for line in whole]


def shown(rank: int, line: bytes, world_size: int) -> str:
    """Return a line as the terminal shows it: with its rank where there are several, no control characters."""
    text = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
    text = "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
    if rank < 0:
        return f"[setup] {text}"
    return f"[{rank}] {text}" if world_size > 1 else text


class RunFollower:
    """Shows a run until it has ended or the person leaves it.

    Args:
        folder: the run's folder.
        quiet: print nothing (for `--json`).
        from_now: leave out what has been printed and has happened already.
    """

    def __init__(self, folder: RunFolder, *, quiet: bool = False, from_now: bool = False) -> None:
        self.folder = folder
        self._quiet = quiet
        self._place = submitter_of(folder)
        self._journal = JournalFollower(folder)
        self._lookout = Lookout(folder)
        self._state: RunState | None = None
        self._next_standing = time.monotonic() + _FIRST_STANDING_S
        self._gone_since: float | None = None
        self._queue_words = ("", 0.0)
        self._standing: Standing | None = None
        self._lines = LineTail(folder.logs)
        self._said = set(milestones(self.state())) if from_now else set()
        if from_now:
            self._lines.read()
        self._status = _StatusLine(folder) if not quiet and sys.stderr.isatty() else None

    def follow(self) -> RunState:
        """Return the run's last state: ended, or as it was when the person chose to detach."""
        while True:
            try:
                state = self._once()
                if state.ended:
                    self._finish(state)
                    return state
                self._look_after()
                time.sleep(self._lookout.pause_s)
            except KeyboardInterrupt:
                if self._asked() == "detach":
                    self._clear()
                    click.echo(f"detached; `cordee watch {self.folder.id}` comes back to it", err=True)
                    return self.state()

    def state(self) -> RunState:
        """Return the run's state now."""
        return self._journal.read()

    def _once(self) -> RunState:
        seen = self._lookout.look()
        if self._state is None or seen.journal:
            self._state = self.state()
        state = self._state
        if self._quiet:
            return state
        self._clear()
        for text in milestones(state):
            if text not in self._said:
                self._said.add(text)
                click.echo(f"cordee: {one_line(text)}", err=True)
        self._print(self._lines.read(seen.logs, everything=False), state)
        if self._status is not None:
            self._status.show(state, self._standing)
        return state

    def _print(self, lines: list[tuple[int, int, bytes]], state: RunState) -> None:
        for rank, stream, line in lines:
            click.echo(shown(rank, line, state.world_size), err=stream != 0)

    def _clear(self) -> None:
        if self._status is not None:
            self._status.clear()

    def _finish(self, state: RunState) -> None:
        if not self._quiet:
            self._clear()
            self._print(self._lines.read() + self._lines.rest(), state)
        most_s = _REPORT_S if self._place.keeps_place else _GIVEN_BACK_S
        deadline, pause = time.monotonic() + most_s, self._lookout.quickest_s
        while not reported(self.folder, state) and self._place.active(self.folder) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(1.2 * pause, _LONGEST_REPORT_POLL_S)

    def _look_after(self) -> None:
        """Say why the run waits, and notice when its place has let go of it without a word in the journal."""
        now = time.monotonic()
        if now < self._next_standing:
            return
        self._next_standing = now + self._lookout.seldom_s(self._place.poll_s)
        state = self._state
        if state is None or (state.state == "running" and self._lookout.heard_lately):
            self._gone_since, self._standing, self._queue_words = None, None, ("", 0.0)
            return  # its supervisor says that it lives
        standing = self._standing = ask(self._place, self.folder, state)
        self._tell_queue(standing, now)
        if standing.state != "gone":
            self._gone_since = None
            return
        if self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since > _GONE_S and not settle(self.folder, standing).ended and standing.job is None:
            raise CordeeError(
                "nothing runs this job any more: its keeper, supervisor and agents are gone",
                given=self.folder.id,
                next=f"`cordee resume {self.folder.id}` continues from its newest checkpoint",
            )
        self._state = self.state()

    def _tell_queue(self, standing: Standing, now: float) -> None:
        text, said = self._queue_words
        new = words(replace(standing, at=None, idle_since=None))
        if self._quiet or standing.state in ("running", "gone"):
            return
        if new != text or now - said > _QUEUE_WORDS_S:
            self._queue_words = (new, now)
            self._clear()
            click.echo(f"cordee: {one_line(words(replace(standing, at=None)))}", err=True)

    def _asked(self) -> str:
        self._clear()
        if not sys.stdin.isatty():
            request_cancel(self.folder, by="Ctrl-C")
            return "cancel"
        click.echo(
            "\nThe run continues. [d]etach and leave it running, [c]ancel it, or Enter to keep watching: ",
            nl=False,
            err=True,
        )
        try:
            answer = sys.stdin.readline().strip().lower()
        except KeyboardInterrupt:
            answer = "c"
        if answer.startswith("c"):
            click.echo("Cancelling; asking ranks to save first...", err=True)
            request_cancel(self.folder, by="Ctrl-C")
            return "cancel"
        return "detach" if answer.startswith("d") else "stay"


class _StatusLine:
    """One line at the bottom of the terminal: step, a bar, what the ranks log."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._visible = False

    def show(self, state: RunState, standing: Standing | None) -> None:
        """Draw the line."""
        text = progress_text(state, standing)
        sys.stderr.write("\r\x1b[2K" + text)
        sys.stderr.flush()
        self._visible = True

    def clear(self) -> None:
        """Take the line away so that others can be printed."""
        if self._visible:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._visible = False


def progress_text(state: RunState, standing: Standing | None = None) -> str:
    """Return one line on how far a run is: `training  ━━━━────  120/300 steps  attempt 1`."""
    phase = state.phases[-1].name if state.phases else "queue"
    word = state_word(state.state, standing)
    phase = {"queued": "queue", "held": "held", "suspended": "suspended"}.get(word, phase)
    parts = [_DOING.get(phase, phase)]
    if state.step is not None and state.total:
        done = max(0, min(24, round(24 * (state.step + 1) / state.total)))
        parts.append("━" * done + "─" * (24 - done))
        parts.append(f"{min(state.step + 1, state.total)}/{state.total} steps")
    elif state.step is not None:
        parts.append(f"step {state.step}")
    if state.restarts:
        parts.append(f"{state.restarts} restarts")
    since = state.phases[-1].start if phase == "queue" and state.phases else state.started_at
    if since is not None:
        parts.append(format_duration(max(0.0, time.time() - since)))
    return "  ".join(parts)


def milestones(state: RunState) -> list[str]:
    """Return the sentences that are worth a line in the terminal, in order; each stays the same once said."""
    texts = []
    last_of = {attempt.get("segment"): attempt for attempt in state.attempts}
    if state.vetting is not None:
        texts += _what_was_not_well(state)
    for node in state.nodes:
        if node.role in ("excluded", "lost"):
            texts.append(f"{node.node} is left out: {node.reason or node.verdict}")
    for missing in (state.vetting or {}).get("unavailable", []):
        texts.append(f"{missing['check']} is unavailable here: {missing['reason']}")
    for attempt in state.attempts:
        number = attempt["attempt"]
        world = f"{state.world_size} rank{'' if state.world_size == 1 else 's'}" if number == state.attempt else ""
        resumed = _resumed(attempt)
        if number == 1 and world:
            active = list(dict.fromkeys(rank.node for rank in state.ranks))
            texts.append(f"{world} on {', '.join(active[:4])}{' ...' if len(active) > 4 else ''}")
        elif number > 1:
            texts.append(f"attempt {number} {resumed or 'starts the script again: no complete checkpoint was seen'}")
        if number == 1 and resumed:
            texts.append(f"attempt 1 {resumed}")
        if attempt.get("outcome") in ("failed", "node_lost", "superseded"):
            texts.append(f"attempt {number} ended: {attempt.get('reason')}")
        if attempt is last_of.get(attempt.get("segment")):
            texts += [
                f"segment {segment.number} ended: {end_words(segment)}"
                for segment in state.segment_states
                if segment.number == attempt.get("segment") and segment.next
            ]
    texts += hold_words(state)
    for child in state.children:
        if child["state"] == "placed":
            texts.append(f"{child['name']} begins: {child['run']}")
        elif child["state"] == "skipped":
            texts.append(f"{child['name']} is not run again: {child['text']}")
        elif child["state"] == "finished":
            texts.append(f"{child['name']} finished")
    grave = [finding for finding in state.findings if finding.severity != "info"]
    texts += [
        f"{one.severity}: {one.text}{f'; next: {one.next}' if one.next else ''}" for one in grave[:_MOST_FINDINGS]
    ]
    if len(grave) > _MOST_FINDINGS:
        texts.append(f"there are more findings: `cordee show {state.run}`")
    return texts


def _resumed(attempt: dict[str, Any]) -> str:
    """Return the checkpoint that an attempt was given, and another run's as such; empty when there was none."""
    if attempt.get("checkpoint") is None:
        return ""
    step, other = attempt.get("resume_step"), attempt.get("other_run")
    what = f"from step {step}" if step is not None else f"from {attempt['checkpoint']}"
    if other is None:
        return what
    whose = f"run {other['run']}" if other.get("run") else "an unknown run"
    return f"{what} of {whose}: {attempt.get('checkpoint_path')}"


def _what_was_not_well(state: RunState) -> list[str]:
    """Return what checks found against nodes; nodes of which the same is to be said share a sentence."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(state.nodes, key=lambda node: natural(node.node)):
        for result in node.results:
            if result["status"] in ("fail", "unknown", "warn"):
                said = f"{called(result)} {result['status']}: {result['evidence']}"
                nodes.setdefault(said, []).append(node.node)
    return [f"{fold_nodes(names)}: {said}" for said, names in nodes.items()]


def request_cancel(folder: RunFolder, *, by: str, now: bool = False) -> None:
    """Ask a run's supervisor, and those of its children, to end it; the wish is in the journal first, so a restarted supervisor knows it too."""
    from cordee.job.terminal.requests import leave_request

    client_journal(folder.journal).append("cancel_requested", by=by)
    for child in open_children(folder):
        request_cancel(child, by=by, now=now)
    leave_request(folder, {"request": "cancel", "by": by, "now": now})
