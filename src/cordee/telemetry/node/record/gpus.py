"""GPUs of the recorded processes, sampled in a thread of their own: a driver that hangs stops no other sample."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.machine.gpus.presence import gpu_device_file

if TYPE_CHECKING:
    from cordee.telemetry.node.gpu_sampler import GpuSampler
    from cordee.telemetry.node.samplers.gpu import GpuMetricSource
    from cordee.telemetry.node.samplers.gpu.attribution import GpuView

_NO_GPUS = "cpu"
_AUTO = "auto"
_SILENT_S = 10.0
_LAST_SAMPLE_S = 0.2


@dataclass(frozen=True)
class Claim:
    """What one process has to say of its GPUs: its rank, its number, the variables of its environment."""

    rank: int
    pid: int
    environ: Mapping[str, str]


@dataclass
class GpuNews:
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
        self._node = node
        self._source = source
        self._interval_s = interval_s
        self._orders: SimpleQueue[Optional[list[Claim]]] = SimpleQueue()
        self._news: SimpleQueue[GpuNews] = SimpleQueue()
        self._gathered: list[GpuNews] = []
        self._latest: list[Claim] = []
        self._claims: dict[int, dict[str, Any]] = {}
        self._opened: Optional[GpuMetricSource] = None
        self._sampler: Optional[GpuSampler] = None
        self._wanted: Optional[list[str]] = None
        self._records: list[bytes] = []
        self._pending = 0
        self._answered = False
        self._busy_since = 0.0
        self._thread: Optional[threading.Thread] = None

    def claims(self, claims: Sequence[Claim]) -> None:
        """Tell whose GPUs are to be sampled; the first call starts the thread."""
        if self._source == _NO_GPUS:
            return
        self._latest = list(claims)
        self._order(self._latest)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpus", daemon=True)
            self._thread.start()

    def sample(self) -> None:
        """Have a sample taken, unless the last one has not come yet: then this one is missing."""
        self._gather()
        if self._thread is not None and self._pending == 0:
            self._order(None)

    def news(self) -> list[GpuNews]:
        """Return what has been found out."""
        self._gather()
        found, self._gathered = self._gathered, []
        return found

    def _gather(self) -> None:
        while True:
            try:
                self._gathered.append(self._news.get_nowait())
            except Empty:
                return
            self._pending -= 1
            self._answered = True

    def last(self) -> list[GpuNews]:
        """Return what is still to come of what was ordered, as far as it comes soon."""
        found = self.news()
        deadline = time.monotonic() + _LAST_SAMPLE_S
        while self._pending and time.monotonic() < deadline:
            try:
                found.append(self._news.get(timeout=_LAST_SAMPLE_S))
                self._answered = True
            except Empty:
                break
            self._pending -= 1
        if self._pending and not self._answered:
            found.append(GpuNews(refused={"gpus": "their driver had not answered when the command ended"}))
        return found

    @property
    def silent_s(self) -> float:
        """For how long the driver has not answered; 0 while that is no reason to say so."""
        silent_s = time.monotonic() - self._busy_since if self._pending else 0.0
        return silent_s if silent_s >= max(_SILENT_S, 2 * self._interval_s) else 0.0

    def _order(self, order: Optional[list[Claim]]) -> None:
        if not self._pending:
            self._busy_since = time.monotonic()
        self._pending += 1
        self._orders.put(order)

    def _work(self) -> None:
        """Do what is ordered, one after the other; each order is answered by one piece of news."""
        while True:
            order = self._orders.get()
            news = GpuNews()
            try:
                if order is None:
                    news.records = self._sampled()
                elif order is self._latest:  # of ranks that come one after the other only the last call counts
                    self._open(order, news)
            except CordeeError as error:
                news.refused[self._source] = error.text
            except Exception as error:  # a library that misbehaves ends no other sample
                news.remarks.append(f"GPUs of {self._node} could not be sampled: {type(error).__name__}: {error}")
            self._news.put(news)

    def _open(self, claims: list[Claim], news: GpuNews) -> None:
        """Find out whose the GPUs are, and open a source for them if they are others than before."""
        from cordee.telemetry.node.gpu_sampler import GpuSampler
        from cordee.telemetry.node.samplers.gpu import REPLAY, open_gpus

        self._claims = {claim.rank: {"pid": claim.pid, "env": claim.environ} for claim in claims}
        view, wanted = (None, None) if self._source.startswith(REPLAY) else self._attributed(claims, news)
        if "gpus" in news.refused:
            news.remarks.append(f"GPUs of {self._node} were not sampled: {news.refused['gpus']}")
            return
        if self._sampler is not None and wanted == self._wanted:
            return
        if self._opened is not None:
            self._opened.close()
        self._sampler, self._wanted = None, wanted
        self._opened, refused = open_gpus(self._node, wanted, self._source, self._interval_s, self._roots)
        news.refused.update(refused)
        reasons = [f"{name}: {reason}" for name, reason in refused.items()]
        if self._opened is None:
            if self._expected(claims):
                news.remarks.append(f"GPUs of {self._node} were not sampled: {'; '.join(reasons)}")
            return
        news.source = self._opened.name
        news.remarks += self._opened.remarks
        if self._opened.coarse:
            news.remarks += [f"not used on {self._node}: {reason}" for reason in reasons]
        self._sampler = GpuSampler(
            self._node, self._interval_s, self._opened, view, lambda: self._claims, (), self._records.append
        )

    def _expected(self, claims: list[Claim]) -> bool:
        """Return whether somebody should be told that no GPU is sampled: they were asked for, or there are some."""
        return self._source != _AUTO or any(gpu_device_file("/", claim.environ) for claim in claims)

    def _attributed(self, claims: list[Claim], news: GpuNews) -> tuple[Optional[GpuView], Optional[list[str]]]:
        """Return what can be seen, and the GPUs of the job; None: all that can be seen."""
        from cordee.machine.gpus.presence import gpu_variables
        from cordee.telemetry.node.samplers.gpu.attribution import look, of_job, of_rank

        view, _ = look()
        environs = [gpu_variables(claim.environ) for claim in claims]
        if view is None:
            return None, None  # no NVML: what other sources show is what this process may open
        news.remarks += view.remarks
        for claim, environ in zip(claims, environs):
            news.devices[claim.rank] = of_rank(environ, view, len(claims)).devices
        of_all = of_job(environs, view)
        if of_all.devices is None:
            news.refused["gpus"] = f"whose they are cannot be told: {of_all.reason}"
        return view, of_all.devices

    def _sampled(self) -> bytes:
        if self._sampler is not None:
            self._sampler.sample()
        records = b"".join(self._records)
        self._records.clear()
        return records

    def _roots(self) -> dict[int, int]:
        return {rank: about["pid"] for rank, about in self._claims.items()}
