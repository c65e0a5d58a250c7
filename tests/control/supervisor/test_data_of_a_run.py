"""Whatever is killed, and with however many ranks it goes on: every sample is trained on exactly once, and the journal says so."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from cordee.backends.resize import resize
from cordee.faces.cli.show import describe
from cordee.faces.report.run_document import run_document
from cordee.job.submit import plan_of
from cordee.runs.journal import client_journal
from cordee.systems.data.account import account_of
from cordee.systems.data.last_use import last_use
from cordee.systems.data.node.read.tokens.index import write_token_index

pytestmark = pytest.mark.usefixtures("real")

LENGTH, SAMPLES, BATCH = 8, 250, 12
# Ranks meet after every step, as those of a real training do, and write down which samples they were given in which step.
# Rank 0 ends the training once there is a file `enough`.
SCRIPT = f"""
import itertools, json, os, pathlib, time
import cordee
rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "CORDEE_ATTEMPT"))
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
truth = open(f"truth-{{attempt:03d}}-{{rank}}", "a", buffering=1)

def meet(step):
    pathlib.Path(f".at-{{attempt}}-{{rank}}").write_text(str(step))
    for other in range(world):
        path = pathlib.Path(f".at-{{attempt}}-{{other}}")
        while not path.exists() or float(path.read_text() or -1) < step:
            time.sleep(0.002)

data = cordee.dataset("corpus", batch={BATCH}, length={LENGTH}, seed=7, threads=0)
first = 0
if os.environ.get("CORDEE_RESUME_FROM"):
    saved = json.loads(pathlib.Path(os.environ["CORDEE_RESUME_FROM"]).read_text())
    data.load_state_dict(saved["data"])
    first = saved["step"] + 1
batches = itertools.chain.from_iterable(iter(data) for _ in itertools.count())
for step, batch in zip(itertools.count(first), batches):
    truth.write(f"{{step}} {{[int(row[0]) // {LENGTH} for row in batch['tokens']]}}\\n")
    cordee.log(step=step)
    if rank == 0 and pathlib.Path("enough").exists():
        pathlib.Path("last").write_text("")
    meet(step)
    last = pathlib.Path("last").exists()
    if step % 6 == 5 or last:
        state = data.state_dict()
        if rank == 0:
            (folder / ".partial").write_text(json.dumps({{"step": step, "data": state}}))
            (folder / ".partial").rename(folder / f"step-{{step:06d}}")
        meet(step + 0.5)
    if last:
        break
    time.sleep(0.02)
"""


@pytest.fixture
def reading(job):
    """A job whose ranks read a token set of 250 samples."""
    folder = job(SCRIPT, '[data.corpus]\nfrom = "corpus"\n[restart]\nretries = 9\nbackoff = 0\n', run="python train.py")
    (folder / "corpus").mkdir()
    tokens = LENGTH * SAMPLES + 1
    np.arange(tokens, dtype="<u2").tofile(folder / "corpus" / "corpus.bin")
    write_token_index(folder / "corpus" / "corpus.idx", "<u2", np.array([tokens]))
    return folder


def truth(folder: Path, run) -> list[int]:
    """Return the samples that are in the weights, in the order of steps and ranks, as the ranks wrote them down."""
    kept: dict[int, list[int]] = {}
    for started in run.events("attempt_started"):
        for step in [
            step for step in kept if step > (-1 if started["resume_step"] is None else started["resume_step"])
        ]:
            del kept[step]
        done: dict[int, dict[int, list[int]]] = {}
        for path in folder.glob(f"truth-{started['attempt']:03d}-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    step, _, samples = line.partition(" ")
                    done.setdefault(int(step), {})[int(path.name.rpartition("-")[2])] = json.loads(samples)
        kept |= {
            step: [sample for rank in sorted(by_rank) for sample in by_rank[rank]] for step, by_rank in done.items()
        }
    assert sorted(kept) == list(range(len(kept)))
    return [sample for step in sorted(kept) for sample in kept[step]]


def trains(run, attempt: int, folder: Path) -> None:
    """Wait until the ranks of an attempt have saved something."""
    first = folder / f"truth-{attempt:03d}-0"
    run.wait(lambda state: first.exists() and len(first.read_text().splitlines()) > 6, 90)


def go_on(run, nodes: int, ranks_per_node: int) -> None:
    """Do what `cordee resume --nodes --ranks-per-node` does, without following the run."""
    changed = resize(run.folder, nodes, ranks_per_node)
    client_journal(run.folder.journal).append("resume_requested", **changed)
    run.start()


@pytest.mark.gate
def test_every_sample_is_trained_on_once_whatever_is_killed_and_with_however_many_ranks_it_goes_on(reading, start):
    chance = random.Random(8)
    run = start(reading, need__nodes=2, need__ranks_per_node=1)
    for kill, nodes, ranks_per_node in (("rank 1", 0, 0), ("all", 1, 3), ("supervisor", 0, 0), ("all", 2, 2)):
        attempt = max(1, run.state.attempt)
        trains(run, attempt, reading)
        time.sleep(chance.random())
        if kill == "all":
            run.end()
            go_on(run, nodes, ranks_per_node)
        else:
            run.kill(kill)
        run.wait(lambda state, before=attempt: state.ended or state.attempt > before, 90)
    trains(run, run.state.attempt, reading)
    (reading / "enough").touch()
    state = run.wait_end()
    assert state.state == "finished", state.text

    samples = truth(reading, run)
    for begin in range(0, len(samples), SAMPLES):
        epoch = samples[begin : begin + SAMPLES]
        assert len(set(epoch)) == len(epoch)
    (account,) = account_of(state)
    assert (account.verdict, account.samples, account.size) == ("once", len(samples), SAMPLES), account.text()
    assert {2, 3, 4} == {stretch.ranks for stretch in account.stretches}, account.text()
    assert f"data        corpus: {account.text()}" in describe(run.folder, state)
    assert run_document(run.folder, state)["data"][0]["verdict"] == "once"
    assert plan_of(run.folder)["steps"][0]["request"]["ranks_per_node"] == 2
    used = last_use(run.folder.root.parent, str(reading / "corpus"))
    assert (used.run, used.epochs) == (run.folder.id, pytest.approx(len(samples) / SAMPLES))
    assert last_use(run.folder.root.parent, "/elsewhere") is None
