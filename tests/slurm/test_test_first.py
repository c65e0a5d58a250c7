"""Tests before jobs, and steps, on a real Slurm: with nobody looking."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.backends import slurm as backend
from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit.prepare import create_run, prepare
from cordee.job.terminal.run_args import state_of
from cordee.runs.state import ENDED
from cordee.testing.programs import COUNTING


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (3, "failed")])
def test_a_job_keeps_its_place_while_its_test_runs_and_leaves_it_where_that_fails(job, slurm, tmp_path, code, state):
    test = f"[test]\nrun = \"sh -c 'sleep 2; exit {code}'\"\nsubmit = 'together'\n"
    folder: Path = job("true", f"[need]\nnodes = 1\n[restart]\nretries = 0\n[vet]\nmax_load = 1000.0\n{test}")
    run = create_run(prepare(str(folder), backend.BACKEND.name, {}, tmp_path / "runs"))
    submitter_of(run).submit(run, plan_of(run))
    waiting = state_of(run)
    assert waiting.job is not None
    assert f"afterok:{waiting.children[0]['job']}" in slurm.command("squeue", "-h", "-j", waiting.job, "-o", "%E")
    deadline = time.monotonic() + 120
    while not state_of(run).ended and time.monotonic() < deadline:
        time.sleep(0.3)
    ended = state_of(run)
    assert (ended.state, ended.job) == (state, waiting.job), ended.text
    slurm.wait_ended(waiting.job)


def cordee(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cordee.faces.cli", *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def ended_by_itself(folder: Path, seconds: float) -> dict[str, Any]:
    """Return what `cordee show` tells of the last run once nothing is to come."""
    deadline = time.monotonic() + seconds
    while True:
        shown: dict[str, Any] = json.loads(cordee(folder, "show", "last", "--json").stdout)
        if shown["state"] in ENDED:
            return shown
        assert time.monotonic() < deadline, shown
        time.sleep(2)


@pytest.mark.campaign
def test_a_test_three_segments_and_the_end_need_nobody_and_the_next_request_is_half_as_large(job, slurm, tmp_path):
    """Time limits are Slurm's own; the client is gone as soon as the test is submitted."""
    slurm.command("scontrol", "update", "PartitionName=debug", "MaxTime=2")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for at in range(200):
        (corpus / f"{at}.txt").write_text("x")
    code = f"import os\nprint(len(os.listdir(os.environ['CORDEE_DATA_CORPUS'])), 'files', flush=True)\n{COUNTING}"
    toml = (
        "[need]\nnodes = 1\npartition = 'debug'\ntime = '20min'\nmemory = '2GB'\n[vet]\nmax_load = 1000.0\n"
        f"[checkpoint]\ngrace = '10s'\nresume = 'self'\n[data.corpus]\nfrom = '{corpus}'\n"
        "[test]\nrun = 'python train.py 20 0.5'\ndata = '1%'\nsteps = 500\n"
    )
    folder = job("python train.py 500 0.5", toml, code)
    try:
        begun = cordee(folder, "run", "--on", "slurm", "--detach")
        assert begun.returncode == 0, begun.stderr
        shown = ended_by_itself(folder, 800)
    finally:
        slurm.command("scontrol", "update", "PartitionName=debug", "MaxTime=30")
    assert (shown["state"], shown["segments"] >= 3, shown["restarts"]) == ("finished", True, 0), shown
    (test,) = shown["children"]
    predicted = test["outcome"]["predicted"]
    trained = sum(one["train_s"] for one in shown["segment_list"])
    print(json.dumps({"predicted": predicted, "trained_s": trained, "segments": shown["segments"]}))
    assert predicted["segments"] >= 3
    assert predicted["total_s"] == pytest.approx(trained, rel=0.15)
    assert "2 files" in cordee(folder, "logs", "last/test").stdout
    assert "200 files" in cordee(folder, "logs", "last").stdout
    size = json.loads(cordee(folder, "size", "last", "--json").stdout)
    reasons = {reason["what"]: reason for reason in size["reasons"]}
    assert (reasons["memory"]["before"], reasons["memory"]["after"]) == ("2GB", "1GB"), size
    assert "without the page cache" in reasons["memory"]["text"]


@pytest.mark.campaign
@pytest.mark.gate
def test_steps_prepare_train_and_evaluate_as_jobs_and_what_is_done_is_skipped(job, slurm):
    write = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])\n"
    steps = (
        "[need]\nnodes = 1\n[vet]\nmax_load = 1000.0\n[steps]\n"
        "prepare = { run = 'python write.py prepared.txt 1', outputs = ['prepared.txt'], inputs = ['write.py'] }\n"
        "train = { after = 'prepare', outputs = ['model.txt'], inputs = ['train.py'] }\n"
        "evaluate = { run = 'python write.py score.txt 3', after = 'train', outputs = ['score.txt'], inputs = ['write.py'] }\n"
    )
    folder = job("python train.py model.txt 2", steps, write)
    (folder / "write.py").write_text(write)

    def states() -> dict[str, str]:
        assert cordee(folder, "run", "--on", "slurm", "--detach").returncode == 0
        shown = ended_by_itself(folder, 240)
        assert shown["state"] == "finished", shown
        return {one["name"]: one["state"] for one in shown["children"]}

    assert states() == dict.fromkeys(("prepare", "train", "evaluate"), "finished")
    (folder / "train.py").write_text(write + "# another text, and the same model\n")
    assert states() == {"prepare": "skipped", "train": "finished", "evaluate": "skipped"}
