"""Jobs to read and to plan, as the platform's tests make them: what a system says of a job is seen in its plan."""

from __future__ import annotations

from ..job.conftest import faults, load
from ..job.plan.conftest import make, site

__all__ = ["faults", "load", "make", "site"]
