"""`cordee record` as the command line has it; what it does is in tests/node/record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from cordee.runs.folder import RunFolder
from cordee.telemetry.node.recording import RecordedRank, Recorder, claim_number, write_recorder


@pytest.fixture
def call(tmp_path):
    """Run `cordee record` with these words in a folder of the test."""

    def run(*words, **more):
        command = [sys.executable, "-m", "cordee.faces.cli", "record", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, **more)

    return run


def test_options_end_at_the_command_with_or_without_dashes(call):
    for number, words in enumerate((["--", "echo", "-q"], ["echo", "-q"])):
        done = call("-q", "-o", str(number), "--no-threads", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "-q\n", "")


def test_without_a_folder_the_recording_is_named_after_the_command(call, tmp_path):
    (tmp_path / "train.py").write_text("print('trained')")
    done = call("--", sys.executable, "train.py")
    (name,) = os.listdir(tmp_path / "recordings")
    assert name.startswith("train-")
    assert done.stderr == f"cordee: recording into recordings/{name}; then: cordee score recordings/{name}\n"


@pytest.mark.parametrize("words", [["--nonsense", "--", "true"], ["--bind", "moon", "--", "true"], []])
def test_what_is_wrong_with_the_words_is_125(call, words):
    done = call(*words)
    assert done.returncode == 125
    assert "next:" in done.stderr
    document = json.loads(call("--json", *words).stdout)
    assert document["error"]["kind"] == "record"


def test_json_has_the_commands_end_and_what_was_sampled(call):
    done = call("--json", "-o", "made", "--source", "cpu", "--", "sh", "-c", "echo words; exit 3")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["schema"]) == (3, 3, "cordee.record/1")
    assert done.stderr.endswith("words\n")


def test_a_recording_is_listed_shown_and_reported(call, tmp_path):
    call("-q", "--source", "cpu", "--", "sh", "-c", "exit 3")
    (name,) = os.listdir(tmp_path / "recordings")
    other(tmp_path, "killed", began=100.0, heard=90.0)
    other(tmp_path, "running", began=10.0, heard=1.0)
    listed = cordee(tmp_path, "runs").splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [
        ["killed", "unknown"],
        ["running", "running"],
        [name, "failed"],
    ]
    assert listed[1].endswith("recording: 10 s, the sampler did not see how the command ended")
    assert "s so far" in listed[2]
    assert "recording: exit code 3, " in listed[3]
    rows = json.loads(cordee(tmp_path, "runs", "--json"))["runs"]
    assert {row["kind"] for row in rows} == {"recording"}
    for given in (name, f"recordings/{name}"):
        assert "state       failed: exit code 3" in cordee(tmp_path, "show", given)
    report = cordee(tmp_path, "report", name)
    assert "failed: exit code 3" in report
    assert "sh -c 'exit 3'" in report
    assert "journal" not in report
    assert "took         10 s\n" in cordee(tmp_path, "report", "killed")
    assert "so far" in cordee(tmp_path, "report", "running")
    assert "still running" not in (tmp_path / "recordings/killed/report/index.html").read_text()
    assert sorted(os.listdir(tmp_path / "recordings" / name)) == ["recorders", "report", "telemetry"]


def cordee(folder, *words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def other(below, name, *, began, heard):
    """Make a recording that began, and gave its last sign of life, so many seconds ago."""
    folder, now = RunFolder(below / "recordings" / name), time.time()
    ranks = [RecordedRank(rank=0, pid=1, argv=["sleep", "5"], started_at=now - began)]
    number = claim_number(folder)
    write_recorder(folder, Recorder(number, "n1", "n1", 5, now - began, 1.0, "0", heard_at=now - heard, ranks=ranks))
