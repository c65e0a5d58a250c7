"""Where a run reads and writes, as far as its plan says it."""

from __future__ import annotations

import os

from cordee.runs.plan import RunPlan


def used_paths(plan: RunPlan) -> list[str]:
    """Return paths on the file systems that a run is known to use."""
    places = (plan.step.checkpoint.path, os.environ.get("TMPDIR", ""))
    return [path for path in (plan.folder, plan.workdir, plan.job_folder, *places, "/tmp", "/dev/shm") if path]
