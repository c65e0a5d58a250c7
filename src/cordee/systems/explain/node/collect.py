"""The process that collects what shows where ranks stand: `python -m`, its order on standard input, files on standard output.

All ranks are asked at the same time: by a word in their pulse file for the Flight Recorder's dump, which the agent has written
before this process began, and by a signal for their stacks. Nobody is waited for longer than the order says, from when this
process runs; where the order wants what comes late, dumps are told for a while after the last word.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, BinaryIO, Iterator, Optional

from cordee.core.clock import unix_s
from cordee.core.units import utc_text
from cordee.machine.foreign_files import read_regular, regular
from cordee.machine.processes.table import read_process
from cordee.machine.processes.tree import kill_all
from cordee.systems.explain.node.nccl_state import nccl_files
from cordee.systems.explain.node.node_state import state_of_node
from cordee.systems.explain.node.parts import write_end, write_file
from cordee.systems.explain.node.process_state import open_files, state_of, takes_signal
from cordee.wire.pulse import DUMP, STACKS, SUFFIX, PulseReader

_FLIGHT_BYTES = 16 << 20
_STACKS_BYTES = 256 << 10
_NODE_BYTES = 64 << 20
_RESERVE_S = 1.0
_MOUNTS_S = 2.0
_QUIET_S = 0.3
_POLL_S = 0.05


class TracedRank:
    """One process of a rank that is asked where it stands.

    Args:
        about: what the agent knows of it.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        self.about, self.rank, self.pid = about, int(about["rank"]), int(about["pid"])
        self.lacks: list[str] = []
        # Before it is asked: the signal takes it out of the system call in which it stands.
        self._state = state_of(self.pid)
        self._stem = about["pulse"][: -len(SUFFIX)] if about["pulse"] else ""
        self._pulse = self._open()
        self._beats = self._pulse.read().beats if self._pulse is not None else 0
        self._before = self._grown = self._stacks_size()
        self._grown_at = time.monotonic()
        self._asked, self._wants_dump, self._wants_stacks = about.get("asked"), False, False
        self._signalled = False
        if self._pulse is not None:
            self._ask(self._pulse)
        else:
            self.lacks.append("it has not imported torch: no Flight Recorder, no stacks")

    @property
    def waits(self) -> bool:
        """Whether an answer is to come."""
        return self._wants_dump or self._wants_stacks

    @property
    def is_silent(self) -> bool:
        """Whether a thread holds its interpreter, as far as is known: it is not worth more patience on a busy node."""
        silent = self.about.get("why") == "silent"
        return silent and self._pulse is not None and self._pulse.read().beats == self._beats

    def document(self, node: str, attempt: int) -> dict[str, Any]:
        """Return where it stands, as far as it need not be asked itself."""
        pulse = self._pulse.read() if self._pulse is not None else None
        known = {key: value for key, value in self.about.items() if key not in ("pulse", "asked")}
        return {
            "schema": "cordee.stand/1",
            **known,
            "node": node,
            "attempt": attempt,
            "at": utc_text(),
            "optimizer_steps": pulse.optimizer_steps if pulse is not None else None,
            "groups": [group._asdict() for group in pulse.groups] if pulse is not None else [],
            "last_seen_at": self._pulse.stands_at() if self._pulse is not None else "",
            **self._state,
        }

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files that have come since the last time, by their endings."""
        if self._wants_dump and self._pulse is not None and self._pulse.read().dumped == self._asked:
            self._wants_dump = False
            try:
                yield DUMP, read_regular(self._stem + DUMP, limit_bytes=_FLIGHT_BYTES)
            except FileNotFoundError:
                self.lacks.append("no Flight Recorder dump: it has recorded nothing")
            except OSError as error:
                self.lacks.append(f"no Flight Recorder dump: {error.strerror}")
        if self._wants_stacks:
            size, now = self._stacks_size(), time.monotonic()
            if size != self._grown:
                self._grown, self._grown_at = size, now
            elif size > self._before and now - self._grown_at > _QUIET_S:
                self._wants_stacks = False
                yield STACKS, self._stacks()

    def give_up(self) -> Iterator[tuple[str, bytes]]:
        """Yield what has come in part; the rest is lacking."""
        if self._wants_dump:
            self.lacks.append("no Flight Recorder dump: no thread of its interpreter has answered")
        if self._wants_stacks and self._stacks_size() > self._before:
            self._wants_stacks = False
            yield STACKS, self._stacks()
        elif self._wants_stacks:
            self.lacks.append("no stacks: it has not taken the signal")

    def py_spy(self) -> Optional[bytes]:
        """Return what py-spy says of one that cannot write its stacks, where that is installed and may look."""
        command = shutil.which("py-spy")
        if command is None or self._signalled:
            return None
        try:
            argv = [command, "dump", "--nonblocking", "--pid", str(self.pid)]
            done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MOUNTS_S, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout[:_STACKS_BYTES] or None if done.returncode == 0 else None

    def _open(self) -> Optional[PulseReader]:
        try:
            return PulseReader(self.about["pulse"]) if self.about["pulse"] else None
        except (OSError, ValueError):
            return None

    def _ask(self, reader: PulseReader) -> None:
        process, pulse = read_process("/proc", self.pid), reader.read()
        if process is None or process.state in ("T", "t", "Z", "X"):
            self.lacks.append("it is stopped or gone: no Flight Recorder, no stacks")
            return
        self._wants_dump = self._asked is not None
        if signal.SIGRTMIN <= pulse.signal <= signal.SIGRTMAX and takes_signal(self.pid, pulse.signal):
            self._wants_stacks = self._signalled = kill_all([self.pid], pulse.signal) == 1
        else:
            self.lacks.append("no stacks: it has no handler for them")

    def _stacks_size(self) -> int:
        try:
            return os.stat(self._stem + STACKS, follow_symlinks=False).st_size
        except OSError:
            return 0

    def _stacks(self) -> bytes:
        """Return what was written last."""
        try:
            with open(self._stem + STACKS, "rb", opener=regular) as file:
                file.seek(self._before)
                return file.read(_STACKS_BYTES)
        except OSError as error:
            self.lacks.append(f"no stacks: {error.strerror}")
            return b""


class HangEvidence:
    """Writes all that comes, of bounded size.

    Args:
        order: what the agent asks for.
        out: where files are written.
    """

    def __init__(self, order: dict[str, Any], out: BinaryIO) -> None:
        self._order, self._out = order, out
        self._ends_at = order["asked_at"] + order["most_s"] - _RESERVE_S
        self._until = min(self._ends_at, time.monotonic() + max(0.5, order["deadline_s"] - _RESERVE_S))
        self._silent_until = min(self._until, time.monotonic() + max(0.5, order["idle_s"] - _RESERVE_S))
        self._left = _NODE_BYTES
        self._lacks: list[str] = []

    def run(self) -> None:
        """Collect until everybody has answered or the time is up."""
        node, attempt = self._order["node"], self._order["attempt"]
        ranks = [TracedRank(about) for about in self._order["ranks"]]
        for rank in ranks:
            self._write(f"rank-{rank.rank}.json", _json(rank.document(node, attempt)))
        self._write_answers(ranks)
        paths = {*self._order["places"], *(path for rank in ranks for path in open_files(rank.pid))}
        most_s = max(0.1, min(_MOUNTS_S, (self._until - time.monotonic()) / 3))
        about_node = {"schema": "cordee.stand_node/1", "node": node, "at": utc_text()}
        since_s = unix_s() - self._order["began_at"]
        self._write(f"node-{node}.json", _json({**about_node, **state_of_node(paths, most_s, since_s)}))
        self._write_answers(ranks)
        for name, content in nccl_files(node, [rank.pid for rank in ranks], most_s).items():
            self._write(name, content)
        for rank in ranks:
            seen = rank.py_spy() if time.monotonic() < self._until else None
            if seen is not None:
                self._write(f"rank-{rank.rank}{STACKS}", seen)
        self._await_answers(ranks, self._until, _POLL_S, late=False)
        for rank in ranks:
            for ending, content in rank.give_up():
                self._write(f"rank-{rank.rank}{ending}", content)
            self._lacks += [f"rank {rank.rank}: {text}" for text in rank.lacks]
        write_end(self._out, "; ".join(self._lacks)[:10_000])
        if self._order["late"]:
            self._await_answers(ranks, self._ends_at, _QUIET_S, late=True)

    def _await_answers(self, ranks: list[TracedRank], until: float, every_s: float, late: bool) -> None:
        while (now := time.monotonic()) < until:
            if not any(rank.waits and (late or now < self._silent_until or not rank.is_silent) for rank in ranks):
                return
            time.sleep(every_s)
            self._write_answers(ranks)

    def _write_answers(self, ranks: list[TracedRank]) -> None:
        for rank in ranks:
            for ending, content in rank.answers():
                self._write(f"rank-{rank.rank}{ending}", content)

    def _write(self, name: str, content: bytes) -> None:
        if len(content) > self._left:
            self._lacks.append(f"{name}: more than {_NODE_BYTES >> 20} MiB of this node")
            return
        self._left -= len(content)
        write_file(self._out, name, content)


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


if __name__ == "__main__":
    HangEvidence(json.load(sys.stdin), sys.stdout.buffer).run()
