"""Real Gloo ranks of an unmodified script that hang in a collective: who stands is told, and the dumps name the culprit."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from cordee.testing.patience import PatientWait
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

pytestmark = pytest.mark.usefixtures("real")

RANKS = 4
SCRIPT = """
import os, sys
import torch, torch.distributed as dist

kind, rank = sys.argv[1], int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    model(torch.ones(4)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
if rank == 2 and kind == "broadcast":
    dist.broadcast(torch.ones(8), 0)
if rank == 2 and kind == "fifo":
    os.mkfifo("fifo")
    open("fifo")
dist.all_reduce(torch.ones(8))
"""


@pytest.mark.campaign
@pytest.mark.parametrize(("kind", "found"), [("broadcast", "wrong-collective"), ("fifo", "cpu-stall")])
def test_dumps_of_ranks_that_hang_name_who_broke_it(tmp_path: Path, kind: str, found: str):
    (tmp_path / "train.py").write_text(SCRIPT)
    dumps = tmp_path / "dumps"
    dumps.mkdir()

    async def during(ranks: WatchedRanks) -> None:
        for rank in range(RANKS):
            ranks.start(rank, "train.py", kind)
        await ranks.until(lambda: len(ranks.stands()) == RANKS)
        assert all(stand.began for stand in ranks.stands().values())
        patience, enqueued = PatientWait(60.0), []
        # Where ranks get little time they stand in the collectives of their first steps, too.
        while enqueued != [11, 11, 10 if kind == "fifo" else 11, 11]:
            assert not patience.over(), enqueued
            files = await ranks.gather(f"hang-{len(ranks.told.parts)}")
            enqueued = [ranks.document_of(files, rank)["groups"][0]["enqueued"] for rank in range(RANKS)]
        assert files[""] == b""
        for rank in range(RANKS):
            document = ranks.document_of(files, rank)
            assert (document["optimizer_steps"], document["groups"][0]["size"]) == (5, RANKS)
            assert b"train.py" in files[f"rank-{rank}.stacks"]
            (dumps / f"rank-{rank}.pkl").write_bytes(files[f"rank-{rank}.flight"])

    watching(tmp_path, make_node_zip(tmp_path), during)
    (finding,) = analyse(find_dumps(dumps)).findings
    assert (finding["kind"], finding["ranks"]) == (found, [2])


SPAWNED = """
import sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader

def train(rank):
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
    loader = iter(DataLoader(range(100), num_workers=1, multiprocessing_context="spawn"))
    for step in range(5):
        dist.all_reduce(next(loader).float())
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
"""


@pytest.mark.campaign
@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_processes_that_a_rank_starts_to_train_are_ranks_of_their_own(tmp_path: Path, launcher: str):
    (tmp_path / "spawned.py").write_text(SPAWNED)
    (tmp_path / "worker.py").write_text(
        SPAWNED.replace("torch.multiprocessing.spawn(train, nprocs=2)", "import os; train(int(os.environ['RANK']))")
    )
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "worker.py")

    async def during(ranks: WatchedRanks) -> None:
        ranks.start(0, *(torchrun if launcher == "torchrun" else ("spawned.py",)), str(tmp_path / "store"))
        await ranks.until(lambda: ranks.stands() and ranks.stands()[0].began)
        patience, enqueued = PatientWait(60.0), []
        # Where the workers of the loaders take long to start, ranks stand before their first collective, too.
        while enqueued != [6, 5]:
            assert not patience.over(), enqueued
            files = await ranks.gather(f"hang-{len(ranks.told.parts)}")
            documents = [ranks.document_of(files, rank) for rank in (0, 1)]
            enqueued = [document["groups"][0]["enqueued"] for document in documents]
        assert [document["launched_as"] for document in documents] == [0, 0]
        assert b"in train" in files["rank-1.stacks"]
        assert {"rank-0.flight", "rank-1.flight"} < files.keys()
        assert "rank-2.json" not in files

    watching(tmp_path, make_node_zip(tmp_path), during)
