from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cordee.core.errors import DocumentError, UsageError
from cordee.systems.score import calibrate as calibration
from cordee.systems.score.calibrate import caps_of_recordings, steady_median, without_section, write_caps
from cordee.systems.score.cli import calibrate as command
from cordee.systems.score.roofs import read_caps, read_caps_file
from cordee.systems.score.validation.judge import write_document
from cordee.systems.score.validation.truths import truths
from support.nvml import FakeGpus
from support.recordings.recording import H100, STARTED_AT, made_node, write_recording

SAMPLES, CADENCE_S = 60, 0.2
PLACE = {"date": "2026-11-21T10:00:00Z", "driver": "575.57.08", "host": "gpu-a"}
REACHED = {
    "gemm-bf16": ("gpu_tensor_ratio", 0.91),
    "triad": ("gpu_dram_ratio", 0.88),
    "fma-fp64": ("gpu_fp64_ratio", 0.97),
    "fma-fp32": ("gpu_fp32_ratio", 0.98),
}


def recorded(
    folder: Path, workload: str, level: float, metric: str, gpus: int = 1, missing: dict[str, str] | None = None
) -> None:
    """A labelled recording: torch is imported for 3 s, then the kernel reaches `level`, then all is quiet."""
    chance = np.random.default_rng(len(workload))
    values = np.clip(level + 0.005 * chance.normal(size=(SAMPLES, gpus)), 0, 1)
    values[:15] = values[-5:] = 0.0
    graphics = np.where(values > 0, 1.0, 0.0)
    node = made_node(0, gpus, {metric: values, "gpu_graphics_ratio": graphics, "gpu_sm_ratio": graphics})
    node.missing = missing or {}
    write_recording(folder / workload, [node], cadence_s=CADENCE_S)
    marks = {"began": STARTED_AT + 15 * CADENCE_S, "ended": STARTED_AT + 55 * CADENCE_S, "told": {}}
    write_document(folder / workload, truths("gpu", workload)[0], marks, PLACE)


@pytest.fixture
def calibrated(tmp_path) -> Path:
    for workload, (metric, level) in REACHED.items():
        recorded(tmp_path / "recordings", workload, level, metric)
    return tmp_path / "recordings"


def test_caps_are_medians_of_the_steady_part_with_their_origin(calibrated, tmp_path):
    found = caps_of_recordings(calibrated)
    assert found.caps[H100] == pytest.approx({"tensor": 0.91, "dram": 0.88, "fp64": 0.97, "fp32": 0.98}, abs=0.005)
    write_caps(tmp_path / "caps.toml", found)
    about = read_caps_file(tmp_path / "caps.toml")["model"][H100]
    assert (about["date"], about["driver"], about["host"]) == ("2026-11-21", "575.57.08", "gpu-a")
    caps = read_caps(tmp_path / "caps.toml").of(H100)
    assert caps.measured
    assert caps.dram == found.caps[H100]["dram"]
    assert caps.origin == "cordee score calibrate, 2026-11-21"


def test_what_stands_in_the_file_stays_but_for_what_was_measured_anew(calibrated, tmp_path):
    path = tmp_path / "gpu-caps.toml"
    path.write_text(
        '# mine\n[fallback]\ndram = 0.7\n\n[model."NVIDIA L4"]\nsms = 58\n\n'
        f'[model."{H100}"]\ndram = 0.5\npeak_flops = 9e14\n\n[model."NVIDIA T4"]\nsms = 40\n'
    )
    write_caps(path, caps_of_recordings(calibrated))
    write_caps(path, caps_of_recordings(calibrated))
    document = read_caps_file(path)
    assert path.read_text().startswith("# mine\n")
    assert document["fallback"] == {"dram": 0.7}
    assert list(document["model"]) == ["NVIDIA L4", "NVIDIA T4", H100]
    assert document["model"][H100]["peak_flops"] == 9e14
    assert document["model"][H100]["dram"] == pytest.approx(0.88, abs=0.005)
    assert without_section('[model."a"]\nx = 1\n[model."b"]\ny = 2\n', "a") == '[model."b"]\ny = 2\n'


def test_a_file_that_is_none_of_caps_is_not_written_over(calibrated, tmp_path):
    (tmp_path / "caps.toml").write_text("[hosts]\na = 1\n")
    with pytest.raises(DocumentError, match="no such table"):
        write_caps(tmp_path / "caps.toml", caps_of_recordings(calibrated))
    assert (tmp_path / "caps.toml").read_text() == "[hosts]\na = 1\n"


def test_several_gpus_of_a_model_give_its_median_and_one_that_lags_is_told(tmp_path):
    recorded(tmp_path, "triad", 0.9, "gpu_dram_ratio", gpus=3)
    assert len(caps_of_recordings(tmp_path).measured) == 3
    recorded(tmp_path, "gemm-bf16", 0.3, "gpu_tensor_ratio")
    found = caps_of_recordings(tmp_path)
    assert list(found.caps[H100]) == ["dram"]
    assert any("was reached" in one.text for one in found.measured)


def test_samples_that_say_nothing_are_refused_with_the_reason():
    assert steady_median(np.full(20, 0.9)) == (0.9, "")
    for values, words in (
        (np.full(5, 0.9), "too few"),
        (np.full(20, np.nan), "too few"),
        (np.tile([0.5, 0.9], 20), "not steady"),
        (np.full(20, 0.2), "only 0.200"),
    ):
        value, text = steady_median(values)
        assert value is None
        assert words in text


def test_without_counters_of_pipes_nothing_is_written_and_the_reason_is_the_drivers(tmp_path):
    recorded(tmp_path, "triad", 0.9, "gpu_utilization_ratio", missing={"gpu_dram_ratio": "GPM: not supported"})
    with pytest.raises(UsageError) as raised:
        caps_of_recordings(tmp_path)
    assert "dram: GPM: not supported" in str(raised.value)
    with pytest.raises(UsageError, match="no cap could be measured"):
        caps_of_recordings(tmp_path / "absent")


def test_the_command_takes_caps_from_recordings(calibrated, tmp_path):
    words = ["--from", str(calibrated), "--output", str(tmp_path / "caps.toml"), "--json"]
    done = CliRunner().invoke(command.command, words, catch_exceptions=False)
    assert json.loads(done.output)["caps"][H100].keys() == {"tensor", "dram", "fp64", "fp32"}


@pytest.mark.usefixtures("real")
def test_without_a_gpu_nothing_is_calibrated_and_the_reason_is_torchs(tmp_path):
    with pytest.raises(UsageError) as raised:
        CliRunner().invoke(command.command, ["--output", str(tmp_path / "no.toml")], catch_exceptions=False)
    assert "there is no GPU to calibrate: " in str(raised.value)
    assert raised.value.exit_code == 2
    assert not (tmp_path / "no.toml").exists()


# A Python with torch and a GPU, as far as its callers can see: it says so, and its kernels wait.
STAND_IN = """#!{python}
import json, os, sys, time
words = dict(zip(sys.argv[3:], sys.argv[4:]))
if "probe" in sys.argv:
    gpu = {{"uuid": "{uuid}", "model": "{model}"}}
    print(json.dumps({{"gpus": [gpu], "torch": "2.9", "cuda": "13.0", "why": ""}}))
elif "triad" in sys.argv:
    print(json.dumps({{"cannot": "out of memory", "cause": "absent"}}))
    sys.exit(3)
else:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "{uuid}"
    began = time.time()
    time.sleep(float(words["--seconds"]))
    json.dump({{"began": began, "ended": time.time(), "told": {{}}}}, open(words["--marks"], "w"))
"""


@pytest.mark.usefixtures("real")
def test_kernels_are_recorded_one_gpu_at_a_time_and_what_fails_is_told(tmp_path, fake_nvml, monkeypatch):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml).gpm(
        1, {1: 99.0, 2: 98.0, 5: 92.0, 11: 97.0, 12: 96.0}
    )
    python = tmp_path / "python"
    python.write_text(STAND_IN.format(python=sys.executable, uuid=fake.uuid(1), model=H100))
    python.chmod(0o755)
    for name, value in {**fake.env, "CUDA_VISIBLE_DEVICES": "0,1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(calibration, "_SETTLING_S", 0.2)
    monkeypatch.setattr(calibration, "_FEWEST_SAMPLES", 3)
    said: list[str] = []
    found = calibration.calibrate(14.0, str(python), said.append)
    (caps,) = found.caps.values()
    assert caps == {"tensor": 0.92, "fp64": 0.97, "fp32": 0.96}
    assert [(one.device, one.text) for one in found.measured if one.cap == "dram"] == [(fake.uuid(1), "out of memory")]
    assert len(said) == 4
    assert found.place["torch"] == "2.9"
