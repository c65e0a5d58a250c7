"""From an object store that is read once to the weights of an undisturbed run: a node is lost between snapshot and shared storage."""

from __future__ import annotations

import collections
import json
import os
import shutil
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cordee.backends.resize import resize
from cordee.machine.node_folder import folders_of
from cordee.runs.journal import client_journal
from cordee.systems.checkpoints.cli import command
from cordee.systems.checkpoints.library import library_of, on_nodes
from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.systems.checkpoints.node.tiers.kept import KeptSaves
from cordee.systems.data.node.read.tokens.index import write_token_index
from cordee.wire.stores import open_store
from support.runs.real_run import LocalRun
from support.servers.object_store import DisposableS3, FailingWay

pytestmark = pytest.mark.usefixtures("real")

LENGTH, SAMPLES, STEPS = 8, 240, 60
# Gradients are whole numbers and the rate a power of two, so that weights do not depend on the order of sums.
SCRIPT = f"""
import itertools, os, sys, time
import torch, torch.distributed as dist
import cordee
torch.set_num_threads(1)
together = "RANK" in os.environ
if together:
    dist.init_process_group("gloo")
data = cordee.dataset("corpus", batch=12, length={LENGTH}, seed=7, threads=0)
model = torch.nn.Linear({LENGTH} + 1, 1, bias=False, dtype=torch.float64)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=2**-10, momentum=0.5)
saver = cordee.checkpointer(model, optimizer, data=data, every_steps=4)
first = saver.restore()
batches = itertools.chain.from_iterable(iter(data) for _ in itertools.count())
for step, batch in zip(range(first, {STEPS}), batches):
    total = torch.as_tensor(batch["tokens"].astype("float64")).reshape(-1, {LENGTH} + 1).sum(0, keepdim=True)
    if together:
        dist.all_reduce(total)
    model.weight.grad = total
    optimizer.step()
    cordee.log(step=step, steps={STEPS})
    if saver.due(step):
        saver.save(step)
    time.sleep(float(sys.argv[1]))
saver.wait()
if together:
    dist.destroy_process_group()
"""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Return the address of a token set in an object store, and the proxy before that, which knows what was asked."""
    tokens = np.arange(LENGTH * SAMPLES + 1, dtype="<u2") % 97
    files = tmp_path / "corpus"
    files.mkdir()
    tokens.tofile(files / "corpus.bin")
    write_token_index(files / "corpus.idx", "<u2", np.array([len(tokens)]))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with DisposableS3() as server, FailingWay(server.url) as way:
        for name, value in {**server.variables, "AWS_ENDPOINT_URL": way.url}.items():
            monkeypatch.setenv(name, value)
        store = open_store(f"s3://{server.bucket}/set-{time.time_ns()}")  # what a killed test has staged is another
        for path in files.iterdir():
            store.write(path.name, [path.read_bytes()])
        way.asked.clear()
        yield store.address, way


def started(tmp_path, name, source, pause, toml, **flags):
    job = tmp_path / name
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    data = f'[data.corpus]\nfrom = "{source}"\n'
    (job / "cordee.toml").write_text(f'name = "{name}"\nrun = "python train.py {pause}"\n{data}{toml}')
    run = LocalRun(job, tmp_path / "runs", reported=False, vet__max_load=1000.0, scan__policy="off", **flags)
    run.start()
    return run


def weights(run):
    import torch
    import torch.distributed.checkpoint as dcp

    newest = find_checkpoints(run.folder.root / "checkpoints")[-1]
    state = {"model": {"weight": torch.zeros(1, LENGTH + 1, dtype=torch.float64)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=newest.path)
    return newest, state["model"]["weight"]


def kept_step(run, node):
    """Return the newest step that lies on a node, -1 without one."""
    parts = [part for below in folders_of(run.folder.id, node) for part in KeptSaves(below / "checkpoints").parts()]
    return max((int(part.save.split(".")[0].rpartition("-")[2]) for part in parts if part.rank == 1), default=-1)


@pytest.mark.campaign
def test_one_reading_of_the_source_a_lost_node_and_other_ranks_end_with_the_weights_of_an_undisturbed_run(
    tmp_path, corpus
):
    import torch
    from safetensors.torch import load_file

    source, way = corpus
    quiet = started(tmp_path, "quiet", tmp_path / "corpus", 0, "")
    try:
        assert quiet.wait_end().state == "finished"
    finally:
        quiet.end()
    expected = weights(quiet)[1]
    toml = 'to = "memory"\n[checkpoint]\ntiers = ["memory", "shared"]\npace = "3kB/s"\n'
    run = started(tmp_path, "lossy", source, 0.2, toml, need__nodes=2, need__ranks_per_node=1)
    try:
        run.wait_training()
        reads = collections.Counter(path for method, path in way.asked if method == "GET" and "/corpus." in path)
        assert sorted(reads.values()) == [1, 1], reads
        run.wait(lambda state: kept_step(run, "local-0") >= 15, 90)
        reached = kept_step(run, "local-0")
        listed = on_nodes(library_of(str(run.folder.root), None))[-1]
        assert (listed.step >= reached, listed.path, listed.tier) == (True, "local-0, local-1", "nodes")
        run.end()
        assert max((found.step for found in find_checkpoints(run.folder.root / "checkpoints")), default=-1) < reached
        for lost in folders_of(run.folder.id, "local-1"):
            shutil.rmtree(lost)
        client_journal(run.folder.journal).append("resume_requested", **resize(run.folder, 1, 3))
        run.start()
        state = run.wait_end()
    finally:
        run.end()
    assert state.state == "finished", state.text
    begun = run.events("attempt_started")
    assert [one["world_size"] for one in begun] == [2, 3]
    assert begun[1]["resume_step"] >= reached
    newest, found = weights(run)
    assert newest.step == STEPS - 1
    assert torch.equal(found, expected)
    done = CliRunner().invoke(command, ["export", newest.path, "--to", str(tmp_path / "weights"), "--json"])
    assert done.exit_code == 0, done.output
    (name,) = json.loads(done.stdout)["files"]
    assert torch.equal(load_file(Path(tmp_path, "weights", name))["weight"], expected)
    assert list(folders_of(run.folder.id, "local-0")) == []
