"""Looks through a tree with as many processes as its storage has need of, and can go on where it was killed."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cordee.core.errors import DataError, UsageError
from cordee.machine.mounts import mount_of, read_mounts
from cordee.systems.data.survey.totals import SurveyState, Totals
from cordee.systems.data.survey.worker import Folder, Looker, Part

WORKER = Path(__file__).with_name("worker.py")
MOST_WORKERS = 16
_ALONE_S = 0.1  # small trees need no other process
_BUDGET_S = 0.15
_SAVE_EVERY_S = 1.0
_FOLDERS_AT_ONCE = 256
_MOSTLY_WAITING = 0.6
_TELLING_S = 0.02  # a part that took less says nothing of the storage

Progress = Callable[[Totals], None]


class Scan:
    """One look through a tree.

    Args:
        path: an absolute folder or file, without links in it.
        cross: look also where other file systems begin.
        workers: how many processes at most; None: as many as there are cores, and more while they wait for storage.
        resume: go on with what an interrupted scan has left.
        progress: called about once a second.
    """

    def __init__(
        self,
        path: str,
        *,
        cross: bool = False,
        workers: int | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._progress = progress or (lambda totals: None)
        self._state = SurveyState(path, environ)
        self._most_workers = min(MOST_WORKERS, workers or MOST_WORKERS)
        self._cores = min(self._most_workers, len(os.sched_getaffinity(0)))
        kept = self._state.read(self._state.under_way) if resume else None
        if resume and kept is None:
            whole = self._state.whole.exists()
            raise UsageError(
                "there is no interrupted survey of this path to continue with",
                given=path,
                next="leave --resume away" + (", or see what the last whole one found with --last" if whole else ""),
            )
        self.resumed = kept is not None
        status = os.lstat(path)
        options = {"top": path, "device": status.st_dev, "cross": cross, "now_s": time.time()}
        self._options: dict[str, Any] = (kept or {}).get("options") or {
            **options,
            "mounts": [mount.point for mount in read_mounts("/")],
        }
        self.totals = Totals(kept["counted"] if kept else None)
        self._todo: list[Folder] = (
            [(where, depth, kind) for where, depth, kind in kept["todo"]] if kept else [(path, 0, "")]
        )
        self.began_s: float = self._options["now_s"]
        self._workers: list[_Worker] = []
        self._saved_s = self._told_s = time.monotonic()
        self._save_every_s = _SAVE_EVERY_S
        self.unsaved: str | None = None

    def run(self) -> Totals:
        """Look through all that is left; on the way, and when it is stopped, the state is written down."""
        looker = Looker(self._options)
        try:
            if not os.path.isdir(self._options["top"]):
                self._todo.clear()
                self._take(looker.look_at_file(self._options["top"]))
            end = time.monotonic() + _ALONE_S
            while self._todo and time.monotonic() < end:
                self._take(looker.look([self._todo.pop()], _BUDGET_S))
                self._now_and_then()
            if self._todo:
                self._save()
                self._together()
        finally:
            under_way = [folder for worker in self._workers for folder in worker.folders]
            self._todo += under_way
            for worker in self._workers:
                worker.end()
            self._save()
        self._progress(self.totals)
        return self.totals

    def _together(self) -> None:
        with selectors.DefaultSelector() as selector:
            for _ in range(self._cores):
                self._start(selector)
            while True:
                for worker in self._workers:
                    if not worker.folders and self._todo:
                        worker.give(self._share())
                if not any(worker.folders for worker in self._workers):
                    return
                for key, _ in selector.select(1.0):
                    worker = key.data
                    part = worker.answer()
                    if part is None:
                        self._lost(worker, selector)
                        continue
                    self._take(part)
                    waiting = part["waited_seconds"] > _MOSTLY_WAITING * part["seconds"]
                    if (
                        waiting
                        and part["seconds"] >= _TELLING_S
                        and self._todo
                        and len(self._workers) < self._most_workers
                    ):
                        self._start(selector)
                self._now_and_then()

    def _start(self, selector: selectors.BaseSelector) -> None:
        worker = _Worker(self._options)
        self._workers.append(worker)
        selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _share(self) -> list[Folder]:
        """Take from what is left as much as one worker shall have, so that all have some."""
        count = min(_FOLDERS_AT_ONCE, -(-len(self._todo) // (2 * len(self._workers))))
        taken = self._todo[-count:]
        del self._todo[-count:]
        return taken

    def _take(self, part: Part) -> None:
        self.totals.add(part)
        self._todo += [(path, depth, kind) for path, depth, kind in part["todo"]]

    def _lost(self, worker: _Worker, selector: selectors.BaseSelector) -> None:
        """Give the folders of a process that is gone to the others; what it did not answer was not counted."""
        selector.unregister(worker.stdout)
        self._workers.remove(worker)
        self._todo += worker.folders
        code = worker.end()
        if not self._workers:
            raise DataError(
                f"the processes that look through the tree have ended (the last with exit code {code})",
                given=self._options["top"],
                next="the same with --resume continues with what is left; --workers 1 needs the least memory",
            )

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._told_s >= 1.0:
            self._told_s = now
            self._progress(self.totals)
        if now - self._saved_s >= self._save_every_s:
            self._save()
            # Writing down what is left takes at most a twentieth of the time.
            self._save_every_s = max(_SAVE_EVERY_S, 20 * (time.monotonic() - now))

    def _save(self) -> None:
        under_way = [folder for worker in self._workers for folder in worker.folders]
        left = list(dict.fromkeys([*self._todo, *under_way]))
        try:
            self._state.write({"options": self._options, "counted": self.totals.document(), "todo": left})
        except OSError as error:
            self.unsaved = f"{error.filename or self._state.whole.parent}: {error.strerror}"
        self._saved_s = time.monotonic()


class _Worker:
    """A process that looks through the folders it is given; `folders` are those it has not answered for."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # Control-C in a terminal is for whoever writes the state down
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self.stdout = self._process.stdin, self._process.stdout
        self.folders: list[Folder] = []
        self._send(options)

    def give(self, folders: list[Folder]) -> None:
        self.folders = folders
        self._send({"folders": folders, "budget_s": _BUDGET_S})

    def answer(self) -> Part | None:
        """Return the part that it has counted; None: it is gone."""
        line = self.stdout.readline()
        if not line.endswith("\n"):
            return None
        self.folders = []
        part: Part = json.loads(line)
        return part

    def end(self) -> int:
        """End it; return its exit code."""
        self._process.kill()
        code = self._process.wait()
        with suppress(BrokenPipeError):  # what it did not take
            self._stdin.close()
        self.stdout.close()
        return code

    def _send(self, document: Any) -> None:
        with suppress(BrokenPipeError):  # the selector says that it is gone
            self._stdin.write(json.dumps(document) + "\n")
            self._stdin.flush()


def file_system(path: str) -> tuple[str, str]:
    """Return the kind and the source of the file system that a path lies on, "" where the kernel does not say."""
    mount = mount_of(path, read_mounts("/"))
    return (mount.kind, mount.source) if mount else ("", "")
