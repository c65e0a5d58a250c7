"""Saves of one rank that go on beside the training: its snapshot in memory, and the process that writes it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
import warnings
from typing import Any, Callable, NamedTuple, Optional

from cordee.systems.checkpoints.node.layout import SnapshotLayout, layout_of
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.ranks import gathered
from cordee.systems.checkpoints.node.snapshot import ABANDON, GO_ON, HURRY, SnapshotMemory, storage_writer
from cordee.systems.checkpoints.node.sums import files_of
from cordee.systems.checkpoints.node.tiers.writer_links import (
    KeptWriter,
    WriterLink,
    goes_to_a_store,
    keeper_for,
    kept_on_nodes,
    kept_writer,
    started_writer,
)
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace
from cordee.systems.checkpoints.node.write_rate import Pace, StepTimes
from cordee.systems.checkpoints.node.writer import SETTLE, WriteRequest, leave_word

_SETTLE = json.dumps(SETTLE).encode() + b"\n"
_END_S = 10.0
# How long a keeper that has ended may take to be there again.
_COMES_BACK_S = 30.0


class SaveInFlight(NamedTuple):
    """A save under way: its step, when it began (monotonic), how long the training waited for it, whether it goes to shared
    storage now, and from there to the object store."""

    step: int
    began: float
    stall_s: float
    drains: bool = True
    stores: bool = False


class BackgroundSaves:
    """One rank's saves beside the training, one at a time.

    Args:
        folder: that checkpoints lie in.
        pace: of their writing.
        tell: told (step, seconds, bytes, seconds that the training waited) when a save's part of this rank is on the disk.
        remark: told (rule, text) of what is not as it should be.
        expected: returns about how many bytes a save of this rank has, once it trains.

    Attributes:
        flight: the save under way, None without one. Where saves are kept on nodes, it is over once it lies there.
        draining: the save that is on its way to shared storage meanwhile; `storing`: to the object store.
        steps: what steps take, for the pace.
    """

    def __init__(
        self,
        folder: str,
        pace: Pace,
        tell: Callable[[int, float, int, float], None],
        remark: Callable[[str, str], None],
        expected: Callable[[], int],
    ) -> None:
        import torch.distributed.checkpoint.state_dict  # noqa: F401 - the first save shall not wait for it

        self._pace, self._tell, self._remark, self._expected = pace, tell, remark, expected
        self._keeper = keeper_for(folder)
        self.tiered = kept_on_nodes(self._keeper)
        self._has_store = self.tiered and goes_to_a_store()
        self._memory: Optional[SnapshotMemory] = None
        self._writer: Optional[WriterLink] = None
        self._news = threading.Condition()
        self._written: Optional[str] = None
        self._complete: Optional[tuple[str, str]] = None
        self._settled: Optional[str] = ""
        self._undrained = ""
        self._requests: dict[int, WriteRequest] = {}
        self._starting = threading.Lock()
        self._storage: Any = None
        self._layout: Optional[SnapshotLayout] = None
        self._completes, self._bytes = False, 0
        self._part: tuple[str, int] = ("", 0)
        self._owner = os.getpid()
        self.flight: Optional[SaveInFlight] = None
        self.draining: Optional[SaveInFlight] = None
        self.storing: Optional[SaveInFlight] = None
        self.steps = StepTimes()
        atexit.register(self.close)

    def snapshot(self, state: dict[str, Any], partial: str) -> None:
        """Copy a state into memory, as PyTorch would write it; every rank calls this."""
        import torch.distributed.checkpoint as dcp

        memory = self._memory = self._memory or SnapshotMemory()
        memory.begin()
        layout = self._layout
        if all(gathered(layout is not None and layout.fits(state))):
            assert layout is not None
            layout.copy()
            memory.go_on(layout.files, layout.end)
            return
        self._storage = storage_writer(memory, partial)
        self._layout = None
        dcp.save(state, storage_writer=self._storage)
        self._layout = layout_of(memory, *self._storage.part) if self._storage.part else None

    @property
    def lack(self) -> str:
        """Why the snapshot did not fit into memory, so that its files were written at once; empty where it did."""
        return self._storage.lack or "" if self._storage is not None else ""

    def keep(self, name: str, save: Callable[[Any], None]) -> None:
        """Add a file that `save` writes into what it is given."""
        assert self._memory is not None
        with self._memory.file(name) as file:
            save(file)

    def hand_over(
        self,
        flight: SaveInFlight,
        partial: str,
        interval_s: Optional[float],
        rank: int,
        completion: Completion,
        place: CheckpointPlace,
    ) -> None:
        """Have the snapshot written; returns at once.

        Raises:
            OSError: the process that writes cannot be started, or is gone.
        """
        assert self._memory is not None
        own = files_of(partial, rank) if self.lack else []
        first = rank == 0
        request = WriteRequest(
            rank,
            partial,
            self._memory.size,
            self._memory.files,
            own,
            interval_s,
            self._pace,
            list(completion) if first else None,
            place.handed_over() if first else None,
            flight.drains,
            flight.stores,
        )
        under_way = {one.step for one in (self.draining, self.storing) if one is not None}
        still = {step: one for step, one in self._requests.items() if step in under_way - {flight.step}}
        self._requests = {**still, flight.step: request}
        self._written, self._completes, self.flight = None, first, flight
        if flight.drains:
            self._complete, self.draining = None, flight if self.tiered else None
            self._part = (partial, rank)
        if flight.stores and self._has_store:
            self.storing = flight
        self.steps.broke_off()
        try:
            self._started().ask(json.dumps(request).encode() + b"\n")
        except OSError:
            self.flight = self.draining = self.storing = None
            raise

    def saw(self, step: int) -> None:
        """Take note that a step has ended, so that writing slows down where steps do."""
        if self._memory is None:
            self._memory = SnapshotMemory()
            self._memory.expect(self._expected())
        beside = self.draining is not None or (self.flight is not None and self._written is None)
        self.steps.saw(step, beside=beside)
        if beside and self._memory is not None:
            self._memory.say(GO_ON, self.steps.limit_s, self.steps.recent_s)

    def finish_part(self) -> str:
        """Have this rank's part written without a pause, wait for it, and return what went wrong, else nothing."""
        if not self.tiered:
            self._say(HURRY)
        with self._news:
            while self._written is None:
                self._news.wait()
        return self._written

    def finish(self) -> tuple[str, str]:
        """Wait until rank 0's writer has completed the checkpoint; returns (its path, what went wrong)."""
        with self._news:
            while self._complete is None:
                self._news.wait()
        return self._complete

    def give_up(self) -> None:
        """Do not complete the save under way."""
        if self.flight is None or self.flight.drains:
            self._say(ABANDON)

    def landed(self) -> None:
        """Nothing is under way any more, but for what goes on to shared storage."""
        self.flight = None

    def settle(self) -> str:
        """Have the newest save on shared storage, wait for it, and return what went wrong, else nothing."""
        if not self.tiered or self._writer is None or (self._writer.gone and not self._left()):
            return ""
        self._say(HURRY)
        writer = self._started()
        self._settled, self._undrained = None, ""
        try:
            writer.ask(_SETTLE)
        except OSError:
            return writer.ended()
        with self._news:
            while self._settled is None:
                self._news.wait()
        return self._undrained

    def _say(self, word: int) -> None:
        if self._memory is not None:
            self._memory.say(word)

    def _started(self) -> WriterLink:
        with self._starting:
            if self._writer is None or self._writer.gone:
                assert self._memory is not None
                self._begin(started_writer(self._memory.descriptor, self._keeper))
            assert self._writer is not None
            return self._writer

    def _begin(self, writer: WriterLink) -> None:
        """Have a writer, which first goes on with what the one before it did not bring further."""
        if not isinstance(writer, KeptWriter):
            self.tiered, self.draining, self.storing = False, None, None
        left = self._left()
        self._requests.update(left)
        self._writer = writer
        threading.Thread(target=self._listen, args=(writer,), name="cordee-checkpoint", daemon=True).start()
        with contextlib.suppress(OSError):  # the one that listens hears of it
            for request in left.values():
                writer.ask(json.dumps(request).encode() + b"\n")
            if self._settled is None:
                writer.ask(_SETTLE)

    def _left(self) -> dict[int, WriteRequest]:
        """Return what another writer is asked of the parts that lie on this node, by step; of each only once."""
        on_node = {step: one for step, one in self._requests.items() if self.tiered and not one.kept}
        if self.flight is not None and self._written != "":
            on_node.pop(self.flight.step, None)
        left = {}
        for step, request in on_node.items():
            if self.draining is not None and step == self.draining.step:
                left[step] = request._replace(kept=True)
            elif self.storing is not None and step == self.storing.step:
                left[step] = request._replace(kept=True, drains=False)
            elif not request.drains and step == max(self._requests):
                left[step] = request._replace(kept=True)
        return left

    def _replaced(self, ended: WriterLink) -> bool:
        """Have another writer go on in place of one that has ended, if there is something; return whether one does."""
        if not self._left() or (self.flight is not None and self._written is None):
            return False
        assert self._memory is not None
        writer = kept_writer(self._memory.descriptor, self._keeper, _COMES_BACK_S)
        with self._starting:
            if self._writer is ended and writer is not None:
                self._begin(writer)
            elif writer is not None:
                writer.close(_END_S)  # a save has one already
            return self._writer is not ended

    def _listen(self, writer: WriterLink) -> None:
        """Hear what the writer says until it ends."""
        with contextlib.suppress(OSError, ValueError):
            for line in writer.answers:
                self._heard(json.loads(line))
        if writer is self._writer and not writer.gone:  # else it was let go
            ended = writer.ended()
            if self._replaced(writer):
                return
            self._leave_failure(ended)
            self._heard({"failed": ended, "undrained": ended, "settled": True})

    def _leave_failure(self, why: str) -> None:
        """Have the writer of rank 0 not wait for a part that this rank's writer has not brought to shared storage."""
        lost = self.draining is not None if self.tiered else self.flight is not None and self._written is None
        if lost and not self._completes:
            partial, rank = self._part
            with contextlib.suppress(OSError):
                leave_word(partial, rank, {"failed": f"rank {rank}: {why}"})

    def _heard(self, said: dict[str, Any]) -> None:
        self._bytes = said.get("written", self._bytes)
        for flight in {self.flight, self.draining}:
            if flight is not None and self._end_of(flight) in said:
                self._tell(flight.step, time.monotonic() - flight.began, self._bytes, flight.stall_s)
        if "alone" in said:
            self._remark("checkpoint-not-copied", f"no other node has a copy of the newest save: {said['alone']}")
        with self._news:
            failed = str(said.get("failed", ""))
            if self._written is None and ("written" in said or failed):
                self._written = failed
            if failed:
                self._requests = {}
            if failed or "complete" in said:
                self._complete = self._complete or (str(said.get("complete", "")), failed)
            if self.draining is not None and {self._end_of(self.draining), "undrained", "failed"} & set(said):
                self.draining = None
            if {"stored", "unstored", "failed"} & set(said):
                self.storing = None
            self._undrained = self._undrained or str(said.get("undrained", ""))
            self._settled = str(said["settled"]) if "settled" in said else self._settled
            self._news.notify_all()
        if said.get("unstored"):
            self._remark(
                "checkpoint-not-stored", f"a save is on shared storage and not in the object store: {said['unstored']}"
            )
        if said.get("undrained"):
            self._remark("checkpoint-failed", f"a save stays on the nodes for now: {said['undrained']}")

    def _end_of(self, flight: SaveInFlight) -> str:
        """Return the word that says that this rank has nothing more to do with a save."""
        if self.tiered and not flight.drains:
            return "written"
        return "complete" if self._completes else "drained" if self.tiered else "written"

    def close(self) -> None:
        """Let what is under way be complete, and the writer end; done when this process ends, too."""
        if os.getpid() != self._owner or self._writer is None or self._writer.gone:
            return
        if self.tiered and getattr(sys, "last_type", None) is not None:
            return  # an exception ends this process, maybe as other ranks are gone: what lies on nodes is gathered from there
        if self.flight is not None:
            problem = self.finish_part()
            if not problem and self._completes and not self.tiered:
                problem = self.finish()[1]
            if problem:
                warnings.warn(f"step {self.flight.step} was not saved: {problem}", RuntimeWarning, stacklevel=2)
        problem = self.settle()
        if problem:
            warnings.warn(f"a save is not on shared storage: {problem}", RuntimeWarning, stacklevel=2)
        self._writer.close(_END_S)
