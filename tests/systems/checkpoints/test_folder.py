"""Which checkpoints count: complete ones, in the order of their steps, not those of earlier runs."""

from __future__ import annotations

import json
import os
import struct

import pytest

from cordee.systems.checkpoints.node.folder import MANIFEST, SCHEMA, KnownCheckpoints, find_checkpoints, newest_complete
from support.operations import counted


def names(folder, pattern="step-*", ignore=None):
    return [found.name for found in find_checkpoints(folder, pattern, ignore)]


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (5, 100, 20, 3):
        (tmp_path / f"step-{step}.pt").write_bytes(b"x")
    assert names(tmp_path) == ["step-3.pt", "step-5.pt", "step-20.pt", "step-100.pt"]
    assert newest_complete(tmp_path, "step-*").step == 100


@pytest.mark.parametrize(
    "name", [".step-9", "step-9.tmp", "step-9-tmp", "step-9_tmp", "step-9.pt.part", "step-9.partial", "other-9"]
)
def test_unfinished_and_foreign_names_do_not_count(tmp_path, name):
    (tmp_path / "step-1").write_bytes(b"x")
    (tmp_path / name).write_bytes(b"x")
    assert names(tmp_path) == ["step-1"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("val_loss=0.31-epoch=9.ckpt", "val_loss=0.19-epoch=10.ckpt"),
        ("epoch=4-step=40.ckpt", "epoch=3-step=50.ckpt"),
        ("acc-0.93-1200.ckpt", "acc-0.91-1300.ckpt"),
        ("model.9.ckpt", "model.10.ckpt"),
        ("llama3-iter_0000900.ckpt", "llama3-iter_0001000.ckpt"),
        ("0.5.ckpt", "1.25.ckpt"),
    ],
)
def test_a_measure_in_a_name_is_not_its_step(tmp_path, older, newer):
    for name in (newer, older):
        (tmp_path / name).write_bytes(b"x")
    assert names(tmp_path, "*.ckpt") == [older, newer]


def of_trainer(folder, step, *without):
    place = folder / f"checkpoint-{step}"
    place.mkdir()
    for name in {"model.safetensors", "optimizer.pt", "trainer_state.json"} - set(without):
        (place / name).write_bytes(b"\2\0\0\0\0\0\0\0{}" if name.endswith(".safetensors") else b"{}")
    return place


def test_a_checkpoint_of_transformers_without_what_is_written_last_is_passed_over(tmp_path):
    of_trainer(tmp_path, 20)
    broken = of_trainer(tmp_path, 25, "trainer_state.json")
    assert names(tmp_path, "checkpoint-*") == ["checkpoint-20"]
    (broken / "trainer_state.json").write_text("{}")
    assert names(tmp_path, "checkpoint-*") == ["checkpoint-20", "checkpoint-25"]


def test_folders_of_scripts_that_know_no_such_state_count(tmp_path):
    of_trainer(tmp_path, 5, "trainer_state.json")
    assert names(tmp_path, "checkpoint-*") == ["checkpoint-5"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.safetensors", struct.pack("<Q", 4000) + b"{" * 100), ("a.pt", b"PK\x03\x04cut"), ("b/c.pth", b"")],
)
def test_a_folder_with_a_file_that_is_cut_off_is_passed_over_and_the_file_is_named(tmp_path, name, content):
    of_trainer(tmp_path, 20)
    file = of_trainer(tmp_path, 25) / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    problems: list[str] = []
    found = find_checkpoints(tmp_path, "checkpoint-*", None, problems)
    assert [one.name for one in found] == ["checkpoint-20"]
    assert problems[0].startswith(f"checkpoint-25 is not used: {name}: ")


def test_empty_files_and_folders_do_not_count(tmp_path):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-2").write_bytes(b"")
    problems: list[str] = []
    assert find_checkpoints(tmp_path, "step-*", None, problems) == []
    assert len(problems) == 2


def test_our_own_count_only_when_every_file_is_there_in_full(tmp_path):
    whole, short = tmp_path / "step-1", tmp_path / "step-2"
    for folder in (whole, short):
        folder.mkdir()
        (folder / "data.pt").write_bytes(b"12345")
        (folder / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "step": 1, "files": {"data.pt": 5}}))
    (short / "data.pt").write_bytes(b"123")
    assert names(tmp_path) == ["step-1"]


def test_those_of_earlier_runs_are_ignored_until_they_change(tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(b"x")
    before = {"last.pt": path.stat().st_mtime_ns}
    assert names(tmp_path, "last.pt", before) == []
    os.utime(path, ns=(1, 1))
    assert names(tmp_path, "last.pt", before) == ["last.pt"]


def test_patterns_may_have_folders(tmp_path):
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "step-7.pt").write_bytes(b"x")
    assert names(tmp_path, "run-*/step-*.pt") == ["run-1/step-7.pt"]


def test_a_missing_folder_holds_none(tmp_path):
    assert names(tmp_path / "gone") == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("step-9.safetensors", struct.pack("<Q", 8) + b'{"a": 1}' + b"x" * 50),
        ("step-9.safetensors", struct.pack("<Q", 6000) + b"[" * 6000),
        ("step-9.safetensors", struct.pack("<Q", 2) + b"[]"),
        ("step-9.pt", b"PK\x03\x04" + b"\0" * 40),
    ],
)
def test_a_damaged_file_is_passed_over_and_said(tmp_path, name, content):
    (tmp_path / "step-1").write_bytes(b"x")
    (tmp_path / name).write_bytes(content)
    problems: list[str] = []
    assert newest_complete(tmp_path, "step-*", None, problems).name == "step-1"
    assert problems[0].startswith(f"{name} is not used: its ")


@pytest.mark.parametrize("manifest", [b"[" * 5000, b"[]", b'{"schema": 1}', b'{"files": {"../x": 1}}', b"\xff"])
def test_a_damaged_manifest_is_passed_over_and_said(tmp_path, manifest):
    (tmp_path / "step-9").mkdir()
    (tmp_path / "step-9" / MANIFEST).write_bytes(manifest)
    problems: list[str] = []
    assert newest_complete(tmp_path, "step-*", None, problems) is None
    assert problems == [f"step-9 is not used: {MANIFEST} is damaged"]


def test_a_pipe_is_no_checkpoint_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "step-9.pt")
    problems: list[str] = []
    assert newest_complete(tmp_path, "step-*", None, problems) is None
    assert problems == ["step-9.pt is not used: it is a FIFO, not a regular file"]


def test_digits_of_other_scripts_and_raised_ones_are_part_of_a_name(tmp_path):
    for name in ("step-10\u00b2", "step-\u0661\u0662", "step-3"):
        (tmp_path / name).write_bytes(b"x")
    assert names(tmp_path) == ["step-3", "step-10\u00b2", "step-\u0661\u0662"]


def test_what_was_looked_into_and_is_unchanged_is_not_looked_into_again(tmp_path):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "data").write_bytes(b"12345")
    (tmp_path / "step-1" / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "step": 1, "files": {"data": 5}}))
    known = KnownCheckpoints()
    assert newest_complete(tmp_path, known=known).step == 1
    (tmp_path / "step-1" / "data").write_bytes(b"123")
    assert newest_complete(tmp_path, known=known).step == 1
    assert newest_complete(tmp_path) is None


def of_many_ranks(folder, step, ranks):
    """Write a checkpoint as `cordee.checkpointer` does, two files a rank."""
    place = folder / f"step-{step}"
    place.mkdir()
    files = {name: 1 for rank in range(ranks) for name in (f"__{rank}_0.distcp", f"rank-{rank}.pt")}
    for name in files:
        (place / name).write_bytes(b"x")
    (place / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "step": step, "files": files}))
    return place


@pytest.mark.parametrize("ranks", [2, 1500])
def test_a_glance_costs_the_same_for_any_number_of_ranks_and_of_checkpoints(tmp_path, ranks):
    for step in range(1, 40):
        (tmp_path / f"step-{step}").mkdir()
    of_many_ranks(tmp_path, 50, ranks)
    known = KnownCheckpoints()
    with counted(tmp_path) as first:
        assert newest_complete(tmp_path, known=known, thorough=False).step == 50
    assert (first.total() <= 6, known.operations) == (True, 5)
    with counted(tmp_path) as steady:
        for _ in range(100):
            assert newest_complete(tmp_path, known=known, thorough=False).step == 50
    assert steady.total() <= 200
    assert known.operations == 2


def test_a_glance_misses_no_file_and_does_not_believe_in_what_was_found_damaged(tmp_path):
    of_many_ranks(tmp_path, 1, 2)
    newer = of_many_ranks(tmp_path, 2, 2)
    known = KnownCheckpoints()
    (newer / "rank-1.pt").write_bytes(b"")
    assert newest_complete(tmp_path, known=known, thorough=False).step == 2
    assert newest_complete(tmp_path, known=known).step == 1
    assert newest_complete(tmp_path, known=known, thorough=False).step == 1
    known.forget()
    (newer / "rank-1.pt").unlink()
    assert newest_complete(tmp_path, known=known, thorough=False).step == 1
