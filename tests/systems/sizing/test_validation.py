"""A validation goes on where one model cannot be run, and says at once that there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.validation import truth, validate

FOLDER = Path(validate.__file__).parent


@pytest.mark.usefixtures("real")
def test_a_model_that_cannot_be_run_says_why_and_the_next_one_is_run():
    requests = [validate._request(name, "fp32") for name in ("not_there", "vit")]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "truth.py"), json.dumps(requests)], capture_output=True, text=True, check=True
    )
    first, second = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert first["peak"] is None
    assert "not_there" in first["why"]
    assert second["peak"] > 70e6
    assert not second["why"]


@pytest.mark.usefixtures("real")
def test_a_validation_on_a_gpu_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = CliRunner().invoke(command, ["validate", "--gpu"])
    assert isinstance(done.exception, UsageError)
    assert "no GPU" in str(done.exception)


@pytest.mark.usefixtures("real")
def test_two_ranks_of_tensor_parallelism_hold_what_is_predicted():
    found = validate._of_ranks("split_llama", validate.RANKS[-1][1])
    assert found.measured, found.why
    assert -0.03 < found.error < 0.08


@pytest.fixture
def gpu(monkeypatch):
    """A machine that says that it has a GPU."""
    monkeypatch.setattr(validate, "_FINDS_GPU", "")


def test_what_was_not_run_when_the_time_was_over_is_told(gpu, monkeypatch):
    monkeypatch.setattr(validate, "_ALL_S", -1.0)
    done = CliRunner().invoke(command, ["validate", "--gpu", "--json"])
    told = json.loads(done.stdout)
    assert (told["cases"], told["traced"], told["fits_right"]) == (57, 0, None)
    assert {one["why"] for one in told["found"]} == {"not run: the time was over"}


def test_a_gpu_is_given_to_one_model_at_a_time_and_what_its_context_takes_counts(gpu, monkeypatch):
    traced = TracedModel("a", 800, 800, 1600, 0, 90, 800, 3290, 4000, 100, batch=8)
    beside, both = threading.Semaphore(1), []

    def measured(command, env=None, most_s=0.0):
        both.append(beside.acquire(blocking=False))
        time.sleep(0.02)
        beside.release()
        return [{"peak": 4100, "kept": 10**9, "why": ""}] * len(json.loads(command[-1])), ""

    monkeypatch.setattr(validate, "trace", lambda *args, **options: traced)
    monkeypatch.setattr(validate, "_measured", measured)
    monkeypatch.setattr(validate.os, "cpu_count", lambda: 16)
    found = list(validate.cases(gpu=True))
    assert (len(found), len(both), all(both)) == (57, 19, True)
    assert {one.predicted for one in found} == {4000}
    assert all(one.whole_measured == 10**9 and one.whole_predicted > 6e8 for one in found)


def test_a_gpus_peak_is_that_of_the_call_and_what_was_kept_has_the_context():
    calls = []
    cuda = SimpleNamespace(
        empty_cache=lambda: calls.append("empty"), memory_allocated=lambda: 7, reset_peak_memory_stats=lambda: None,
        synchronize=lambda: calls.append("done"), mem_get_info=lambda: (600, 1000), memory_reserved=lambda: 300,
        max_memory_allocated=lambda: 257, max_memory_reserved=lambda: 320,
    )  # fmt: skip
    assert truth.on_gpu(SimpleNamespace(cuda=cuda), lambda: calls.append("call")) == (250, 420)
    assert calls == ["empty", "call", "done"]


def test_a_child_that_takes_too_long_has_told_what_it_had_measured():
    code = 'import time; print(\'{"peak": 5, "kept": null, "why": ""}\', flush=True); time.sleep(60)'
    found, why = validate._measured([sys.executable, "-c", code], most_s=2.0)
    assert [one["peak"] for one in found] == [5]
    assert "more than 2 s" in why


def test_a_model_that_nobody_knows_is_refused():
    done = CliRunner().invoke(command, ["validate", "--model", "gtp"])
    assert isinstance(done.exception, UsageError)
    assert "gpt" in str(done.exception.next)


def test_it_is_told_right_whether_a_case_fits_as_often_as_its_error_is_small():
    assert validate.fits_right([(100.0, 100.0), (100.1, 100.0)]) == 1.0
    assert validate.fits_right([(200.0, 100.0)]) == 0.5
    assert 0.9 < validate.fits_right([(108.0, 100.0)]) < 0.96
    assert validate.fits_right([]) is None
