"""A child of the supervisor that speaks JSON lines: watched, started again when it dies or hangs, given up in the end.

What it knows it is told in its first line, each time it is started: nothing of it is lost with it. It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Callable, Mapping, Optional

from cordee.control.supervisor.closing_findings import document_side_env
from cordee.core.clock import monotonic
from cordee.machine.processes.module_command import module_argv

_PAUSES_S = (0.5, 2.0, 5.0)
_LASTED_S, _GONE_S = 600.0, 2.0
_MOST_LINE = 64 << 20


class LineChild:
    """Runs a module of the installed Cordée.

    Args:
        module: its full name.
        first: returns its first line, at each start.
        answered: called with each of its lines.
        remark: takes a sentence about the child.
        env: variables that it has beyond those of the supervisor.
        patience_s: it is killed when it owes an answer for so long.

    Attributes:
        given_up: why it is not started any more; empty: it is.
        starts: how often it was started.
    """

    def __init__(
        self,
        module: str,
        first: Callable[[], Mapping[str, Any]],
        answered: Callable[[dict[str, Any]], None],
        remark: Callable[[str], None],
        env: Mapping[str, str],
        patience_s: float = 120.0,
    ) -> None:
        self._module, self._first, self._answered, self._remark = module, first, answered, remark
        self._env, self._patience_s = dict(env), patience_s
        self._process: Optional[asyncio.subprocess.Process] = None
        self._owed, self._owed_since = 0, 0.0
        self._said = b""
        self._over = ""
        self.given_up, self.starts = "", 0
        self._running: Optional[asyncio.Future[None]] = None

    def start(self) -> None:
        """Start it, once."""
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())

    @property
    def owes(self) -> bool:
        """Whether an answer is to come."""
        return self._owed > 0

    def say(self, line: Mapping[str, Any], owed: int = 0) -> None:
        """Send a line, which is answered by so many; one that is sent while it does not run is lost."""
        if self._process is None or self._process.stdin is None:
            return
        if owed:
            self._owed_since = monotonic() if not self._owed else self._owed_since
            self._owed += owed
        with suppress(OSError, RuntimeError):
            self._process.stdin.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def second(self, now: float) -> None:
        """A second is over: kill it where it hangs."""
        if self._process is not None and self._owed and now - self._owed_since > self._patience_s:
            self._over = f"it had no answer for {self._patience_s:.0f} s"
            with suppress(ProcessLookupError):
                self._process.kill()

    def close(self) -> None:
        """End it; nothing more is heard of it."""
        if self._running is not None:
            self._running.cancel()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def gone(self) -> None:
        """Wait until it is, after it was closed."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_GONE_S)

    async def _run(self) -> None:
        deaths = 0
        while not self.given_up:
            began = monotonic()
            why = await self._once()
            self._process, self._owed = None, 0
            deaths = 1 if monotonic() - began > _LASTED_S else deaths + 1
            if deaths > len(_PAUSES_S):
                self.given_up = f"it ended {deaths} times, the last time: {why}"
                self._remark(self.given_up)
                return
            self._remark(f"it was started again: {why}")
            await asyncio.sleep(_PAUSES_S[deaths - 1])

    async def _once(self) -> str:
        """Run it until it ends; returns why it did."""
        self._said, self._over = b"", ""
        pipe = asyncio.subprocess.PIPE
        argv = module_argv(self._module, user_site=True)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=_MOST_LINE, env={**document_side_env(), **self._env}
            )
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        self.starts += 1
        self._process = process
        try:
            self.say(self._first(), owed=1)
            listening = asyncio.ensure_future(self._listen_to_errors(process))
            await self._listen(process)
            await listening
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        words = self._said.decode(errors="replace").strip().splitlines()[-1:]
        return self._over or " ".join([f"exit code {code}" if code >= 0 else f"signal {-code}", *words])

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                if not line:
                    return
                answer = json.loads(line)
                if not isinstance(answer, dict):
                    raise ValueError
            except ValueError:
                self._over = "it wrote what is no answer"
                process.kill()
                return
            self._owed, self._owed_since = max(0, self._owed - 1), monotonic()
            self._answered(answer)

    async def _listen_to_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while True:
            data = await process.stderr.read(4096)
            if not data:
                return
            self._said = (self._said + data)[-2000:]
