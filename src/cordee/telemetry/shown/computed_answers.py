"""What takes long to say of a run: computed in a process of its own so that pages stay quick, kept until the run has gone on."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder

EVERY_S = 30.0
_LONGEST_S = 300.0


@dataclass(frozen=True)
class ComputedDocument:
    """What came of computing.

    Attributes:
        at: UTC epoch seconds.
        ended: whether the run had ended, so that it stays as it is.
        document: None where `why` says why there is none.
    """

    at: float
    ended: bool
    document: dict[str, Any] | None = None
    why: str = ""
    next: str | None = None


class ComputedDocuments:
    """Documents of runs, one computed at a time.

    Attributes:
        module: is run with the run's folder as its argument, and prints the document or that of an error.
        what: is computed, as a sentence begins: `scoring`.
        command: says the same in a terminal, however long it takes.
        most_kept: how many are remembered.
    """

    module: ClassVar[str]
    what: ClassVar[str]
    command: ClassVar[str]
    most_kept: ClassVar[int] = 64

    def __init__(self) -> None:
        self._known: OrderedDict[str, ComputedDocument] = OrderedDict()
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, self.what)
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def found(self, run: str) -> dict[str, Any] | None:
        """Return a run's document where it was computed already."""
        found = self._known.get(run)
        return None if found is None else found.document

    def ask(self, run: str, folder: RunFolder, *, ended: bool) -> tuple[ComputedDocument | None, bool]:
        """Return what is known of a run, and whether it is being computed; of a run that goes on every 30 s at most."""
        with self._lock:
            found = self._known.get(run)
            recent = found is not None and time.time() - found.at < EVERY_S
            fresh = found is not None and ((found.ended and (recent or not found.why)) or (not ended and recent))
            if not fresh and run not in self._pending and not self._closed:
                self._pending.add(run)
                self._pool.submit(self._compute, run, folder, ended)
            return found, run in self._pending

    def close(self) -> None:
        """End what is being computed."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compute(self, run: str, folder: RunFolder, ended: bool) -> None:
        try:
            computed = self._run_child(folder, ended)
        except OSError as error:
            computed = ComputedDocument(time.time(), False, why=f"{self.what} could not be started: {error}")
        with self._lock:
            self._pending.discard(run)
            self._known[run] = computed
            self._known.move_to_end(run)
            while len(self._known) > self.most_kept:
                self._known.popitem(last=False)

    def _run_child(self, folder: RunFolder, ended: bool) -> ComputedDocument:
        argv = module_argv(self.module, str(folder.root), user_site=True)
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        ) as child:
            self._child = child
            try:
                output, _ = child.communicate(timeout=_LONGEST_S)
            except subprocess.TimeoutExpired:
                child.kill()
                why = f"{self.what} took over {_LONGEST_S:.0f} s"
                return ComputedDocument(time.time(), ended, why=why, next=f"`{self.command}` takes its time")
            finally:
                self._child = None
        try:
            document = json.loads(output)
        except ValueError:
            why = f"{self.what} ended without a result"
            return ComputedDocument(time.time(), ended, why=why, next=f"`{self.command}` says more")
        if "error" in document:
            error = document["error"]
            return ComputedDocument(time.time(), ended, why=str(error["text"]), next=error.get("next"))
        return ComputedDocument(time.time(), ended, document)
