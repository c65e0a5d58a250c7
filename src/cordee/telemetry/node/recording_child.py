"""A child of the agent that writes records of the block log: watched, started again when it dies, given up in the end."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

from cordee.core.clock import monotonic
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import STDERR, Task, TaskExit

NOTHING_TO_DO = 3
_PAUSES_S = (1.0, 5.0, 30.0, 60.0)
_LASTED_S = 600.0
_HEADER = struct.Struct("<IB")
_MOST_RECORD_BYTES, _MOST_KIND = 16 << 20, 15


class Kind(NamedTuple):
    """What a child is, and the words for what becomes of it.

    Attributes:
        name: of its tasks.
        again: what is said when it was started again, before the reason.
        given_up: what is said when it will not be, before how often it ended.
        hangs: why it would be silent.
        silent_s: it is killed when it has written nothing for so long; None: never.
        first_s: the same, before it has written anything.
    """

    name: str
    again: str
    given_up: str
    hangs: str = ""
    silent_s: Optional[float] = None
    first_s: float = 0.0


class RecordingChild:
    """Runs a command and passes on what it writes to its standard output.

    Args:
        watched: starts the child.
        kind: what it is.
        command, env: what runs; exit code 3 means that there is nothing to do, and a record has said why.
        add: takes whole records.
        remark: takes a sentence about the child.
        stdin: what it reads at its start.
    """

    def __init__(
        self,
        watched: WatchedTasks,
        kind: Kind,
        command: Sequence[str],
        env: Mapping[str, str],
        add: Callable[[bytes], None],
        remark: Callable[[str], None],
        stdin: Optional[bytes] = None,
    ) -> None:
        self._watched, self._kind, self._add, self._remark = watched, kind, add, remark
        self._command, self._env, self._stdin = tuple(command), dict(env), stdin
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._said = b""
        self._began = self._heard = 0.0
        self._starts = self._deaths = 0
        self._watch: Optional[asyncio.TimerHandle] = None
        self._over = ""

    def start(self) -> None:
        """Start it, also after it has ended."""
        self._starts += 1
        self._buffer, self._said, self._over = b"", b"", ""
        self._began = monotonic()
        self._heard = 0.0
        name = self._kind.name
        task = Task(f"{name}-{self._starts}", self._command, self._env, "/", group=name, stdin=self._stdin)
        self._watched.run_task(task, self._ended, output=self._output)
        if self._kind.silent_s is not None:
            self._watch = self._loop.call_later(self._kind.silent_s, self._look, self._kind.silent_s)

    def _look(self, silent_s: float) -> None:
        """Kill a child that has been silent for too long."""
        if self._watched.tasks.output_paused:
            self._heard = monotonic()
        silence_s = monotonic() - (self._heard or self._began)
        if silence_s > (silent_s if self._heard else self._kind.first_s):
            self._over = f"it was silent for {silence_s:.0f} s: {self._kind.hangs}"
            self._watched.tasks.stop(self._kind.name, 0.0)
            return
        self._watch = self._loop.call_later(silent_s, self._look, silent_s)

    def _output(self, stream: int, data: bytes) -> None:
        if stream == STDERR:
            self._said = (self._said + data)[-2000:]
            return
        self._heard = monotonic()
        self._buffer += data
        whole = whole_records(self._buffer)
        if whole < 0:
            self._over = "it wrote what is no record"
            self._buffer = b""
            self._watched.tasks.stop(self._kind.name, 0.0)
            return
        self._add(self._buffer[:whole])
        self._buffer = self._buffer[whole:]

    def _ended(self, ended: TaskExit) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if ended.code == NOTHING_TO_DO:
            return
        words = self._said.decode(errors="replace").strip().splitlines()[-1:]
        why = self._over or " ".join([_how(ended), *words])
        if monotonic() - self._began > _LASTED_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths > len(_PAUSES_S) or ended.reason in ("stuck", "not_started"):
            self._remark(f"{self._kind.given_up} ended {self._deaths} times, the last time: {why}")
            return
        self._remark(f"{self._kind.again}: {why}")
        self._loop.call_later(_PAUSES_S[self._deaths - 1], self.start)


def whole_records(data: bytes) -> int:
    """Return how many bytes of the beginning are whole records; -1: this is no record."""
    at = 0
    while len(data) - at >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data, at)
        if length > _MOST_RECORD_BYTES or not 1 <= kind <= _MOST_KIND:
            return -1
        if len(data) - at - _HEADER.size < length:
            break
        at += _HEADER.size + length
    return at


def _how(ended: TaskExit) -> str:
    how: Any = ended.signal or f"exit code {ended.code}"
    return f"{ended.text or how}"
