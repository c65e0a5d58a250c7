"""GPUs of the recorded processes, sampled in a thread of their own: a driver that hangs stops no other sample."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Mapping, Optional, Sequence

from cordee.errors import CordeeError
from cordee.node.record.sampling import Sampling

_NO_GPUS = "cpu"
_REPLAY = "replay:"
_SILENT_S = 10.0
_LAST_SAMPLE_S = 0.2


@dataclass(frozen=True)
class Claim:
    """What one process has to say of its GPUs: its rank and the variables of its environment."""

    rank: int
    environ: Mapping[str, str]


@dataclass
class News:
    """What the thread has found out since it was asked last.

    Attributes:
        records: of the block log.
        source: the source that was opened, None: none yet, or no news.
        refused: why a source, or all, cannot measure.
        remarks: sentences for the reader of a score.
        devices: UUIDs by rank; None: not known.
    """

    records: bytes = b""
    source: Optional[str] = None
    refused: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    devices: dict[int, Optional[list[str]]] = field(default_factory=dict)


class GpuThread:
    """Opens a source for the GPUs of the processes, and takes a sample whenever it is told to.

    Args:
        node: the node's name.
        source: as `cordee record --source` has it.
        interval_s: seconds between samples.
    """

    def __init__(self, node: str, source: str, interval_s: float) -> None:
        self.roots: dict[int, int] = {}  # replaced as a whole, never changed: the thread reads it
        self._node = node
        self._source = source
        self._interval_s = interval_s
        self._orders: SimpleQueue[Any] = SimpleQueue()
        self._news: SimpleQueue[News] = SimpleQueue()
        self._sampling: Optional[Sampling] = None
        self._wanted: Optional[list[str]] = None
        self._owners: dict[str, dict[str, Any]] = {}
        self._pending = 0
        self._busy_since = 0.0
        self._thread: Optional[threading.Thread] = None

    def claims(self, claims: Sequence[Claim]) -> None:
        """Tell whose GPUs are to be sampled; the first call starts the thread."""
        if self._source == _NO_GPUS:
            return
        self._order(list(claims))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpus", daemon=True)
            self._thread.start()

    def sample(self, moment: float) -> None:
        """Have a sample taken, unless the last one has not come yet: then this one is missing."""
        if self._thread is not None and self._pending == 0:
            self._order(moment)

    def news(self) -> list[News]:
        """Return what has been found out."""
        found = []
        while True:
            try:
                found.append(self._news.get_nowait())
            except Empty:
                return found
            self._pending -= 1

    def last(self) -> list[News]:
        """Return what is still to come of what was ordered, as far as it comes soon."""
        found = self.news()
        deadline = time.monotonic() + _LAST_SAMPLE_S
        while self._pending and time.monotonic() < deadline:
            try:
                found.append(self._news.get(timeout=_LAST_SAMPLE_S))
            except Empty:
                break
            self._pending -= 1
        return found

    @property
    def silent_s(self) -> float:
        """For how long the driver has not answered; 0 while that is no reason to say so."""
        silent_s = time.monotonic() - self._busy_since if self._pending else 0.0
        return silent_s if silent_s >= max(_SILENT_S, 2 * self._interval_s) else 0.0

    def _order(self, order: Any) -> None:
        if not self._pending:
            self._busy_since = time.monotonic()
        self._pending += 1
        self._orders.put(order)

    def _work(self) -> None:
        """Do what is ordered, one after the other; each order is answered by one piece of news."""
        while True:
            order = self._orders.get()
            news = News()
            try:
                if isinstance(order, float):
                    news.records = self._sampled(order)
                else:
                    self._open(order, news)
            except CordeeError as error:
                news.refused[self._source] = error.text
            except Exception as error:  # a library that misbehaves ends no other sample
                news.remarks.append(f"GPUs of {self._node} could not be sampled: {type(error).__name__}: {error}")
            self._news.put(news)

    def _open(self, claims: list[Claim], news: News) -> None:
        """Find out whose the GPUs are, and open a source for them if they are others than before."""
        from cordee.node.samplers.gpu import open_gpus

        wanted: Optional[list[str]] = None
        if not self._source.startswith(_REPLAY):
            known, wanted = self._attributed(claims, news)
            if not known:
                return
        if self._sampling is not None:
            if wanted == self._wanted:
                return
            self._sampling.sampler.close()
        self._wanted = wanted
        opened, refused = open_gpus(self._node, wanted, self._source, self._interval_s, lambda: self.roots)
        self._sampling = None if opened is None else Sampling(self._node, "gpu", opened, self._interval_s)
        news.refused.update(refused)
        if opened is not None:
            news.source = opened.name
            news.remarks += opened.remarks

    def _attributed(self, claims: list[Claim], news: News) -> tuple[bool, Optional[list[str]]]:
        """Return whether the GPUs of the job are known, and which they are (None: all that can be seen)."""
        from cordee.node.samplers.gpu import attribution

        seen, reason = attribution.look()
        environs = [attribution.variables(claim.environ) for claim in claims]
        if seen is None:
            # Without a library that tells what there is, a list of the job's cannot be understood.
            known = not any(environs)
            if not known:
                news.refused["gpus"] = f"whose they are cannot be told: {reason}"
            return known, None
        news.remarks += seen.remarks
        for claim, environ in zip(claims, environs):
            of_rank = attribution.of_rank(environ, seen, len(claims))
            news.devices[claim.rank] = of_rank.devices
        owners: dict[str, list[int]] = {}
        for rank, devices in sorted(news.devices.items()):
            for uuid in devices or ():
                owners.setdefault(uuid, []).append(rank)
        self._owners = {uuid: {"ranks": ranks} for uuid, ranks in owners.items()}
        of_job = attribution.of_job(environs, seen)
        if of_job.devices is None:
            news.refused["gpus"] = f"whose they are cannot be told: {of_job.reason}"
        return of_job.devices is not None, of_job.devices

    def _sampled(self, moment: float) -> bytes:
        return b"" if self._sampling is None else self._sampling.take(moment, self._owners)
