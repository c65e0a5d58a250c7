"""What a training takes, from what its ranks told while it ran."""

from __future__ import annotations

import os
import statistics

import numpy as np

from cordee.core.errors import UsageError
from cordee.runs.folder import RunFolder
from cordee.telemetry.store.reader import open_run

_PREFIX, _SAMPLES, _WAIT = "cordee/data/", "/samples", "/wait_seconds"


def need_of_run(folder: RunFolder, target: str) -> float:
    """Return how many samples per second one rank of a run takes when it never waits for them; the median over ranks.

    Source: the totals that `cordee.dataset` tells: samples given, by the time in which the loop did not wait.

    Args:
        target: picks the data set by its name where the run reads several.

    Raises:
        UsageError: the run told nothing of its loading, too little, or of several data sets of other names.
    """
    run = open_run(folder.root)
    names = sorted(
        name[len(_PREFIX) : -len(_SAMPLES)]
        for name in run.logged()
        if name.startswith(_PREFIX) and name.endswith(_SAMPLES)
    )
    name = _chosen(names, target, folder.id)
    samples = run.events(f"{_PREFIX}{name}{_SAMPLES}")[f"{_PREFIX}{name}{_SAMPLES}"]
    waits = run.events(f"{_PREFIX}{name}{_WAIT}")[f"{_PREFIX}{name}{_WAIT}"]
    needs = []
    newest = samples["attempt"].max()
    for rank in np.unique(samples["rank"]):
        given = samples[(samples["attempt"] == newest) & (samples["rank"] == rank)]
        waited = waits[(waits["attempt"] == newest) & (waits["rank"] == rank)]
        if len(given) < 2 or len(waited) < 2:
            continue
        busy_s = (given["time"][-1] - given["time"][0]) - (waited["value"][-1] - waited["value"][0])
        if busy_s > 0 and given["value"][-1] > given["value"][0]:
            needs.append(float((given["value"][-1] - given["value"][0]) / busy_s))
    if not needs:
        raise UsageError(
            "the run was too short to tell what it takes",
            given=folder.id,
            allowed="a run of some seconds that reads by cordee.dataset",
            next="give --need SAMPLES_PER_S",
        )
    return statistics.median(needs)


def _chosen(names: list[str], target: str, run: str) -> str:
    wanted = os.path.basename(os.path.normpath(target))
    if len(names) == 1 or wanted in names:
        return wanted if wanted in names else names[0]
    if not names:
        raise UsageError(
            "the run told nothing of its loading",
            given=run,
            allowed="a run whose script reads by cordee.dataset",
            next="give --need SAMPLES_PER_S",
        )
    raise UsageError(
        "the run reads several data sets", given=target, allowed=names, next="give --need SAMPLES_PER_S for this one"
    )
