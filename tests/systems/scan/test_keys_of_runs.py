"""A key that a run is given is shown nowhere, however its program prints it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import made_files as made

pytestmark = pytest.mark.usefixtures("real")

WANDB, PASSWORD = "a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345", "correct-horse-battery"
PROGRAM = """
import os, sys
print("+ python train.py", *sys.argv[1:])
print({"all": os.environ["WANDB_API_KEY"]}, flush=True)
raise SystemExit(f"refused: {sys.argv[2]} and {os.environ['WANDB_API_KEY']}")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(PROGRAM)
    document = f'name = "a"\nrun = "python train.py --password {PASSWORD}"\n[env]\nWANDB_API_KEY = "{WANDB}"\n'
    (folder / "cordee.toml").write_text(f"{document}[restart]\nretries = 0\n")
    said = made.cordee("run", folder, "--runs", folder / "runs").output
    (run,) = (folder / "runs").glob("[!.]*")
    return run, said


@pytest.mark.gate
def test_what_it_prints_is_masked_while_it_runs(run):
    assert "+ python train.py --password ***" in run[1]
    assert "refused: *** and ***" in run[1]
    assert WANDB not in run[1]
    assert PASSWORD not in run[1]


@pytest.mark.parametrize(
    "command", [("show",), ("show", "--json"), ("logs",), ("logs", "--raw"), ("advise",), ("report",)]
)
def test_it_is_masked_wherever_it_is_shown(run, command):
    call = [sys.executable, "-c", "from cordee.cli import main; main()", command[0], str(run[0]), *command[1:]]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    pages = [path.read_text() for path in (run[0] / "report").rglob("*") if path.is_file()]
    assert "***" in said or command[0] == "report"
    for text in (said, *pages):
        assert WANDB not in text
        assert PASSWORD not in text
