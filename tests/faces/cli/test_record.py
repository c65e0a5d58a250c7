"""`cordee record` as the command line has it; what it does is in tests/node/record."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


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
