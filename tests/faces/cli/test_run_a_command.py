"""`cordee run train.py --lr 1e-3`: what a person would type without Cordée, with `cordee run` in front."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.faces.cli import main as cordee_main

from .conftest import Cordee

Call = Callable[..., tuple[object, str, str]]

SCRIPT = """
import argparse, os
parser = argparse.ArgumentParser()
for name in ("--lr", "--nodes", "--set"):
    parser.add_argument(name)
parser.add_argument("--json", action="store_true")
parser.add_argument("rest", nargs="*")
print("took", vars(parser.parse_args()), os.environ.get("RANK"))
"""


@pytest.fixture
def folder(cordee: Cordee) -> Path:
    (cordee.folder / "train.py").write_text(SCRIPT)
    (cordee.folder / "notes.ipynb").write_text('{"cells": []}')
    (cordee.folder / "prepare.sh").write_text("echo prepared $1\n")
    program = cordee.folder / "simulate"
    program.write_text("#!/bin/sh\necho simulated $1\n")
    program.chmod(0o755)
    return cordee.folder


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line in this process; returns (exit code, standard output, standard error)."""
    monkeypatch.chdir(folder)

    def main(*words: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            cordee_main(list(words))
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return main


def checked(call: Call, *words: str) -> Any:
    """Return what `cordee check --json` says of a command line; options of Cordée stand before the script."""
    code, out, err = call("check", "--json", *words)
    assert code == 0, out + err
    return json.loads(out)


@pytest.mark.parametrize(
    ("words", "name", "argv"),
    [
        (["train.py"], "train", ["python", "train.py"]),
        (["train.py", "--lr", "1e-3"], "train", ["python", "train.py", "--lr", "1e-3"]),
        (["train.py", "--nodes", "9", "--json", "--", "x y"], "train", ["python", "train.py", "--nodes", "9", "--json", "--", "x y"]),
        (["./train.py"], "train", ["python", "./train.py"]),
        (["prepare.sh", "3"], "prepare", ["bash", "prepare.sh", "3"]),
        (["simulate", "3"], "simulate", ["./simulate", "3"]),
        (["python", "train.py", "--lr", "1"], "train", ["python", "train.py", "--lr", "1"]),
        (["--", "python", "-m", "json.tool", "-h"], "json.tool", ["python", "-m", "json.tool", "-h"]),
        (["--", "sh", "-c", "echo {lr} 'a b' \"ü\""], "sh", ["sh", "-c", "echo {lr} 'a b' \"ü\""]),
    ],
)  # fmt: skip
def test_a_command_line_becomes_a_job(call: Call, folder: Path, words: list[str], name: str, argv: list[str]) -> None:
    document = checked(call, *words)
    assert (document["plan"]["name"], document["plan"]["steps"][0]["tasks"]["argv"]) == (name, argv)
    assert {finding["file"] for finding in document["findings"]} <= {None}
    assert not (folder / "cordee.toml").exists()


def test_torchrun_starts_its_own_ranks(call: Call) -> None:
    document = checked(call, "--nodes", "2", "--", "torchrun", "--nproc-per-node", "4", "train.py")
    assert (document["nodes"], document["ranks"], document["plan"]["name"]) == (2, 2, "train")


def test_a_script_runs_with_its_own_options_and_its_document_is_in_the_runs_folder(
    cordee: Cordee, folder: Path
) -> None:
    done = cordee("run", "--json", "--set", "vet.max_load=1000.0", "train.py", "--lr", "1e-3", "--nodes", "9", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(done.stdout)
    (line,) = cordee("logs", run["run"]).stdout.splitlines()
    assert line == "took {'lr': '1e-3', 'nodes': '9', 'set': None, 'json': True, 'rest': []} None"
    text = (Path(run["folder"]) / "documents/cordee.toml").read_text()
    assert tomllib.loads(text) == {"name": "train", "run": "python train.py --lr 1e-3 --nodes 9 --json"}
    assert not (folder / "cordee.toml").exists()


def test_a_document_is_kept_with_what_flags_gave_and_never_overwritten(
    cordee: Cordee, call: Call, folder: Path
) -> None:
    flags = ("--nodes", "2", "--set", "vet.max_load=1000.0", "--set", "env.A=1", "--set", "name=mine")
    done = cordee("run", "--save", *flags, "train.py", "--lr", "a b")
    assert done.returncode == 0, done.stderr
    assert f"wrote {folder}/cordee.toml" in done.stderr
    text = (folder / "cordee.toml").read_text()
    assert tomllib.loads(text) == {
        "name": "mine",
        "run": ["python", "train.py", "--lr", "a b"],
        "need": {"nodes": 2},
        "vet": {"max_load": 1000.0},
        "env": {"A": 1},
    }
    assert checked(call)["nodes"] == 2
    code, _, err = call("run", "--save", *flags, "train.py")
    assert code == 2
    assert "there is a cordee.toml already" in err
    assert (folder / "cordee.toml").read_text() == text
    assert len(list(cordee.runs.glob("[!.]*"))) == 1


def test_a_document_that_a_command_line_passes_over_is_named(cordee: Cordee, call: Call) -> None:
    cordee.job(script=SCRIPT)
    document = checked(call, "train.py")
    assert "document-not-used" in [finding["rule"] for finding in document["findings"]]
    assert document["plan"]["name"] == "train"
    assert checked(call)["plan"]["name"] == "t"


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["plain.py", "--nodes", "2", "--lr", "1"], "--nodes 2 plain.py --lr 1"),
        (["--on", "local", "plain.py", "--nodes=2", "a b"], "--on local --nodes=2 plain.py 'a b'"),
        (["python", "plain.py", "--lr", "1", "--json"], "--json python plain.py --lr 1"),
        (["plain.py", "--lr", "1"], None),
        (["plain.py", "--", "--nodes", "2"], None),
        (["--", "python", "plain.py", "--nodes", "2"], None),
        (["train.py", "--nodes", "2"], None),
    ],
)
def test_an_option_of_cordee_behind_a_script_is_said_with_the_right_order(
    call: Call, folder: Path, words: list[str], right: str | None
) -> None:
    (folder / "plain.py").write_text("print(1)\n")
    _, _, err = call("check", *words)
    assert ("for Cordée:" in err) == (right is not None)
    assert right is None or f"for Cordée: `cordee check {right}`\n" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "trian.py", "--lr", "1"], "did you mean train.py?"),
        (["run", "hostname"], "`cordee run -- hostname` runs a command"),
        (["run", "no-such-thing"], "a script such as train.py"),
        (["run", "notes.ipynb", "--nodes", "2"], "is neither a job document nor a program"),
        (["train.py", "--lr", "1"], "did you mean `cordee run train.py`?"),
        (["run", "--"], "there is no command behind --"),
        (["run", "--save"], "`cordee run --save train.py`"),
        (["run", "--lr", "1", "train.py"], "Options of a script stand behind the script"),
        (["run", ".", "train.py"], "unexpected extra argument"),
    ],
)
def test_what_cannot_be_run_is_said_with_what_can(call: Call, folder: Path, words: list[str], said: str) -> None:
    code, _, err = call(*words)
    assert code == 2
    assert said in err
    assert not (folder / "runs").exists()
