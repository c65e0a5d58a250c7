"""The report has the predicted peak beside the measured one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordee.runs.state import RunState
from cordee.systems.sizing.measured.calibration import calibrated
from cordee.systems.sizing.measured.report import PredictedMemory
from cordee.systems.sizing.measured.truths import truths
from cordee.systems.sizing.measured.views import PlanView
from cordee.telemetry.shown.section import Reported
from cordee.telemetry.store.reader import open_run
from support.made.runs import MadeRun, write_run

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


def test_what_was_measured_outside_of_the_interval_is_a_finding_and_the_plan_a_fact(tmp_path):
    made = write_run(tmp_path, MadeRun(gpus=4, seconds=40))
    run = open_run(made.root)
    measured = float(np.nanmax(run.grid("gpu", ["gpu_memory_used_bytes"]).values))
    inside = {**PART, "device": "h100", "interval_bytes": [measured * 0.9, measured * 1.1]}
    for part, rules in ((inside, []), ({**inside, "interval_bytes": [1, 2]}, ["plan-outside-interval"]), ({}, [])):
        view = PlanView(run.state, {"systems": {"sizing": part}})
        assert [one.rule for one in view.findings_of_samples(run)] == rules
        assert [name for name, _ in view.facts()] == (["memory planned"] if part else [])


def test_finished_runs_that_were_planned_and_measured_are_the_log_of_predictions(tmp_path):
    for number in range(3):
        made = write_run(tmp_path / str(number), MadeRun(gpus=4, seconds=40))
        plan = json.loads(made.plan.read_text())
        plan["steps"][0].setdefault("systems", {})["sizing"] = {**PART, "device": "h100", "planned_bytes": 10**10}
        made.plan.chmod(0o600)
        made.plan.write_text(json.dumps(plan))
    found = truths([tmp_path / str(number) for number in range(3)])
    assert [one.key for one in found] == ["gpu-formula"] * 3
    assert all(one.predicted == 10**10 and one.measured > 0 for one in found)
    assert set(calibrated(found)) == {"gpu-formula"}
