"""What the driver says of the soundness of GPUs, for the agent that sees what has changed: read where GPUs are sampled."""

from __future__ import annotations

import json
import time
from typing import Any, Mapping, Optional, Sequence

from cordee.machine.gpus.driver import open_gpus
from cordee.machine.gpus.model import GpusUnreadable, gpu_document
from cordee.telemetry.node.blocklog import HEALTH, encode_record

_EVERY_S, _SAMPLES = 10.0, 10
# 18 links with four counters each cost as much as all else together.
_LINKS_EVERY = 6
_PARTS = ("ecc", "throttle", "pcie")


class GpuHealth:
    """Asks every ten seconds, or ten samples if those are nearer; for links at every sixth time.

    Args:
        wanted: UUIDs of the job's GPUs; None: all that the driver shows.
        interval_s: seconds between samples.

    Raises:
        GpusUnreadable: there is no driver's library that can be asked.
    """

    def __init__(self, wanted: Optional[Sequence[str]], interval_s: float) -> None:
        self._source, self._wanted = open_gpus(), wanted
        self._every_s = min(_EVERY_S, _SAMPLES * interval_s)
        self._due, self._looks = 0.0, 0

    def record(self, ranks: Mapping[str, Sequence[int]]) -> bytes:
        """Return a record of what is told now, empty until it is time or there are XIDs.

        Args:
            ranks: on each GPU, by UUID.
        """
        now = time.monotonic()
        xids = [xid for xid in self._source.xids() if self._wanted is None or xid[0] in self._wanted]
        if now < self._due:
            return _record([], ranks, xids) if xids else b""
        self._due = now + self._every_s
        parts = _PARTS if self._looks % _LINKS_EVERY else (*_PARTS, "links")
        self._looks += 1
        try:
            gpus = self._source.read(parts)
        except GpusUnreadable:
            return b""
        # One that does not answer has no UUID: it may be one of the job's.
        told = [gpu_document(gpu) for gpu in gpus if self._wanted is None or gpu.uuid in (None, *self._wanted)]
        return _record(told, ranks, xids)


def _record(gpus: list[dict[str, Any]], ranks: Mapping[str, Sequence[int]], xids: list[tuple[str, int]]) -> bytes:
    return encode_record(HEALTH, json.dumps({"gpus": gpus, "ranks": ranks, "xids": xids}).encode())
