"""Whose a checkpoint is when nothing in it says so: that of the one run that trained when it was written."""

from __future__ import annotations

import json
import os
import time

import pytest

from cordee.runs.plan import Checkpoints, RunBegin
from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.systems.checkpoints.node.owner import RunCheckpoints, owner_of, owners_folder, trainers

S = 10**9


class Folder:
    """A checkpoint folder and the runs that save into it, with times as they are told."""

    def __init__(self, root):
        self.root = root
        self.path = root / "saved"
        self.path.mkdir()

    def run(self, name, **policy):
        whole = Checkpoints(str(self.path), pattern="step-*", **policy)
        control = self.root / f"control-{name}"
        control.mkdir(exist_ok=True)
        return RunCheckpoints(whole, name, control, 60, 10)

    def save(self, name, at=None):
        (self.path / name).write_text("x")
        if at is not None:
            os.utime(self.path / name, ns=(at, at))

    def trained(self, run, *stretches, seen=None):
        """Write an owner file by hand."""
        file = self.root / ".saved.cordee" / f"{run}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            json.dumps({"schema": "cordee.checkpoint-owner/1", "run": run, "trained": stretches, "silent_s": 100})
        )
        if seen is not None:
            os.utime(file, ns=(seen, seen))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_what_lay_there_before_the_ranks_ran_is_not_the_runs(folder):
    run = folder.run("a")
    folder.save("step-9")
    assert run.begin_training() == ""
    assert run.newest() is None
    folder.save("step-1", time.time_ns() + S)
    assert run.newest().name == "step-1"
    run.end_training()
    assert folder.run("a").newest().name == "step-1"


def test_what_came_between_two_segments_is_not_the_runs(folder):
    folder.trained("a", [100 * S, 200 * S], [500 * S, 600 * S])
    folder.save("step-1", 150 * S)
    folder.save("step-2", 300 * S)
    run = folder.run("a")
    assert run.newest().name == "step-1"
    folder.save("step-3", 550 * S)
    assert run.newest().name == "step-3"


def test_the_last_one_before_a_kill_is_the_runs_though_no_end_was_written(folder):
    folder.trained("a", [100 * S, None], seen=200 * S)
    folder.save("step-1", 190 * S)
    folder.save("step-2", 250 * S)
    folder.save("step-3", 303 * S)
    assert folder.run("a").newest().name == "step-2"


def test_what_was_saved_while_two_trained_is_nobodys(folder):
    folder.trained("b", [100 * S, 200 * S])
    folder.trained("a", [150 * S, 300 * S])
    folder.save("step-1", 250 * S)
    folder.save("step-2", 180 * S)
    folder.save("step-3", 120 * S)
    assert folder.run("a").newest().name == "step-1"
    assert folder.run("b").newest().name == "step-3"
    assert folder.run("a").disputed() == ["step-2"]
    owners = {found.name: owner_of(found, trainers(folder.path)) for found in find_checkpoints(folder.path)}
    assert owners == {"step-1": "a", "step-2": None, "step-3": "b"}


def test_a_manifest_says_more_than_the_time(folder):
    folder.trained("a", [100 * S, 200 * S])
    for name, run in (("step-1", "a"), ("step-2", "b")):
        (folder.path / name).mkdir()
        manifest = {"schema": "cordee.checkpoint/1", "step": 1, "run": run, "files": {}}
        (folder.path / name / "cordee.json").write_text(json.dumps(manifest))
        os.utime(folder.path / name, ns=(150 * S, 150 * S))
    assert folder.run("a").newest().name == "step-1"
    assert folder.run("b").newest().name == "step-2"


def by_attempt(folder, step, epoch, attempt, at):
    place = folder.path / f"step-{step}"
    place.mkdir()
    told = {"schema": "cordee.checkpoint/1", "run": "a", "step": step, "epoch": epoch, "attempt": attempt, "files": {}}
    (place / "cordee.json").write_text(json.dumps(told))
    os.utime(place, ns=(at, at))


def test_what_an_attempt_saves_after_a_later_one_has_saved_is_not_used_and_that_is_said(folder):
    by_attempt(folder, 10, 1, 1, 10 * S)
    by_attempt(folder, 11, 1, 2, 20 * S)
    by_attempt(folder, 14, 1, 1, 30 * S)
    problems = []
    assert folder.run("a", own_folder=True).newest(problems).name == "step-11"
    assert problems == [
        "step-14 is not used: attempt 1, which had been given up, saved it after attempt 2 had saved step-11"
    ]
    by_attempt(folder, 15, 2, 1, 40 * S)
    assert folder.run("a", own_folder=True).newest().name == "step-15"


def test_an_attempt_that_saves_fewer_steps_than_the_one_before_does_not_lose_what_that_saved_in_time(folder):
    by_attempt(folder, 20, 1, 1, 10 * S)
    by_attempt(folder, 11, 1, 2, 20 * S)
    assert folder.run("a", own_folder=True).newest().name == "step-20"


def test_what_is_passed_over_does_not_count_until_it_is_written_again(folder):
    by_attempt(folder, 6, 1, 1, 10 * S)
    by_attempt(folder, 9, 1, 1, 20 * S)
    run = folder.run("a", own_folder=True)
    run.pass_over([run.newest()])
    assert (run.newest().name, run.glance().name) == ("step-6", "step-6")
    by_attempt(folder, 7, 1, 3, 30 * S)
    assert run.newest().name == "step-7"
    (folder.path / "step-9").rename(folder.path / ".step-9.old")
    by_attempt(folder, 9, 1, 3, 40 * S)
    assert run.newest().name == "step-9"


def test_nothing_is_passed_over_for_a_script_that_looks_by_itself(folder):
    by_attempt(folder, 6, 1, 1, 10 * S)
    by_attempt(folder, 9, 1, 1, 20 * S)
    run = folder.run("a", own_folder=True, resume="self")
    run.pass_over([run.newest()])
    assert run.newest().name == "step-9"


def test_in_its_own_folder_everything_is_the_runs_and_no_owner_file_is_written(folder):
    folder.save("step-9")
    run = folder.run("a", own_folder=True)
    assert run.begin_training() == ""
    assert run.newest().name == "step-9"
    assert not os.path.exists(owners_folder(folder.path))


def test_the_folder_itself_stays_empty_until_the_script_saves(folder):
    run = folder.run("a")
    run.begin_training()
    assert os.listdir(folder.path) == []
    (trainer,) = trainers(folder.path)
    assert (trainer.run, trainer.training) == ("a", True)
    run.end_training()
    assert trainers(folder.path)[0].training is False


@pytest.mark.parametrize("content", ["", "[" * 5000, "[]", '{"run": "b", "trained": [1], "silent_s": 1}', "\0"])
def test_a_damaged_owner_file_is_left_out(folder, content):
    folder.trained("b")
    (folder.root / ".saved.cordee/b.json").write_text(content)
    assert trainers(folder.path) == []


def test_an_owner_file_that_cannot_lie_beside_lies_in_the_runs_folder_and_that_is_said(folder):
    (folder.root / ".saved.cordee").write_text("a file in the way")
    run = folder.run("a")
    assert "a.json cannot be written" in run.begin_training()
    folder.save("step-1", time.time_ns() + S)
    run.end_training()
    assert folder.run("a").newest().name == "step-1"


def test_foreign_ones_are_what_is_neither_the_runs_nor_what_it_was_told_to_begin_from(folder):
    folder.trained("a", [100 * S, 200 * S])
    for name, at in (("step-1", 150), ("step-2", 50), ("step-3", 60)):
        folder.save(name, at * S)
    told = RunBegin({str(folder.path / "step-2"): 50 * S})
    run = folder.run("a", begin=told)
    assert run.foreign() == [(str(folder.path / "step-3"), None)]
    assert run.beginning([])[0].name == "step-2"
    os.utime(folder.path / "step-2", ns=(70 * S, 70 * S))
    problems: list[str] = []
    assert run.beginning(problems) is None
    assert "has changed since the run was submitted" in problems[0]
