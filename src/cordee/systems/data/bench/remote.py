"""The other end of the loader's process: starts it, asks for rounds, and says clearly when it died or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

from cordee.core.errors import DataError
from cordee.machine.processes.module_command import module_argv

_END_S = 5.0


class LoaderProcess:
    """A loader in a process and process group of its own; used as a context.

    Args:
        request: what to load, as `child.make_loader` takes it.
        start_s: how long making the loader may take (imports, opening).
        grace_s: how long a round may take beside three times what was asked for.

    Attributes:
        ready_s: seconds that making the loader took.
        identity, size: of the data set, where the loader is Cordée's.

    Raises:
        DataError: it failed, died, or did not answer in time; says its last words.
    """

    def __init__(
        self,
        request: dict[str, Any],
        start_s: float = 300.0,
        grace_s: float = 300.0,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._name = request.get("function") or request["target"]
        self._channel, self._rest, self._grace_s = ours, b"", grace_s
        command = module_argv("cordee.systems.data.bench.child", str(theirs.fileno()), user_site=True)
        # What a loader prints must not come between a JSON document's lines.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_number(sys.stderr) else subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            ready = self._ask(request, start_s)
            self.ready_s: float = ready["ready"]
            self.identity: str | None = ready.get("identity")
            self.size: int | None = ready.get("size")
        except BaseException:
            self.close()
            raise

    def play(self, seconds: float, samples: int = 0, again: bool = True) -> dict[str, Any]:
        """Return what a round measured (`child.Loader.play`); one that takes far longer than `seconds` is a hang."""
        round_ = {"seconds": seconds, "samples": samples, "again": again}
        answer = self._ask(round_, self._grace_s + 3 * seconds)
        if not sum(answer["samples"]):
            raise DataError(
                "the loader gave no samples",
                given=self._name,
                allowed="an iterable of batches that holds at least one",
                next="a batch may say `samples` and `bytes` itself where it is no mapping, list or array",
            )
        return answer

    def __enter__(self) -> LoaderProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that it started."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _ask(self, question: dict[str, Any], most_s: float) -> dict[str, Any]:
        until = time.monotonic() + most_s
        try:
            self._channel.sendall(json.dumps(question).encode() + b"\n")
            answer = self._line(until, most_s)
        except (ConnectionError, BrokenPipeError):
            answer = None
        if answer is None:
            raise self._died()
        document: dict[str, Any] = json.loads(answer)
        if document.get("said"):
            said = document["said"]
            raise DataError(said["text"], given=said["given"], allowed=said["allowed"], next=said["next"])
        if "error" in document:
            raise DataError(
                f"the loader failed: {document['error']}",
                given=self._name,
                next="its traceback:\n" + "\n".join(document["traceback"]),
            )
        return document

    def _line(self, until: float, most_s: float) -> bytes | None:
        """Return one answer; None when the process is gone."""
        while b"\n" not in self._rest:
            self._channel.settimeout(0.5)
            try:
                got = self._channel.recv(1 << 20)
            except TimeoutError:
                # Workers may hold the socket open when the process itself has died.
                if self._process.poll() is not None:
                    return None
                if time.monotonic() > until:
                    os.killpg(self._process.pid, signal.SIGKILL)
                    raise DataError(
                        f"the loader gave nothing for {most_s:.0f} s and was ended",
                        given=self._name,
                        next="see whether it waits for its workers, a lock or the network; `py-spy dump` shows where",
                    ) from None
                continue
            if not got:
                return None
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _died(self) -> DataError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)
        code = self._process.poll()
        how = "closed its channel" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return DataError(
            f"the loader's process {how}",
            given=self._name,
            next="run it by itself; what it said stands above. SIGKILL is mostly a lack of memory: fewer workers",
        )


def _has_number(stream: Any) -> bool:
    try:
        stream.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True
