"""The keeper stands in for a scheduler on one machine: it starts supervisor and agents, and restarts what dies or hangs.

It may be killed itself: the supervisor starts another, which finds the living processes by their records.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from cordee.control.identity import agent_file, alive_here, identity, read_record
from cordee.control.keeper_start import forget_heartbeat, heartbeat, machine_nodes, node_side_environment
from cordee.control.supervisor.disks.startup import EXIT_REFUSED
from cordee.control.supervisor.ownership import Ownership
from cordee.control.wakeup import Wakeup
from cordee.core.errors import CordeeError, OwnershipError
from cordee.machine.processes import tree as processes
from cordee.machine.processes.module_command import module_argv
from cordee.runs.disk import may_pass
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.plan import read_plan
from cordee.runs.state import RunState

# Where nobody ends and nobody calls: the run's folder is looked at so seldom.
_LOOK_S, _ENDED_S = 5.0, 30.0
_LONGEST_WAIT_S = 2.0
_AGAIN_S = 0.2
_MOST_STARTS = 10
_STARTS_WINDOW_S = 60.0
_AGENT_END_S = 10.0
_REFUSED_S = 5.0
_AT_ONCE_S = 1.0
# Waits for a line, and ends where none comes: a process that nobody has recorded must not begin.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")
_MOST_REFUSED_S = 3600.0


class Kept:
    """One process that is kept alive, known by its record in the control folder."""

    def __init__(self, name: str, argv: list[str], record: Path, log: Path) -> None:
        self.name, self.argv, self.record, self.log = name, argv, record, log
        self.starts: deque[float] = deque(maxlen=_MOST_STARTS)
        self.known: dict[str, Any] = read_record(record)
        self.next_start = 0.0
        self._refused_since: Optional[float] = None

    @property
    def incarnation(self) -> int:
        return int(self.known.get("incarnation", 0))

    def alive(self) -> bool:
        """Return whether the process that was started last still runs."""
        return bool(self.known) and alive_here(self.known)

    def start(self, env: dict[str, str]) -> None:
        """Start the next incarnation and record it; does nothing while a disk is waited for that refused the last start."""
        if time.monotonic() < self.next_start:
            return
        self.starts.append(time.monotonic())
        try:
            self._start(env)
        except (OSError, CordeeError) as error:
            if may_pass(error):
                self.refused(str(error))
            else:
                say(f"cordee keeper: cannot start the {self.name}: {error}")

    def refused(self, why: str) -> None:
        """The disk did not let it begin: that is no crash, for an hour, and is tried again in a while."""
        now = time.monotonic()
        if self._refused_since is None or now - self._refused_since > _MOST_REFUSED_S + _STARTS_WINDOW_S:
            self._refused_since = now
            say(f"cordee keeper: the disk does not let the {self.name} begin, waiting for it: {why}")
        if self.starts and now - self._refused_since < _MOST_REFUSED_S:
            self.starts.pop()
        self.next_start = now + _REFUSED_S

    def _start(self, env: dict[str, str]) -> None:
        """Start it behind a gate, which opens once its record is on the disk: else the next keeper would not know of it."""
        incarnation = self.incarnation + 1
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [*_GATE, *self.argv, *(["--incarnation", str(incarnation)] if "agent" in self.name else [])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env=env,
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as gate:
            self._record(process, incarnation)
            gate.write(b"go\n")

    def _record(self, process: subprocess.Popen[bytes], incarnation: int) -> None:
        seen = processes.read_process(process.pid)
        self.known = {
            **identity(),
            "pid": process.pid,
            "start_ticks": seen.start_ticks if seen else 0,
            "incarnation": incarnation,
        }
        process.returncode = 0
        write_atomically(self.record, json.dumps(self.known))

    def too_often(self) -> bool:
        """Return whether it was started so often of late that another start would not help."""
        return len(self.starts) == _MOST_STARTS and time.monotonic() - self.starts[0] < _STARTS_WINDOW_S

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.alive():
            processes.kill_all([self.known["pid"]])


class Keeper:
    """Keeps one run's processes alive until the run has ended, and leaves none behind.

    Args:
        folder: the run's folder.
        nodes: the names of its nodes; None: those of one machine.
        writer: whose journal has its words; empty: that of who asked for the run.
    """

    def __init__(self, folder: RunFolder, nodes: Optional[list[str]] = None, writer: str = "") -> None:
        self.folder, self._writer = folder, writer
        self.ownership = Ownership(folder.control / "keepers")
        self.ownership.claim()
        processes.become_subreaper()
        self.plan = read_plan(folder)
        self.run = self.plan.run
        self.env = node_side_environment(folder)
        self.lost_s = self.plan.timeouts.lost_s
        self.supervisor = Kept(
            "supervisor",
            self._command("cordee.control.supervisor.supervisor"),
            folder.control / "supervisor.json",
            folder.control / "supervisor.log",
        )
        self.agents = {
            node: Kept(
                f"agent {node}",
                [*self._command("cordee.control.agent.agent"), "--node", node],
                agent_file(folder, node),
                folder.control / f"agent-{node}.log",
            )
            for node in (machine_nodes(self.plan) if nodes is None else nodes)
        }
        self._heartbeat: tuple[int, float] = (0, time.monotonic())
        self._journal = JournalFollower(folder, keep=False)
        self._journals_size = -1
        self._abandoned: set[str] = set()
        self._waking = Wakeup()
        self._next_look = 0.0

    def serve(self) -> int:
        """Keep the run's processes until it has ended; returns 0, or 5 when it had to be given up."""
        self._heed_signals()
        if self.supervisor.alive() and not self.is_over():
            self._heartbeat = (0, time.monotonic())
        code, ended, next_ended = 0, False, 0.0
        while True:
            self._reap()
            began = time.monotonic()
            called, due = self._waking.called, time.monotonic() >= self._next_look
            need = self._somebody_ended() or self._supervisor_hangs()
            look = called or due or need
            if look:
                self._waking.called, self._next_look = False, time.monotonic() + _LOOK_S
                if self.ownership.look() in ("newer", "gone"):
                    return self._leave(5)
            if need or time.monotonic() >= next_ended:
                ended, next_ended = self.is_over(), time.monotonic() + _ENDED_S
            if look and ended:
                if not self.supervisor.alive():
                    return self._leave(code)
            elif look:
                if (
                    time.monotonic() - began > _AT_ONCE_S
                ):  # what held this process up may have held the supervisor up, too
                    self._heartbeat = (self._heartbeat[0], time.monotonic())
                try:
                    code = code if self._keep() else 5
                except (OSError, CordeeError) as error:
                    say(f"cordee keeper: {error}")
            self._wait(min(_LONGEST_WAIT_S, self.lost_s / 4))

    def _somebody_ended(self) -> bool:
        agents = (agent.alive() for node, agent in self.agents.items() if node not in self._abandoned)
        return not self.supervisor.alive() or not all(agents)

    def _wait(self, most_s: float) -> None:
        """Wait until a process ends or the supervisor calls; one that could not be started is waited for a moment."""
        kept = [self.supervisor, *(agent for node, agent in self.agents.items() if node not in self._abandoned)]
        living = [one.known["pid"] for one in kept if one.alive()]
        self._waking.wait(living, most_s if len(living) == len(kept) else min(most_s, _AGAIN_S))

    def _heed_signals(self) -> None:
        """Ignore what would end this process: whoever wants the run to end tells its supervisor."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def is_over(self) -> bool:
        """Return whether the journal says that the run is over; read again only when it grew."""
        try:
            size = sum(entry.stat().st_size for entry in os.scandir(self.folder.journal))
            if size != self._journals_size:
                self._journals_size = size
                self._journal.read()
        except (OSError, CordeeError):
            self._journals_size = -1
        return self._is_over(self._journal.state)

    def _is_over(self, state: RunState) -> bool:
        return state.ended

    def _keep(self) -> bool:
        if not self.supervisor.alive():
            if self.supervisor.too_often():
                self._give_up()
                return False
            self.supervisor.start(self.env)
            self._heartbeat = (0, time.monotonic())
        elif self._supervisor_hangs():
            self.supervisor.kill()
        for node in self._notes():
            self._replace_on_request(node, self.agents[node])
        for node, agent in self.agents.items():
            if not agent.alive() and node not in self._abandoned and time.monotonic() >= agent.next_start:
                if agent.known:
                    processes.sweep(f"{self.run}/{node}/")
                if agent.too_often():
                    self._abandoned.add(node)
                    say(f"cordee keeper: {agent.name} ended {_MOST_STARTS} times in a minute")
                    continue
                agent.start(self.env)
        return True

    def _notes(self) -> list[str]:
        """Return the nodes whose agents the supervisor has asked to be replaced."""
        names = {agent.record.with_suffix(".replace").name: node for node, agent in self.agents.items()}
        return [names[name] for name in os.listdir(self.folder.control) if name in names]

    def _replace_on_request(self, node: str, agent: Kept) -> None:
        path = agent.record.with_suffix(".replace")
        request = read_record(path)
        if request:
            path.unlink()
            if request["incarnation"] in (0, agent.incarnation):
                agent.kill()
                processes.sweep(f"{self.run}/{node}/")

    def _supervisor_hangs(self) -> bool:
        beat = heartbeat(self.folder)
        if beat != self._heartbeat[0]:
            self._heartbeat = (beat, time.monotonic())
        if time.monotonic() - self._heartbeat[1] <= self.lost_s:
            return False
        if self._disk_answers():
            return True
        self._heartbeat = (beat, time.monotonic())
        return False

    def _disk_answers(self) -> bool:
        """Return whether the run's disk does what it is asked for, at once: else a supervisor may have stood still for its sake."""
        asked = time.monotonic()
        try:
            with open(self.supervisor.log, "ab") as log:
                os.fsync(log.fileno())
        except OSError as error:
            return not may_pass(error)
        return time.monotonic() - asked < _AT_ONCE_S

    def _give_up(self) -> None:
        for agent in self.agents.values():
            agent.kill()
        tail = _last_line(self.supervisor.log)
        text = f"the supervisor ended {_MOST_STARTS} times in a minute: {tail or 'see control/supervisor.log'}"
        journal = client_journal(self.folder.journal, self._writer)
        journal.append("ended", state="failed", exit_code=5, reason="supervisor", text=text)

    def _leave(self, code: int) -> int:
        deadline = time.monotonic() + _AGENT_END_S
        while time.monotonic() < deadline and any(agent.alive() for agent in self.agents.values()):
            self._reap()
            if code or not self.folder.root.is_dir():
                break
            self._waking.wait((agent.known["pid"] for agent in self.agents.values() if agent.alive()), _LONGEST_WAIT_S)
        if self.ownership.look() != "newer":
            for kept in (*self.agents.values(), self.supervisor):
                kept.kill()
            processes.sweep(f"{self.run}/")
            self._reap()
            forget_heartbeat(self.folder)
        return code

    def _command(self, module: str) -> list[str]:
        return module_argv(module, "--folder", str(self.folder.root))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            refused = os.WIFEXITED(status) and os.WEXITSTATUS(status) == EXIT_REFUSED
            if refused and pid == self.supervisor.known.get("pid"):
                self.supervisor.refused(_last_line(self.supervisor.log))


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes().strip().split(b"\n")
    except OSError:
        return ""
    return lines[-1].decode(errors="replace")[:400]


def main(arguments: Optional[list[str]] = None) -> int:
    """Run a keeper: `python -m cordee.control.keeper --folder RUN`."""
    parser = argparse.ArgumentParser(prog="cordee.control.keeper")
    parser.add_argument("--folder", required=True, type=Path)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the supervisor may call before it is waited for
    try:
        return Keeper(RunFolder(options.folder)).serve()
    except CordeeError as error:
        say(f"cordee keeper: {error}")
        return 0 if isinstance(error, OwnershipError) else error.exit_code


if __name__ == "__main__":
    sys.exit(main())
