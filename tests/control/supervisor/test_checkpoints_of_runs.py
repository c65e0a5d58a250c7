"""Runs that share a checkpoint folder: each goes on from its own checkpoints, and from another's only when told to."""

from __future__ import annotations

import json
import os

import pytest

from cordee.faces.cli.cancel import cancel
from cordee.faces.report.run_document import run_document
from cordee.runs.journal import client_journal
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

SHARED = '[checkpoint]\npath = "checkpoints"'
LONG = "python train.py 100000 0.02"

# Leaves one thing after another in the checkpoint folder that no reader expects.
ODD = r"""
import json, os, pathlib, struct, sys, time
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
if (folder / "again").exists():
    sys.exit(0)
def safetensors(name, header):
    (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + b"x" * 50)
safetensors("step-10.safetensors", json.dumps({"weight": 5}).encode())
safetensors("step-11.safetensors", b"[" * 5000 + b"]" * 5000)
(folder / "step-9²").write_bytes(b"x")
(folder / "step-13").mkdir()
(folder / "step-13" / "cordee.json").write_bytes(b"[" * 5000)
os.mkfifo(folder / "step-14.pt")
(folder / "again").touch()
time.sleep(2.5)  # longer than the supervisor takes between two looks
sys.exit(3)
"""

# Saves by cordee.checkpointer and says where it began.
SAVER = """
import torch, cordee
model = torch.nn.Linear(2, 2)
saver = cordee.checkpointer(model)
start = saver.restore()
print("from", start, flush=True)
for step in range(start, 20):
    cordee.log(step=step, loss=1.0)
    if step % 10 == 9:
        saver.save(step)
"""

# Damages what it saved last, and fails; restored from the one before it ends well.
FLIPPED = """
if start == 0:
    import pathlib, sys
    path = pathlib.Path(saver.newest().path, "__0_0.distcp")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    sys.exit(3)
"""

# Saves its third step so that it looks whole and cannot be read, and fails.
UNREADABLE = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
told = os.environ.get("CORDEE_RESUME_FROM")
start = json.loads(pathlib.Path(told).read_text())["next"] if told else 0
for step in range(start, 5):
    broken = step == 2 and not told
    (folder / ".partial").write_text("x" * 11 if broken else json.dumps({"next": step + 1}))
    (folder / ".partial").rename(folder / f"step-{step + 1}")
    if broken:
        sys.exit(3)
"""

# Cannot go on from step 19 though it can be loaded, only from step 9; fails at the end of its first attempt.
STUCK = SAVER.replace("for step", "if start == 20: raise ValueError('nan')\nfor step") + "start or exit(3)\n"

# Finds its newest checkpoint by itself, as many frameworks do.
OWN_SEARCH = """
import os, pathlib, sys, time
folder = pathlib.Path("checkpoints")
start = max([int(path.name[5:]) for path in folder.glob("step-*")], default=0)
print("from", start, flush=True)
for step in range(start + 1, int(sys.argv[1]) + 1):
    (folder / ".partial").write_text("x")
    (folder / ".partial").rename(folder / f"step-{step:06d}")
    time.sleep(0.05)
    if step == 5 and start == 0:
        sys.exit(3)
"""


# Saves once, under a large number.
OWN_STEPS = """
import os, pathlib, time
(pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"]) / "step-800000").write_text('{"next": 800000}')
"""


def test_a_second_run_in_a_folder_begins_at_zero_and_goes_on_from_its_own(job, start):
    first = start(job(toml=SHARED, run="python train.py 2000 0"))
    assert first.wait_end().state == "finished"
    second = start(job(toml=SHARED, run=LONG))
    mine = second.wait(lambda state: state.checkpoint).checkpoint
    second.kill("rank 0")
    state = second.wait_training(2)
    assert b"from 0\n" in second.output(0)
    assert mine <= state.attempts[1]["checkpoint"] < "step-002000"
    assert (state.began_from, first.state.checkpoint) == (None, "step-002000")


def test_what_another_run_saved_while_this_one_waited_is_not_gone_on_from(job, start, tmp_path):
    folder = job(toml=SHARED, run="python train.py 10 0.01")
    waits = LocalRun(folder, tmp_path / "runs", vet__max_load=1000.0)
    other = start(job(toml=SHARED, run="python train.py 40 0"))
    assert other.wait_end().state == "finished"
    waits.start()
    try:
        assert waits.wait_end().state == "finished"
        assert b"from 0\n" in waits.output(0)
        assert waits.state.checkpoint == "step-000010"
    finally:
        waits.end()


def test_two_runs_that_train_at_once_never_go_on_from_each_other(job, start):
    one = start(job(toml=SHARED, run=LONG))
    one.wait(lambda state: state.checkpoint)
    two = start(job(toml=SHARED, run=LONG))
    two.wait(lambda state: (state.step or 0) > 6)
    seen = len(one.events("checkpoint_seen"))
    two.kill("rank 0")
    state = two.wait_training(2)
    assert state.attempts[1]["checkpoint"] is None
    (finding, *_) = [finding for finding in state.findings if finding.rule == "checkpoint-owner-unknown"]
    assert "another run trained with the same checkpoint folder" in finding.text
    assert seen


def test_a_run_begins_from_another_ones_checkpoint_when_told_to_and_says_so(job, start):
    first = start(job(toml=SHARED, run="python train.py 40 0"))
    first.wait_end()
    folder = job(toml=SHARED, run="python train.py 60 0")
    second = start(folder, reported=True, checkpoint__begin="existing")
    state = second.wait_end()
    assert b"from 40\n" in second.output(0)
    document = run_document(second.folder, state)
    assert document["began_from"] == str(folder / "checkpoints/step-000040")
    assert document["began_from_run"] == first.folder.id
    assert (second.folder.report / "index.html").read_text().count(first.folder.id)
    assert state.checkpoint == "step-000060"


def test_a_checkpoint_to_begin_from_that_is_gone_ends_the_run(job, start, tmp_path):
    folder = job(toml=SHARED, run="python train.py 10 0")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/step-7").write_text("{}")
    run = LocalRun(folder, tmp_path / "runs", vet__max_load=1000.0, checkpoint__begin="existing")
    os.unlink(folder / "checkpoints/step-7")
    with run:
        state = run.wait_end()
    assert (state.state, state.exit_code, state.reason) == ("failed", 1, "no_beginning")
    assert "step-7 cannot be read" in state.text


@pytest.mark.gate
def test_a_script_that_finds_its_checkpoint_by_itself_is_restarted_and_goes_on(job, start):
    run = start(job(OWN_SEARCH, SHARED + '\nresume = "self"', run="python train.py 8"))
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 1)
    assert run.output(0).split() == [b"from", b"0", b"from", b"5"]
    assert state.attempts[1]["resume_step"] == 5


def test_such_a_script_is_not_started_on_what_came_while_it_waited(job, start, tmp_path):
    folder = job(OWN_SEARCH, SHARED + '\nresume = "self"', run="python train.py 8")
    run = LocalRun(folder, tmp_path / "runs", vet__max_load=1000.0)
    (folder / "checkpoints/step-000099").write_text("x")
    with run:
        state = run.wait_end()
    assert (state.state, state.reason) == ("failed", "foreign_checkpoints")
    assert "step-000099" in state.text
    assert run.output() == b""


def test_odd_and_damaged_files_among_checkpoints_do_not_disturb_the_run(job, start):
    run = start(job(ODD, run="python train.py"))
    state = run.wait_end()
    assert (state.state, state.epoch, state.restarts) == ("finished", 1, 1)
    said = [finding.text for finding in state.findings if finding.rule == "checkpoint-damaged"]
    assert any(text.startswith("step-10.safetensors is not used: its header is damaged") for text in said)


def test_the_second_run_of_a_script_with_a_checkpointer_trains_all_its_steps(job, start):
    folder = job(SAVER, SHARED, run="python train.py")
    ids = []
    for _ in range(2):
        run = start(folder)
        assert run.wait_end().state == "finished"
        assert b"from 0\n" in run.output(0)
        ids.append(run.folder.id)
    manifests = [json.loads(path.read_text()) for path in sorted((folder / "checkpoints").glob("*/cordee.json"))]
    assert [(each["step"], each["run"], each["epoch"], each["attempt"]) for each in manifests] == [
        (step, run, 1, 1) for step in (9, 19) for run in ids
    ]


def test_a_resumed_run_goes_on_from_its_own_whatever_others_saved_meanwhile(job, start):
    run = start(job(toml=SHARED, run=LONG))
    run.wait(lambda state: state.checkpoint)
    cancel(run.folder, now=True, wait_s=30)
    mine = run.wait_end().checkpoint
    other = start(job(OWN_STEPS, SHARED, run="python train.py"))
    assert other.wait_end().checkpoint == "step-800000"
    client_journal(run.folder.journal).append("resume_requested")
    job(toml=SHARED, run=LONG)
    run.start()
    state = run.wait_training(2)
    assert (state.segments, state.attempts[1]["checkpoint"]) == (2, mine)
    path = str(run.prepared.loaded.folder / "checkpoints" / mine)
    assert state.began_from == {"path": path, "run": run.folder.id, "other": False}


@pytest.mark.gate
def test_a_flipped_bit_is_a_finding_of_the_run_and_the_checkpoint_before_is_restored(job, start):
    run = start(job(SAVER + FLIPPED, run="python train.py"))
    state = run.wait_end()
    assert (state.state, state.restarts) == ("finished", 1)
    begun = [line for line in run.output(0).splitlines() if line.startswith(b"from ")]
    assert begun == [b"from 0", b"from 10"]
    (finding,) = [finding for finding in state.findings if finding.rule == "checkpoint-damaged"]
    assert "step-000000019 is not used: ValueError: __0_0.distcp is damaged" in finding.text
    assert "step 9 was restored from" in finding.text


@pytest.mark.gate
def test_a_whole_checkpoint_that_cannot_be_loaded_is_passed_over_for_the_one_before(job, start):
    toml = '[checkpoint]\npattern = "step-*"\nresume = "--resume {checkpoint}"'
    state = start(job(UNREADABLE, toml, run="python train.py"), restart__backoff="0s").wait_end()
    assert (state.state, state.checkpoint) == ("finished", "step-5")
    assert [attempt["checkpoint"] for attempt in state.attempts] == [None, "step-3", "step-2"]
    (finding,) = [finding for finding in state.findings if finding.rule == "checkpoint-passed-over"]
    assert finding.text.startswith(
        "step-3 is passed over: attempt 2 began with it and failed before it told a step: rank 0 on local-0 exited with "
        "code 1: json.decoder.JSONDecodeError: "
    )
    assert finding.text.endswith("; the next attempt begins with step-2")
    assert [(doubt.checkpoint.name, doubt.open) for doubt in state.doubts] == [("step-3", True)]


def test_the_same_failure_from_an_older_checkpoint_too_ends_the_run_which_then_begins_with_the_newest_again(job, start):
    toml = '[checkpoint]\npattern = "step-*"\nresume = "--resume {checkpoint}"'
    script = UNREADABLE.replace("start =", "told and sys.exit('no words')\nstart =")
    state = start(job(script, toml, run="python train.py"), restart__backoff="0s").wait_end()
    assert (state.reason, state.doubts) == ("crash_loop", [])
    assert [attempt["checkpoint"] for attempt in state.attempts] == [None, "step-3", "step-2"]


def test_a_checkpointer_restores_what_the_supervisor_chose_and_not_what_it_passed_over(job, start):
    run = start(job(STUCK, run="python train.py"), restart__backoff="0s")
    state = run.wait_end()
    begun = [line for line in run.output(0).splitlines() if line.startswith(b"from ")]
    assert (state.state, begun) == ("finished", [b"from 0", b"from 20", b"from 10"])
