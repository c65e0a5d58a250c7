"""`memory = "auto"`: as much as earlier runs of the job have shown to be needed, with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.core.words import counted
from cordee.job.load import LoadedJob
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.sizes.right_size import MEMORY_MARGIN
from cordee.systems.sizes.used import RunUse, use_of

_MOST_RUNS, _MOST_LOOKED_AT = 5, 20
# Of fewer runs than this nobody knows the largest yet.
_ENOUGH_RUNS, _FEW_MARGIN = 3, 2.0
# So near to what was asked for, a peak may have been cut off there.
_FULL, _LEAST_BYTES, _STEP_BYTES = 0.9, 256_000_000, 1_000_000


def auto_need(loaded: LoadedJob, runs: Path) -> tuple[dict[str, Any], list[Finding]]:
    """Return what stands in the place of `auto` in `[need]`, and why.

    Args:
        runs: the folder of runs, in which those of the same name are looked at.
    """
    uses = _known(loaded.job.name, runs)
    file, line = loaded.place("need", "memory")
    if not uses:
        text = f"no run of {loaded.job.name} in {runs} tells how much memory it needs: the scheduler's default holds"
        what = "run it once with a memory that is enough; `auto` then knows"
        return {"memory": None}, [Finding(text, "warn", "memory-auto", file, line, "auto", next=what)]
    each = max((use.memory_bytes or 0) / use.request["ranks_per_node"] for use in uses)
    newest = uses[0]
    ranks = loaded.job.need.ranks_per_node
    count = ranks if isinstance(ranks, int) else newest.request["ranks_per_node"]
    margin = MEMORY_MARGIN if len(uses) >= _ENOUGH_RUNS else _FEW_MARGIN
    asked = newest.request["memory_bytes"]
    wanted = margin * each * count
    shown = f"{counted(len(uses), 'run')} held {format_size(each)} for each rank at most, times {margin:g}"
    if asked and not newest.finished and (newest.memory_bytes or 0) > _FULL * asked:
        wanted = max(wanted, 2 * asked)
        shown = f"{newest.run} failed with {format_size(newest.memory_bytes or 0)} of {format_size(asked)}: twice that"
    memory = max(_LEAST_BYTES, -(-int(wanted) // _STEP_BYTES) * _STEP_BYTES)
    text = f"memory = auto asks for {format_size(memory)} on a node: {shown}"
    return {"memory": memory}, [Finding(text, "info", "memory-auto", file, line, "auto")]


def _known(name: str, runs: Path) -> list[RunUse]:
    """Return what the newest ended runs of a name have used, the newest first; those that do not tell are left out."""
    of_name = re.compile(rf"{re.escape(name)}-\d{{8}}T\d{{6}}Z-\w+")
    try:
        folders = sorted((path for path in runs.iterdir() if of_name.fullmatch(path.name)), reverse=True)
    except OSError:
        return []
    found: list[RunUse] = []
    for path in folders[:_MOST_LOOKED_AT]:
        folder = RunFolder(path)
        try:
            if replay(read_journal(folder.journal), folder.id).ended:
                use = use_of(folder)
                found += [use] if use.memory_bytes else []
        except (CordeeError, OSError, ValueError, KeyError):
            continue  # what cannot be read tells nothing
        if len(found) == _MOST_RUNS:
            break
    return found
