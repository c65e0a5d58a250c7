"""What a run's ranks took, from what they told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.runs.folder import RunFolder
from cordee.systems.data.bench.need import need_of_run
from support.recordings.recording import made_node, write_recording


def run_of(folder: Path, names: tuple[str, ...] = ("corpus",), seconds: int = 10) -> RunFolder:
    """A run of two ranks: 100 and 300 samples a second, a fifth of the time waited."""
    node = made_node(0, 2)
    for rank, rate in ((0, 100.0), (1, 300.0)):
        node.logged[rank] = [
            (
                float(second),
                None,
                {
                    f"cordee/data/{name}/{total}": value
                    for name in names
                    for total, value in (("samples", rate * second), ("wait_seconds", 0.2 * second))
                },
            )
            for second in range(seconds)
        ]
    return RunFolder(write_recording(folder, [node]))


def test_a_rank_needs_what_it_took_in_the_time_it_did_not_wait(tmp_path):
    assert need_of_run(run_of(tmp_path), "/scratch/anything") == pytest.approx(200 / 0.8)


def test_of_several_data_sets_the_name_decides(tmp_path):
    run = run_of(tmp_path, ("web", "code"))
    assert need_of_run(run, "/scratch/code/") == pytest.approx(250)
    with pytest.raises(UsageError) as error:
        need_of_run(run, "/scratch/other")
    assert error.value.allowed == ["code", "web"]


def test_a_run_that_told_too_little_is_no_measure(tmp_path):
    with pytest.raises(UsageError, match="too short"):
        need_of_run(run_of(tmp_path / "a", seconds=1), "corpus")
    with pytest.raises(UsageError, match="nothing of its loading"):
        need_of_run(run_of(tmp_path / "b", names=()), "corpus")
