"""A real HTCondor pool of one's own: in one private folder, with many execution points on one machine that share no files."""

from __future__ import annotations

from cordee.testing.htcondor.pool import DisposablePool
from cordee.testing.htcondor.programs import DisposablePoolError

__all__ = ["DisposablePool", "DisposablePoolError"]
