"""The example on a real Slurm: the same numbers as on a laptop, and no trace of interruptions in the weights."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cordee.runs.state import RunState
from cordee.systems.checkpoints.pace import storage_view
from cordee.systems.data.account import account_of
from cordee.telemetry.store.placement import placement
from cordee.telemetry.store.reader import open_run
from support.data.corpora import pack_corpus
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.campaign
EXAMPLE = Path(__file__).parents[2] / "examples" / "char-gpt"
RUN = "python train.py --steps 150"
# Whether nodes can import torch is not asked: it takes as long as the training.
MORE = {"run": RUN, "vet__modules": []}


def result(run: LocalRun) -> tuple[str, str]:
    """Return the last loss that was printed, and the digest of the last weights."""
    text = run.output(0).decode()
    losses = re.findall(r"step +\d+ +loss ([\d.]+)", text)
    digests = re.findall(r"weights (\w+)", text)
    assert losses, text
    assert digests, text
    return losses[-1], digests[-1]


def steps_in(state: RunState, segment: int) -> int:
    """Return how many steps a segment has done so far."""
    if not state.attempts or state.attempts[-1]["segment"] != segment or state.step is None:
        return 0
    return state.step - (state.resume_step or 0)


def test_a_chain_of_three_segments_ends_with_the_weights_of_one_local_run(start, slurm, tmp_path):
    folder = tmp_path / "char-gpt"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("runs", "corpus", "__pycache__"))
    pack_corpus(folder / "corpus")
    local = LocalRun(folder, tmp_path / "local", vet__max_load=1000.0, **MORE)
    with local:
        assert local.wait_end().state == "finished"
        expected = result(local)
    opened = open_run(local.folder.root)
    assert [told["place"] for told in placement(opened).values()] == [{"dp": 0}, {"dp": 1}]
    saves = storage_view(opened).saves
    assert [(save.step, save.ranks, save.source) for save in saves] == [(step, 2, "told") for step in (49, 99, 149)]
    assert all(save.bytes > 1e6 and save.seconds > 0 for save in saves)

    one = start(folder, **MORE)
    assert one.wait_end().state == "finished"
    assert result(one) == expected

    chain = start(folder, **MORE, need__time="2h", need__partition="debug")
    for segment in (1, 2):
        chain.wait(lambda state, segment=segment: steps_in(state, segment) > 5, 120)
        slurm.command("scancel", "--signal=USR1", "--batch", chain.job)
    state = chain.wait_end()
    assert (state.state, state.segments, state.restarts) == ("finished", 3, 0), state.text
    assert result(chain) == expected
    (account,) = account_of(state)
    assert (account.verdict, account.samples, len(account.stretches)) == ("once", 150 * 32, 3)
