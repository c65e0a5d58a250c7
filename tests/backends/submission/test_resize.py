"""An ended run is asked for with another number of nodes or ranks: its plan and its script say so, and nothing else changes."""

from __future__ import annotations

import pytest

from cordee.backends.resize import resize
from cordee.core.errors import UsageError
from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.prepare import create_run, prepare


def made(tmp_path, need):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("")
    (tmp_path / "job" / "cordee.toml").write_text(f'name = "t"\nrun = "python train.py"\n[need]\n{need}\n')
    return create_run(prepare(str(tmp_path / "job"), "local", {}, tmp_path / "runs"))


def request(folder):
    found = plan_of(folder)["steps"][0]["request"]
    return found["nodes"], found["min_nodes"], found["ranks_per_node"]


@pytest.mark.parametrize(
    ("need", "nodes", "ranks_per_node", "expected"),
    [
        ("nodes = 2", 4, None, (4, 4, 1)),
        ("nodes = 4\nmin_nodes = 3\nranks_per_node = 2", 2, 3, (2, 2, 3)),
        ("nodes = 4\nmin_nodes = 1", 8, None, (8, 1, 1)),
        ("nodes = 2", None, 2, (2, 2, 2)),
    ],
)
def test_the_plan_and_the_script_ask_for_what_was_said(tmp_path, need, nodes, ranks_per_node, expected):
    folder = made(tmp_path, need)
    before = plan_of(folder)
    assert resize(folder, nodes, ranks_per_node) == {"nodes": expected[0], "ranks_per_node": expected[2]}
    assert request(folder) == expected
    script = (folder.submit / submitter_of(folder).script_name).read_text()
    assert f"on each of {expected[0]} nodes" in script
    after = plan_of(folder)
    for plan in (before, after):
        for name in ("nodes", "min_nodes", "ranks_per_node"):
            del plan["steps"][0]["request"][name]
    assert before == after


def test_what_is_planned_already_changes_nothing(tmp_path):
    folder = made(tmp_path, "nodes = 2")
    before = folder.plan.stat().st_mtime_ns
    assert resize(folder, 2, None) == {}
    assert folder.plan.stat().st_mtime_ns == before


def test_ranks_that_have_gpus_of_their_own_stay_as_many(tmp_path):
    folder = made(tmp_path, "gpus_per_node = 4")
    with pytest.raises(UsageError, match="given its GPUs"):
        resize(folder, None, 2)
    assert request(folder) == (1, 1, 4)


def test_one_machine_is_no_place_for_a_hundred_nodes(tmp_path):
    folder = made(tmp_path, "nodes = 2")
    with pytest.raises(UsageError, match="too many nodes"):
        resize(folder, 100, None)
    assert request(folder) == (2, 2, 1)


def test_a_run_whose_processes_do_not_end_is_left_as_it_is(tmp_path, monkeypatch):
    folder = made(tmp_path, "nodes = 2")
    monkeypatch.setattr("cordee.backends.resize._ENDING_S", 0.0)
    monkeypatch.setattr("cordee.backends.local.submitter.processes.with_marker", lambda prefix: [1])
    with pytest.raises(UsageError, match="still ending"):
        resize(folder, 4, None)
    assert request(folder) == (2, 2, 1)
