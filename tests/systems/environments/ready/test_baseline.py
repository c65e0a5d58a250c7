"""What an environment reached once, and whether it still does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.systems.environments.ready.baseline import against_baseline, baseline_path, keep_baseline
from cordee.systems.environments.ready.doctor import DoctorTrial

RATES = (100.0, 101.0, 99.0, 100.5, 99.5)


def trial(factor: float = 1.0, status: str = "pass", device: str = "") -> DoctorTrial:
    return DoctorTrial("compute", status, "text", rates=tuple(rate * factor for rate in RATES), device=device)


@pytest.fixture
def edf(tmp_path: Path) -> Path:
    path = tmp_path / "env.toml"
    assert keep_baseline(path, [trial(), DoctorTrial("python", "pass", "3")], 2) == tmp_path / "env.baseline.json"
    return path


@pytest.mark.parametrize(
    ("factor", "status", "share"),
    [(1.0, "pass", "100%"), (2.0, "pass", "200%"), (0.9, "pass", "90%"), (0.7, "warn", "70%"), (0.4, "fail", "40%")],
)
def test_slower_than_the_baseline_is_a_warning_and_half_as_fast_a_failure(edf, factor, status, share):
    (found,) = against_baseline(edf, [trial(factor)], 2)
    assert found.status == status
    assert f"{share} of the baseline of 20" in found.text


def test_what_noise_explains_is_no_news(edf):
    noisy = DoctorTrial("compute", "pass", "text", rates=(40.0, 110.0, 75.0, 60.0, 95.0))
    assert against_baseline(edf, [noisy], 2)[0].status == "pass"


@pytest.mark.parametrize(("ranks", "device"), [(4, ""), (2, "H100")])
def test_another_machine_is_not_compared_and_that_is_said(edf, ranks, device):
    first, second = against_baseline(edf, [trial(0.1, device=device)], ranks)
    assert (first.status, second.status) == ("pass", "unknown")
    assert "of another machine" in second.text


def test_without_a_baseline_it_is_said_how_one_is_measured_and_a_damaged_one_is_named(edf, tmp_path):
    first, second = against_baseline(tmp_path / "other.toml", [trial(0.1)], 2)
    assert first == trial(0.1)
    assert (second.what, second.status) == ("baseline", "unknown")
    assert f"cordee env doctor {tmp_path}/other.toml --keep" in second.next
    for text in ("{", "[]", json.dumps({"schema": "cordee.environment-baseline/2"})):
        baseline_path(edf).write_text(text)
        with pytest.raises(UsageError, match="the baseline cannot be read"):
            against_baseline(edf, [trial()], 2)


@pytest.mark.parametrize("trials", [[trial(status="fail")], [DoctorTrial("python", "pass", "3")]])
def test_a_failure_and_nothing_measured_are_no_baseline(tmp_path, trials):
    with pytest.raises(UsageError, match="no state to hold others against"):
        keep_baseline(tmp_path / "env.toml", trials, 2)
    assert list(tmp_path.iterdir()) == []
