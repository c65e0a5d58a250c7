"""Ranks that srun starts, so that an MPI library finds the process manager it was built for.

One srun, started by the agent of the first node, places `cordee.control.launch.srun.rank` on every node. Each of those
meets the agent of its own node (see handover), gets its command and environment there, and runs it as its child. So every
agent sees its own ranks' output byte for byte, their pids, and how each of them ended, exactly as if it had forked them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional, Sequence

from cordee.control.agent.output import LastOutput
from cordee.control.launch._base import Launch, LaunchHost, RankCommand
from cordee.control.launch.srun.command import srun_command, srun_environment
from cordee.control.launch.srun.handover import ERR, OUT, WORD, Handover, LastWord, RankOrder, Runs, Word, word_of
from cordee.control.world import AttemptWorld
from cordee.machine.processes import tree as processes
from cordee.machine.tasks.streams import Readers
from cordee.machine.tasks.task import STDERR, STDOUT, Task, TaskExit
from cordee.runs.plan import RunPlan

LAUNCHER = -1
_DRAIN_S = 0.5
_AFTER_SRUN_S = 2.0
_SRUN_GRACE_S = 5.0
_SETTLE_POLL_S = 0.02


@dataclass
class _Rank:
    command: RankCommand
    meeting: Handover
    marker: str
    began: float
    said: Optional[Readers] = None
    printed: Optional[Readers] = None
    words: bytes = b""
    pid: Optional[int] = None
    launcher: Optional[int] = None
    last_word: Optional[LastWord] = None
    reason: str = "exited"
    text: str = ""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    ended: bool = False


class SrunLaunch(Launch):
    """Has srun start the ranks; see Launch.

    Args:
        host: the agent.
        plan: the run's.
        world: the attempt's world as this node sees it.
    """

    def __init__(self, host: LaunchHost, plan: RunPlan, world: AttemptWorld) -> None:
        super().__init__(host, world)
        self._step, self._connect_s = plan.step, plan.timeouts.connect_s
        self._loop = asyncio.get_running_loop()
        self._ranks: dict[int, _Rank] = {}
        self._abandoned = self._over = self._paused = False
        self._said = LastOutput()
        self._timers: list[asyncio.TimerHandle] = []

    def start(self, ranks: Sequence[RankCommand]) -> None:
        """Prepare the ranks of this node, and start srun if this is the first one."""
        for command in ranks:
            self._prepare(command)
        self._later(self._connect_s, self._nobody_came)
        if self.world.node_rank == 0 and ranks:
            first = ranks[0]
            environment = srun_environment(first.env if first.outside is None else first.outside)
            argv = srun_command(self._step, self.world, self.host.meeting_place.parent)
            task = Task(self._task, argv, environment, first.cwd, group=self._task, elsewhere=True)
            self.host.watched.run_task(task, self._srun_ended, output=self._srun_said)

    def signal(self, number: int) -> None:
        """Send a signal to the main process of each rank."""
        processes.kill_all(self.pids().values(), number)

    def stop(self, grace_s: float) -> None:
        """End the ranks of this node; srun ends with the last rank of all nodes, or is made to."""
        living = self._living()
        if not living:
            return
        self._over = True
        self._call_off()
        self._later(grace_s + _AFTER_SRUN_S, self.host.watched.tasks.stop, self._task, _SRUN_GRACE_S)
        for entry in living:
            if entry.reason == "exited" and entry.last_word is None:
                entry.reason = "stopped"
            if entry.pid is None:
                self._finish(entry)
            elif grace_s > 0:
                _terminate(entry.pid)
                entry.timers.append(self._loop.call_later(grace_s, self._kill, entry))
            else:
                self._kill(entry)

    def abandon(self) -> None:
        """Kill the ranks of this node and srun, and report nothing more."""
        self._abandoned = self._over = True
        self._call_off()
        for timer in self._timers:
            timer.cancel()
        for entry in self._living():
            processes.kill_all(self._processes_of(entry))
            self._finish(entry)
        self.host.watched.tasks.stop(self._task, 0.0)

    async def settle(self, most_s: float) -> None:
        """Wait for srun, which ends a moment after its ranks."""
        deadline = time.monotonic() + most_s
        while self.host.watched.tasks.running(self._task) and time.monotonic() < deadline:
            await asyncio.sleep(_SETTLE_POLL_S)

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank that runs."""
        return {rank: entry.pid for rank, entry in self._ranks.items() if entry.pid is not None and not entry.ended}

    def pause_output(self, paused: bool) -> None:
        """Stop or go on reading the ranks' FIFOs: they fill up and the ranks wait, nothing is dropped."""
        if paused == self._paused:
            return
        self._paused = paused
        for entry in self._living():
            if entry.printed:
                entry.printed.pause(paused)

    # A rank's life

    def _prepare(self, command: RankCommand) -> None:
        rank = command.rank
        marker = f"{self.host.watched.tasks.owner}/rank-{self.world.attempt}-{rank}"
        meeting = Handover(self.host.meeting_place, self.world.attempt, rank)
        entry = self._ranks[rank] = _Rank(command, meeting, marker, time.monotonic())
        try:
            fifos = meeting.open_for_reading()
            entry.said = Readers(
                {fifos[WORD]: 0}, partial(self._take_words, entry), partial(self._launcher_gone, entry)
            )
            entry.said.pause(False)
            output = partial(self.host.rank_output, self.world, rank)
            entry.printed = Readers({fifos[OUT]: STDOUT, fifos[ERR]: STDERR}, output, partial(self._silent, entry))
            entry.printed.pause(self._paused)
            env = dict(command.env, **{processes.MARKER: marker})
            meeting.write_order(RankOrder(command.argv, env, command.cwd, command.outside is not None))
        except OSError as error:
            entry.reason, entry.text = "not_started", f"the rank cannot be prepared on {self.world.node}: {error}"
            self._finish(entry)

    def _take_words(self, entry: _Rank, stream: int, data: bytes) -> None:
        entry.words += data
        while b"\n" in entry.words:
            line, _, entry.words = entry.words.partition(b"\n")
            self._word(entry, word_of(line))

    def _silent(self, entry: _Rank, descriptor: int) -> None:
        os.close(descriptor)
        if not entry.printed and not entry.said:
            self._finish(entry)

    def _word(self, entry: _Rank, word: Word) -> None:
        """Take what a rank's launcher says."""
        if not isinstance(word, Runs):
            entry.last_word = word
            if entry.pid is None:
                entry.reason = "not_started"
            return
        entry.pid, entry.launcher, entry.began = word.pid, word.launcher, time.monotonic()
        if self._over:
            self._kill(entry)
        else:
            self.host.rank_started(self.world, entry.command.rank, entry.pid)

    def _launcher_gone(self, entry: _Rank, descriptor: int) -> None:
        """The rank has ended, or its launcher was killed, which takes the rank with it."""
        os.close(descriptor)
        processes.kill_all(self._processes_of(entry))
        if entry.last_word is None and not self._over:
            entry.text = "srun, or the process that it started the rank in, was killed"
        if entry.printed:
            entry.timers.append(self._loop.call_later(_DRAIN_S, self._finish, entry))
        else:
            self._finish(entry)

    def _finish(self, entry: _Rank) -> None:
        if entry.ended:
            return
        if self._paused and not self._abandoned and entry.printed:
            entry.timers.append(self._loop.call_later(_DRAIN_S, self._finish, entry))
            return
        entry.ended = True
        for timer in entry.timers:
            timer.cancel()
        self._close(entry)
        entry.meeting.remove()
        if not self._abandoned:
            self.host.rank_ended(self.world, entry.command.rank, self._exit_of(entry))

    @staticmethod
    def _close(entry: _Rank) -> None:
        for readers, drain in ((entry.printed, True), (entry.said, False)):
            for descriptor in readers.close(drain) if readers else ():
                os.close(descriptor)

    def _exit_of(self, entry: _Rank) -> TaskExit:
        code, name, text, reason = None, None, entry.text, entry.reason
        if entry.last_word is not None:
            code, name = entry.last_word.code, entry.last_word.signal
            text = entry.last_word.text or text
        elif entry.pid is not None:
            name = "SIGKILL"
        seconds = time.monotonic() - entry.began
        return TaskExit(f"rank-{self.world.attempt}-{entry.command.rank}", code, name, reason, seconds, text)

    def _kill(self, entry: _Rank) -> None:
        if entry.ended:
            return
        processes.kill_all(self._processes_of(entry))
        entry.timers.append(self._loop.call_later(self.host.watched.tasks.kill_s, self._give_up, entry))

    def _give_up(self, entry: _Rank) -> None:
        if not entry.ended:
            entry.reason = "stuck"
            self._finish(entry)

    def _processes_of(self, entry: _Rank) -> set[int]:
        if entry.pid is None:
            return set()
        return processes.of_task(entry.pid, entry.marker) - {entry.launcher or 0}

    # srun's life

    def _srun_said(self, stream: int, data: bytes) -> None:
        self._said.add(stream, data)
        self.host.rank_output(self.world, LAUNCHER, stream, data)

    def _srun_ended(self, ended: TaskExit) -> None:
        """Look at ranks that live on: srun ends after its ranks, so they have lost it."""
        if self._abandoned or not self._living():
            return
        words = ended.text or self._said.message()
        how = f"was ended by {ended.signal}" if ended.signal else f"ended with code {ended.code}"
        text = f"srun {how}" + (f": {words}" if words else "")
        if ended.reason == "not_started":
            self._never_came(self._living(), ended.code, ended.text, "not_started")
        elif any(entry.pid is not None for entry in self._ranks.values()):
            self._later(_AFTER_SRUN_S, self._lost, text)
        else:
            self._never_came(self._living(), ended.code or 1, text, "exited")

    def _nobody_came(self) -> None:
        late = [entry for entry in self._living() if entry.pid is None and entry.last_word is None]
        words = self._said.message()
        text = f"srun brought no rank to {self.world.node} within {self._connect_s:.0f} s"
        self._never_came(late, 1, text + (f": {words}" if words else ""), "exited")

    def _never_came(self, entries: list[_Rank], code: Optional[int], text: str, reason: str) -> None:
        if entries:
            self._call_off()
        for entry in entries:
            entry.last_word, entry.reason = LastWord(code, None, text), reason
            self._finish(entry)

    def _lost(self, text: str) -> None:
        for entry in self._living():
            entry.text = text
            if entry.pid is None:
                self._finish(entry)
            else:
                self._kill(entry)

    # Small things

    @property
    def _task(self) -> str:
        return f"srun-{self.world.attempt}"

    def _living(self) -> list[_Rank]:
        return [entry for entry in self._ranks.values() if not entry.ended]

    def _call_off(self) -> None:
        for entry in self._ranks.values():
            try:
                entry.meeting.call_off()
            except OSError:
                return

    def _later(self, seconds: float, function: Any, *arguments: Any) -> None:
        self._timers.append(self._loop.call_later(seconds, partial(function, *arguments)))


def _terminate(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return
