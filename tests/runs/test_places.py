"""Where runs go and are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.documents.config_paths import profile_runs, runs_path
from cordee.job.submit.prepare import prepare
from cordee.job.terminal.options import runs_folder, runs_folders
from cordee.runs.folder import RunFolder
from cordee.runs.index import find_run, list_runs
from cordee.runs.journal import JournalWriter


@pytest.fixture
def profiles(tmp_path, monkeypatch):
    """Two clusters, one of which has a folder for runs; nothing else is set."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/big.toml").write_text(f'scheduler = "local"\nruns = "{tmp_path}/$GROUP/runs"\n')
    (tmp_path / "clusters/small.toml").write_text('scheduler = "local"\n')
    (tmp_path / "clusters/torn.toml").write_text("runs = [")
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("GROUP", "climbers")
    monkeypatch.delenv("CORDEE_RUNS", raising=False)
    (tmp_path / "job").mkdir()
    (tmp_path / "job/cordee.toml").write_text('name = "t"\nrun = "true"\n')
    monkeypatch.chdir(tmp_path / "job")
    return tmp_path


def where(runs: str | None, cluster: str) -> Path:
    return Path(prepare(".", cluster, {}, runs_folder(runs)).plan.folder).parent


def test_a_run_goes_where_flag_variable_or_profile_say(profiles, monkeypatch):
    assert where(None, "big") == profiles / "climbers/runs"
    assert where(None, "small") == profiles / "job/runs"
    assert where("here", "big") == profiles / "job/here"
    monkeypatch.setenv("CORDEE_RUNS", str(profiles / "variable"))
    assert where(None, "big") == profiles / "variable"
    assert where("here", "big") == profiles / "job/here"


def test_runs_are_looked_for_here_and_where_profiles_put_them(profiles, monkeypatch):
    assert runs_folders(None) == [profiles / "job/runs", profiles / "climbers/runs"]
    assert runs_folders("here") == [profiles / "job/here"]
    monkeypatch.setenv("CORDEE_RUNS", str(profiles / "variable"))
    assert runs_folders(None) == [profiles / "variable"]


def test_a_profile_that_cannot_be_read_names_no_folder(profiles):
    assert profile_runs() == [profiles / "climbers/runs"]


def test_home_and_variables_are_filled_in(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    assert runs_path("~/runs") == Path("/home/me/runs")
    assert runs_path("$SCRATCH/runs") == Path("/scratch/me/runs")


def test_runs_of_several_folders_are_one_list(tmp_path):
    for parent, run_id in (("b", "t-20260101T000002Z-aaaa"), ("a", "t-20260101T000001Z-bbbb")):
        folder = RunFolder.create(tmp_path / parent, run_id)
        folder.plan.write_text("{}")
        JournalWriter(folder.journal, "client", 0).append("submitted", nodes=1)
    folders = (tmp_path / "a", tmp_path / "b", tmp_path / "missing")
    assert [summary.id[-4:] for summary in list_runs(*folders)] == ["bbbb", "aaaa"]
    assert find_run("last", *folders).root == tmp_path / "b/t-20260101T000002Z-aaaa"
    assert find_run("t-20260101T000001", *folders).root.parent == tmp_path / "a"
