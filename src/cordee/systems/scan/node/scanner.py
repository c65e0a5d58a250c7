"""Looks at files by processes that can do nothing but that; whatever becomes of these, there is a verdict for every file."""

from __future__ import annotations

import array
import json
import os
import select
import socket
import subprocess
import time
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

from cordee.machine.foreign_files import parse_json, regular
from cordee.machine.processes.module_command import module_argv
from cordee.systems.scan.node.source import patience_s
from cordee.systems.scan.node.verdict import MESSAGE_BYTES, ORDER, FileVerdict, Sight

_WORKER = "cordee.systems.scan.node.worker"
_START_S = 20.0


class Scanner:
    """Some processes that look at files, each at one at a time.

    Args:
        allowed: names in pickles that are known to be harmless, besides those that Cordée knows.
        processes: how many.
        secrets: whether keys are looked for in texts.
        patience: how many seconds may be spent on a file of so many bytes.

    Attributes:
        confined: whether the processes can open, start and reach nothing; None: none has been started.
        secrets: whether keys are looked for.
    """

    def __init__(
        self,
        allowed: Iterable[str] = (),
        processes: int = 1,
        secrets: bool = False,
        patience: Optional[Callable[[int], float]] = None,
    ) -> None:
        self._allowed, self._most = sorted(set(allowed)), max(1, processes)
        self._patience = patience or patience_s
        self.secrets = secrets
        self._idle: list[_Worker] = []
        self.confined: Optional[bool] = None

    def __enter__(self) -> Scanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scan(self, path: str) -> FileVerdict:
        """Return what is to be said of a file."""
        return next(self.scan_all([path]))

    def scan_descriptor(self, descriptor: int, path: str) -> FileVerdict:
        """Return what is to be said of an open file; its position stays."""
        return next(self._scan_each([(path, descriptor)]))

    def scan_all(self, paths: Iterable[str]) -> Iterator[FileVerdict]:
        """Yield the verdict of each file, as they come."""
        return self._scan_each((path, None) for path in paths)

    def close(self) -> None:
        """End the processes."""
        for worker in self._idle:
            worker.end()
        self._idle.clear()

    def _scan_each(self, files: Iterable[tuple[str, Optional[int]]]) -> Iterator[FileVerdict]:
        busy: list[_Busy] = []
        try:
            for path, descriptor in files:
                while len(busy) >= self._most:
                    yield from self._ready(busy)
                try:
                    worker = self._idle.pop() if self._idle else self._started()
                    busy.append(self._begun(worker, path, descriptor))
                except OSError as error:
                    yield _unknown(path, "file-unreadable", f"it cannot be read: {error.strerror or error}")
            while busy:
                yield from self._ready(busy)
        finally:
            for one in busy:
                one.worker.end()

    def _started(self) -> _Worker:
        worker = _Worker(self._allowed)
        self.confined = worker.confined and self.confined is not False
        return worker

    def _begun(self, worker: _Worker, path: str, descriptor: Optional[int]) -> _Busy:
        own: Optional[int] = None
        try:
            if descriptor is None:
                descriptor = own = regular(path)
            about = os.fstat(descriptor)
            size = min(about.st_size, 512 * about.st_blocks)  # holes take no time
            patience = self._patience(size)
            worker.order(self.secrets, patience, descriptor)
        except OSError:
            if worker.process.poll() is None:
                self._idle.append(worker)
            raise
        finally:
            if own is not None:
                os.close(own)
        return _Busy(worker, path, time.monotonic() + patience)

    def _ready(self, busy: list[_Busy]) -> Iterator[FileVerdict]:
        """Yield the verdicts that have come, or whose time is over; wait for the first."""
        left = max(0.0, min(one.until for one in busy) - time.monotonic())
        readable, _, _ = select.select([one.worker.socket for one in busy], [], [], left)
        for one in list(busy):
            if one.worker.socket in readable:
                answer = one.worker.answer()
                busy.remove(one)
                if answer is None:
                    one.worker.end()
                    yield _unknown(one.path, "file-scanner-died", "the process that looked at it has died of it")
                else:
                    self._idle.append(one.worker)
                    yield _verdict(one.path, answer)
            elif time.monotonic() >= one.until:
                busy.remove(one)
                one.worker.end()
                yield _unknown(one.path, "file-too-much", "looking at it took too long")


class _Worker:
    def __init__(self, allowed: list[str]) -> None:
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.process = subprocess.Popen(
                module_argv(_WORKER, json.dumps(allowed)),
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self.socket.settimeout(_START_S)
        begun = self.answer()
        if begun is None:
            self.end()
            raise OSError(0, "the process that looks at files did not start")
        self.confined = bool(begun["confined"])

    def order(self, secrets: bool, patience_s: float, descriptor: int) -> None:
        """Have it look at an open file, and say what it has seen before so many seconds are over."""
        rights = array.array("i", [descriptor])
        self.socket.sendmsg([ORDER.pack(secrets, patience_s)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def answer(self) -> Optional[dict[str, Any]]:
        """Return what it says; None: it is no longer there."""
        try:
            data = self.socket.recv(2 * MESSAGE_BYTES)
            answer = parse_json(data) if data else None
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def end(self) -> None:
        """Kill it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


class _Busy(NamedTuple):
    worker: _Worker
    path: str
    until: float


def _verdict(path: str, answer: dict[str, Any]) -> FileVerdict:
    sights = tuple(Sight(*sight) for sight in answer["sights"])
    return FileVerdict(path, str(answer["verdict"]), tuple(answer["kinds"]), sights, float(answer["seconds"]))


def _unknown(path: str, rule: str, text: str) -> FileVerdict:
    return FileVerdict(path, "unknown", (), (Sight(rule, "unknown", text),))
