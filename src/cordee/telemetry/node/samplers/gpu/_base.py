"""The seam of GPU sources: samplers of the group `gpu`, one row per GPU or MIG instance, by UUID."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from cordee.telemetry.node.catalogue import GPU, described
from cordee.telemetry.node.samplers._base import Sampler

# Every source lists of these the ones it gives, in this order.
ORDER = tuple(metric.name for metric in GPU)


_MOST_REMARKS = 40

# Returns the main process of each global rank of the job on this node.
Roots = Callable[[], Mapping[int, int]]


class SourceUnavailable(Exception):
    """A source cannot measure here; the text says what stands in the way and what to do."""


class GpuMetricSource(Sampler):
    """One source of GPU metrics, opened for some of a node's GPUs.

    `probe` finds out what the source really gives on this driver and these GPUs and may take a few tenths of a second;
    all other methods are called after it has returned None. A library's call may hang with the driver: whoever must not
    hang runs the source in a process of its own.

    Attributes:
        name: what `--source` calls it.
        coarse: whether it lacks the activity of SMs and pipes, so that a score from it is an upper bound.
        least_interval_s: samples closer to each other than this are NaN.
        missing: of every metric of the catalogue that was NaN in the last sample, or that this source never gives, why.
        remarks: sentences that the reader of the samples should know.
    """

    name = ""
    coarse = False
    least_interval_s = 0.0

    def __init__(
        self, wanted: Optional[Sequence[str]] = None, interval_s: float = 1.0, own: Optional[Roots] = None
    ) -> None:
        """Prepare to measure GPUs.

        Args:
            wanted: UUIDs of the GPUs or MIG instances, or unique beginnings of them; None: all that this process may see.
            interval_s: seconds between samples.
            own: the main processes of the job's ranks; with it `facts` tells who else uses a GPU. None: not known.
        """
        super().__init__()
        self.wanted = None if wanted is None else list(wanted)
        self.interval_s = interval_s
        self.own = own
        self.remarks: list[str] = []
        self.given: list[str] = []
        self.never: dict[str, str] = {}

    def metrics(self) -> list[dict[str, str]]:
        """Return the standard metrics that the source gives, in the order of the catalogue."""
        return [described(metric, self.name) for metric in self.given]

    def devices(self) -> list[Union[str, int]]:
        """Return UUIDs, also of GPUs that are lost at the moment."""
        raise NotImplementedError

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each GPU now: model, index, parent, share, memory_bytes, shared, lost and others."""
        return {}

    def note(self, what: str) -> None:
        """Add what happened now to the remarks; of one that happens again and again only the first times are kept."""
        if len(self.remarks) < _MOST_REMARKS:
            self.remarks.append(f"{time.strftime('%H:%M:%S', time.gmtime())} UTC: {what}")

    def give(self, found: Sequence[str], otherwise: str) -> None:
        """Settle what the source gives; of all other metrics `never` tells why, `otherwise` where it does not yet."""
        self.given = [metric for metric in ORDER if metric in found]
        self.never = {metric: self.never.get(metric, otherwise) for metric in ORDER if metric not in found}
        self.missing = dict(self.never)


def chosen(wanted: Optional[Sequence[str]], there: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return those of the UUIDs `there` that are wanted, in their order, and the wanted ones that none begins with.

    Like CUDA's, the names of wanted devices may be cut short as long as only one begins so.

    Raises:
        SourceUnavailable: several GPUs begin with a wanted name.
    """
    if wanted is None:
        return list(there), []
    found: list[str] = []
    absent: list[str] = []
    for name in wanted:
        matches = [uuid for uuid in there if uuid == name] or [uuid for uuid in there if uuid.startswith(name)]
        if len(matches) > 1:
            raise SourceUnavailable(f"{name} is the beginning of the UUIDs of {len(matches)} GPUs: give more of it")
        if not matches:
            absent.append(name)
        elif matches[0] not in found:
            found.append(matches[0])
    return [uuid for uuid in there if uuid in found], absent
