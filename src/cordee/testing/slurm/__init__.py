"""A real Slurm of one's own: unprivileged, in one private folder, with many nodes on one machine."""

from __future__ import annotations

from cordee.testing.slurm.cluster import DisposableSlurm
from cordee.testing.slurm.daemons import DisposableSlurmError

__all__ = ["DisposableSlurm", "DisposableSlurmError"]
