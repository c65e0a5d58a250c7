"""A node of the disposable Slurm that is really slow: what runs on it is stopped most of the time."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType

from cordee.testing.slurm.daemons import node_processes

_PERIOD_S = 0.5
_LOOK_S = 0.05
_DAEMONS = ("slurmd", "slurmstepd", "slurmscriptd")


class SlowNode:
    """Slows everything that jobs run on one node, for as long as the context lasts.

    Args:
        conf: the cluster's slurm.conf.
        node: which node.
        log: its slurmd's log.
        share: of the time that its processes may run, 0-1.
    """

    def __init__(self, conf: Path, node: str, log: Path, share: float) -> None:
        self._conf, self._node, self._log, self._share = conf, node, log, share
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._pulse, daemon=True)

    def __enter__(self) -> SlowNode:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _pulse(self) -> None:
        while not self._ended.is_set():
            stopped, until = set[int](), time.monotonic() + _PERIOD_S * (1 - self._share)
            while time.monotonic() < until and not self._ended.is_set():
                found = {pid for pid in node_processes(self._conf, self._node, self._log) if not _is_daemon(pid)}
                stopped |= {pid for pid in found - stopped if _send(pid, signal.SIGSTOP)}
                self._ended.wait(_LOOK_S)
            for pid in stopped:
                _send(pid, signal.SIGCONT)
            self._ended.wait(_PERIOD_S * self._share)


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _is_daemon(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() in _DAEMONS
    except OSError:
        return True
