"""The report has the predicted peak beside the measured one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordee.runs.state import RunState
from cordee.systems.sizing.report import PredictedMemory
from cordee.telemetry.shown.section import Reported
from cordee.telemetry.store.reader import open_run
from cordee.testing.made.runs import MadeRun, write_run

PART = {"peak_bytes": 70 * 10**9, "interval_bytes": [60 * 10**9, 80 * 10**9], "method": "formula"}


def section(folder: Path, part: dict[str, Any] | None) -> PredictedMemory:
    """Return the section of a made run whose plan has this part."""
    made = write_run(folder, MadeRun(gpus=4, seconds=40))
    run = open_run(made.root)
    state: RunState = run.state
    return PredictedMemory(Reported(run, state, {"systems": {"sizing": part} if part else {}}, sampled=True))


def test_the_fullest_gpu_stands_beside_what_was_predicted(tmp_path):
    found = section(tmp_path, {**PART, "device": "h100"})
    document = found.document()
    assert document is not None
    values = open_run(next(tmp_path.iterdir())).grid("gpu", ["gpu_memory_used_bytes"]).values
    assert document["measured_bytes"] == pytest.approx(float(np.nanmax(values)))
    assert document["predicted_bytes"] == PART["peak_bytes"]
    assert "memory of one GPU" in found.html()
    assert "70 GB (60 GB to 80 GB, formula)" in "\n".join(found.lines())


def test_without_gpus_it_is_the_largest_rank_and_says_what_else_is_in_it(tmp_path):
    found = section(tmp_path, {**PART, "device": None})
    assert "libraries" in found.html()


def test_a_run_without_a_plan_of_memory_has_no_such_part(tmp_path):
    found = section(tmp_path, None)
    assert (found.document(), found.lines(), found.html(), found.missing) == (None, [], "", [])
