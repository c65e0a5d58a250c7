"""What agents told of a hang, in the run's folder: bounded, whole or not at all, and nowhere else."""

from __future__ import annotations

import pytest

from cordee.runs.folder import RunFolder
from cordee.systems.explain.node.hang import files as hang_files
from cordee.systems.explain.node.hang.files import HangFiles


@pytest.fixture
def files(tmp_path):
    files = HangFiles(RunFolder(tmp_path), 2)
    assert files.begin() == 1
    return files


def test_parts_become_a_file_and_dumps_lie_where_flight_looks(files, tmp_path):
    files.take("n1", "rank-3.json", b'{"a"', False)
    files.take("n1", "rank-3.flight", b"dump", True)
    files.take("n1", "rank-3.json", b": 1}", True)
    assert (tmp_path / "hangs/1/rank-3.json").read_bytes() == b'{"a": 1}'
    assert (tmp_path / "flight/attempt-2/rank-3.pkl").read_bytes() == b"dump"
    assert files.refused == ""


@pytest.mark.parametrize(
    "name", ["../plan.json", "rank-1.json/../../x", "hang.json", "node-../x", "", "rank-x.json", "a" * 300]
)
def test_names_are_ours_alone(files, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    files.take("n1", name, b"x", True)
    assert sorted(tmp_path.rglob("*")) == before
    assert "n1" in files.refused


def test_a_file_of_which_a_part_is_missing_is_not_written(files, tmp_path):
    files.take("n1", "rank-3.stacks", b"one", False)
    files.drop("n1", "rank-3.stacks", "the disk is too slow")
    files.take("n1", "rank-3.stacks", b"three", True)
    files.take("n2", "rank-4.stacks", b"all", True)
    assert [path.name for path in (tmp_path / "hangs/1").iterdir()] == ["rank-4.stacks"]
    assert "rank-3.stacks of n1" in files.refused


def test_large_dumps_leave_room_for_what_else_is_told(files, tmp_path, monkeypatch):
    monkeypatch.setattr(hang_files, "_MOST_DUMPS_BYTES", 10)
    for rank in range(3):
        files.take("n1", f"rank-{rank}.flight", b"12345678", True)
        files.take("n1", f"rank-{rank}.json", b"{}", True)
    assert len(list((tmp_path / "hangs/1").iterdir())) == 3
    assert [path.name for path in (tmp_path / "flight/attempt-2").iterdir()] == ["rank-0.pkl"]


def test_each_hang_has_a_folder_of_its_own(files, tmp_path):
    assert HangFiles(RunFolder(tmp_path), 3).begin() == 2


def test_a_disk_that_refuses_is_told_and_raises_nothing(files, tmp_path):
    (tmp_path / "hangs/1").rmdir()
    files.take("n1", "rank-3.json", b"{}", True)
    assert "rank-3.json cannot be written" in files.refused
