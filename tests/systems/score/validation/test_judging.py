from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cordee.core.errors import UsageError
from cordee.faces.cli import main
from cordee.systems.score.validation import conduct
from cordee.systems.score.validation.judge import WorkloadJudgement, confusion, write_document
from cordee.systems.score.validation.table import verdict
from cordee.systems.score.validation.truths import CPU_TRUTHS, GPU_TRUTHS, HELD_OUT, TUNED, LabelledWorkload, truths
from support.recordings import scenarios as levels
from support.recordings.recording import STARTED_AT
from support.recordings.scenarios import Scenario, StepPhase
from support.recordings.workloads import MadeNoise, write_scenario

START_S, SECONDS = 6.0, 26.0
CALM, REST = levels.CALM, levels.REST


def cordee(*words: str) -> int:
    """Run the command and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([*words])
    return int(ended.value.code or 0)


def held(share: float, warps: int) -> levels.Levels:
    return {"graphics": 1.0, "sm": share, "occupancy": share * warps / 64, "fp32": 0.01}


def bursts(duty: float) -> tuple[StepPhase, ...]:
    return (StepPhase(duty, levels.GEMM, CALM), StepPhase(1 - duty, REST, CALM))


# What each workload is predicted to look like, and what it would tell of itself.
PREDICTED: dict[str, tuple[tuple[StepPhase, ...], dict[str, float]]] = {
    "gemm-bf16": ((StepPhase(1, levels.GEMM, CALM),), {}),
    "triad": ((StepPhase(1, levels.ELEMENTWISE, CALM),), {}),
    **{
        name: ((StepPhase(1, held(share, 1), CALM),), {"sm_ratio": share, "occupancy_ratio": share / 64})
        for name, share in (("spin-one-sm", 1 / 132), ("spin-quarter", 0.25), ("spin-half", 0.5), ("spin-all", 1.0))
    },
    **{
        f"warps-{warps}": ((StepPhase(1, held(1.0, warps), CALM),), {"sm_ratio": 1.0, "occupancy_ratio": warps / 64})
        for warps in (8, 16, 32, 64)
    },
    **{f"duty-{round(100 * duty)}": (bursts(duty), {"duty": duty}) for duty in (0.25, 0.5, 0.75)},
    "host-to-device": ((StepPhase(1, levels.COPY_IN, CALM),), {"bytes_per_second": 5.0e10}),
    "tiny-kernels": ((StepPhase(1, levels.TINY, levels.LAUNCHING),), {}),
    "loader-decoding": ((StepPhase(0.3, levels.GEMM, levels.DECODING), StepPhase(0.7, REST, levels.DECODING)), {}),
    "loader-sleeping": ((StepPhase(0.08, levels.GEMM, CALM), StepPhase(0.92, REST, levels.ASLEEP)), {}),
    "loader-sleeping-logged": ((StepPhase(0.08, levels.GEMM, CALM), StepPhase(0.92, REST, levels.ASLEEP)), {}),
    "fma-fp64": ((StepPhase(1, levels.FP64, CALM),), {}),
    "fma-fp32": ((StepPhase(1, levels.FP32, CALM),), {}),
    "checkpoint": ((StepPhase(1, REST, levels.WRITING),), {"bytes_per_second": 1.4e9}),
    "pointer-chase": ((StepPhase(1, levels.CHASE, CALM),), {}),
}


def recorded(
    folder: Path, truth: LabelledWorkload, phases: tuple[StepPhase, ...], told: dict[str, float]
) -> WorkloadJudgement:
    """Judge a made recording of a workload: it starts for 6 s, which are not labelled, and works for 20 s."""
    waits = truth.name.endswith("-logged")
    made = Scenario(truth.name, truth.classes, truth.half, phases, step_s=0.5, gpus=1, waits_logged=waits)
    noise = MadeNoise(level=0.01, devices=0.0, gaps=0.0, start_s=START_S, variety=0.0)
    write_scenario(made, folder, seconds=SECONDS, cadence_s=0.5, noise=noise)
    marks = {"began": STARTED_AT + START_S + 0.5, "ended": STARTED_AT + SECONDS, "told": told}
    write_document(folder, truth, marks, {"machine": "synthetic"})
    return conduct.judge_folder(folder)


@pytest.mark.parametrize("truth", GPU_TRUTHS, ids=lambda truth: truth.name)
def test_a_workload_that_looks_as_predicted_is_judged_right(truth, tmp_path):
    judgement = recorded(tmp_path / "r", truth, *PREDICTED[truth.name])
    assert judgement.status == "pass", judgement
    assert judgement.found in truth.classes


def test_a_missed_band_and_a_wrong_class_are_told_apart(tmp_path):
    (gemm,) = truths("gpu", "gemm-bf16")
    slow = {**levels.GEMM, "tensor": 0.62}
    judgement = recorded(tmp_path / "slow", gemm, (StepPhase(1, slow, CALM),), {})
    assert (judgement.status, judgement.class_right) == ("fail", True)
    assert [one.band.quantity for one in judgement.bands if one.status == "fail"] == ["gpu_tensor_ratio"]
    wrong = recorded(tmp_path / "wrong", gemm, (StepPhase(1, levels.ELEMENTWISE, CALM),), {})
    assert (wrong.status, wrong.found, wrong.class_right) == ("fail", "memory", False)
    assert confusion([judgement, wrong]) == {"compute": {"compute": 1, "memory": 1}}
    assert verdict([judgement, wrong]) == "fail"


def test_what_was_not_measured_or_told_is_unknown_and_never_passes(tmp_path):
    (copies,) = truths("gpu", "host-to-device")
    judgement = recorded(tmp_path / "r", copies, (StepPhase(1, levels.COPY_IN, CALM),), {})
    assert judgement.status == "unknown"
    assert judgement.bands[0].text == "the workload did not tell bytes_per_second"
    assert verdict([judgement]) == "unknown"


def test_the_band_of_a_link_is_asked_of_the_models_that_have_it(tmp_path):
    (copies,) = truths("gpu", "host-to-device")
    half = {**levels.COPY_IN, "pcie_in": 2.6e10}
    slow = recorded(tmp_path / "r", copies, (StepPhase(1, half, CALM),), {"bytes_per_second": 2.5e10})
    assert [one.status for one in slow.bands] == ["pass", "fail"]


def test_a_recording_with_too_little_labelled_time_is_not_judged(tmp_path):
    (gemm,) = truths("gpu", "gemm-bf16")
    recorded(tmp_path / "r", gemm, *PREDICTED["gemm-bf16"])
    document = json.loads((tmp_path / "r" / "validation.json").read_text())
    document["ended"] = document["began"] + 1.0
    (tmp_path / "r" / "validation.json").write_text(json.dumps(document))
    judgement = conduct.judge_folder(tmp_path / "r")
    assert (judgement.status, judgement.bands) == ("unknown", [])
    assert "samples lie in the labelled time" in judgement.text


def test_recordings_are_judged_again_with_one_document_and_exit_code_1_when_something_fails(tmp_path, capsys):
    for name, phases in (("gemm-bf16", PREDICTED["gemm-bf16"][0]), ("triad", PREDICTED["gemm-bf16"][0])):
        recorded(tmp_path / name, truths("gpu", name)[0], phases, {})
    assert cordee("score", "validate", "--from", str(tmp_path), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in document["workloads"]] == ["pass", "fail"]
    assert document["confusion"] == {"tuned": {"compute": {"compute": 1}}, "held out": {"memory": {"compute": 1}}}
    assert document["accuracy"] == {"tuned": 1.0, "held out": 0.0}
    assert cordee("score", "validate", "--from", str(tmp_path), "--only", "gemm-bf16") == 0
    assert "pass: 1 pass, 0 fail, 0 unknown" in capsys.readouterr().out
    assert cordee("score", "validate", "--from", str(tmp_path / "nothing")) == 2


def test_without_a_gpu_the_command_says_what_to_do_and_makes_nothing(tmp_path, capsys):
    target = tmp_path / "validation"
    assert cordee("score", "validate", "-o", str(target), "--python", "/bin/false") == 5
    capsys.readouterr()
    assert not target.exists()


def test_all_workloads_are_listed_with_their_halves_and_each_half_has_half_of_them(capsys):
    assert cordee("score", "validate", "--list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["workloads"]
    assert [one["name"] for one in listed] == [truth.name for truth in GPU_TRUTHS]
    for wanted in (GPU_TRUTHS, CPU_TRUTHS):
        halves = [truth.half for truth in wanted]
        assert abs(halves.count(TUNED) - halves.count(HELD_OUT)) <= 1
    assert set(PREDICTED) == {truth.name for truth in GPU_TRUTHS}


def test_a_workload_that_does_not_exist_and_too_little_time_are_refused():
    with pytest.raises(UsageError, match="no workload of this name"):
        truths("gpu", "gemm-bf16,linpack")
    with pytest.raises(UsageError, match="do not fit into this time"):
        conduct.steady_seconds(2.0, len(GPU_TRUTHS), "gpu")
    assert conduct.steady_seconds(8.0, len(GPU_TRUTHS), "gpu") >= 10.0
    assert np.isclose(conduct.steady_seconds(8.0, 2, "gpu"), 20.0)


# What a GPU node has, with a checkout of Cordée on its path: click and numpy, and nothing else that we depend on.
BARE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "yaml", "zarr", "numcodecs", "isal", "google_crc32c", "xarray", "rich", "jinja2", "fpdf"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Missing())
from cordee.faces.cli import main
main(["score", "validate", "--from", sys.argv[1], "--json"])
"""


def test_click_and_numpy_are_enough_to_judge_what_was_logged(tmp_path):
    (truth,) = truths("gpu", "loader-sleeping-logged")
    recorded(tmp_path / truth.name, truth, *PREDICTED[truth.name])
    done = subprocess.run([sys.executable, "-c", BARE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["workloads"][0]["status"] == "pass", done.stderr


def test_a_recording_that_cannot_be_judged_does_not_take_the_others_along(tmp_path, capsys, monkeypatch):
    for name in ("gemm-bf16", "triad"):
        recorded(tmp_path / name, truths("gpu", name)[0], *PREDICTED[name])

    def load_or_fail(folder):
        if folder.name == "gemm-bf16":
            raise ModuleNotFoundError("No module named 'google_crc32c'")
        return load(folder)

    from cordee.systems.score.load import load

    monkeypatch.setattr("cordee.systems.score.load.load", load_or_fail)
    assert cordee("score", "validate", "--from", str(tmp_path), "--json") == 1
    bad, good = json.loads(capsys.readouterr().out)["workloads"]
    assert (bad["status"], good["status"]) == ("unknown", "pass")
    assert "google_crc32c" in bad["text"]
    assert "--from" in bad["text"]
