"""The machine that runs what lies in the queue, as the allocation of a supervisor."""

from __future__ import annotations

import os
from typing import Any

from cordee.backends.local.node.allocation import LocalAllocation


class SpoolAllocation(LocalAllocation):
    """One machine as any other, with a job that the queue knows."""

    @property
    def allocation(self) -> dict[str, Any]:
        """The job."""
        return {"job": os.environ["SPOOL_JOB"], "requeues": 0}
