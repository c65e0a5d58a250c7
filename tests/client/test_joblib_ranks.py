"""joblib on the ranks of a run, and the example of classic machine learning, as it is."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.journal import read_journal
from cordee.runs.state import replay

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, pathlib, sys, time, joblib, cordee

class Odd(Exception):
    pass

here = pathlib.Path(sys.argv[0]).parent / "here"

def call(number):
    (here / os.environ["RANK"]).touch()
    while len(list(here.iterdir())) < min(2, int(os.environ["WORLD_SIZE"])):  # a rank that begins late finds calls left all the same
        time.sleep(0.01)
    if number == 13:
        raise Odd(number)
    return number * number, os.environ["RANK"]

with cordee.joblib_backend():
    found = joblib.Parallel()(joblib.delayed(call)(number) for number in range(12))
    assert [square for square, _ in found] == [number * number for number in range(12)]
    print(sorted({rank for _, rank in found}))
    try:
        joblib.Parallel()(joblib.delayed(call)(number) for number in range(10, 20))
    except Odd as error:
        print("Odd", error)
print("rank", os.environ["RANK"], "goes on")
"""


def start(folder: Path, world: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "control").mkdir()
    (folder / "here").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    env = {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CORDEE_RUN_DIR": str(folder),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(folder / "script.py")],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "RANK": str(rank), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


def test_calls_are_made_on_the_other_ranks_and_their_errors_are_raised_on_the_first(tmp_path: Path) -> None:
    ranks = start(tmp_path, 3)
    said = [rank.communicate(timeout=600)[0] for rank in ranks]
    assert said == ["['1', '2']\nOdd 13\nrank 0 goes on\n", "", ""]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert list((tmp_path / "control").iterdir()) == []


def test_without_ranks_joblib_works_by_itself(tmp_path: Path) -> None:
    (alone,) = start(tmp_path, 1)
    assert alone.communicate(timeout=600)[0] == "['0']\nOdd 13\nrank 0 goes on\n"


@pytest.mark.usefixtures("real")
def test_the_example_searches_on_ranks_and_puts_its_models_together(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    flags = {"vet.max_load": 1000.0, "scan.policy": "off"}
    prepared = prepare(str(tmp_path / "digits"), "local", flags, tmp_path / "runs")
    folder = create_run(prepared)
    submitter_of(folder).submit(folder, plan_of(folder))
    deadline = time.monotonic() + 150
    while not (state := replay(read_journal(folder.journal), folder.id)).ended and time.monotonic() < deadline:
        time.sleep(0.2)
    assert state.state == "finished", state.text
    scores = json.loads((tmp_path / "digits" / "score.json").read_text())
    assert min(scores.values()) > 0.9
    assert scores["together"] >= min(scores["forest"], scores["vectors"])
