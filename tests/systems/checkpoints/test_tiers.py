"""Checkpoints that lie on nodes first: there and on a neighbour at once, on shared storage a little later, whoever is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cordee
from cordee.core.errors import CheckpointError
from cordee.systems.checkpoints.node.background import SaveInFlight
from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.sums import verify
from cordee.systems.checkpoints.node.tiers.keeper import CheckpointKeeper
from cordee.systems.checkpoints.node.tiers.kept import KeptSaves
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks, asked
from cordee.systems.checkpoints.node.tiers.node_saves import NodeSaves
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace
from cordee.testing.patience import wait_until

SLOWLY = 4096.0


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global dcp, nn, torch
    import torch
    import torch.distributed.checkpoint as dcp
    from torch import nn


class Node:
    """A node with a disk of its own and a keeper."""

    def __init__(self, base: Path, name: str, tier: str) -> None:
        self.name, disk = name, base / name
        disk.mkdir()
        (base / "control").mkdir(exist_ok=True)
        self.socket = str(base / f"{name}.sock")
        begin = {"node": name, "run": "r-1", "host": "127.0.0.1", "control": str(base / "control")}
        self.keeper = CheckpointKeeper(
            {**begin, "socket": self.socket, "tier": tier, "declared": [str(disk)], "store": ""}
        )

    @property
    def saves(self) -> KeptSaves:
        return self.keeper._saves

    def steps(self) -> list[int]:
        """Return the steps of which something lies here."""
        return [int(part.save.split(".")[0].rpartition("-")[2]) for part in self.saves.parts()]

    def lost(self) -> None:
        """The machine is gone, and what it kept."""
        self.keeper._listener.close()
        if self.saves is not None:
            shutil.rmtree(self.saves.folder)


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Return a function that makes nodes by their names, this process being a rank on the first."""
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.setenv("CORDEE_RUN_ID", "r-1")
    monkeypatch.setenv("CORDEE_CHECKPOINT_DIR", str(tmp_path / "shared"))
    made = []

    def make(names, tier="node"):
        made.extend(Node(tmp_path, name, tier) for name in names.split())
        monkeypatch.setenv("CORDEE_CHECKPOINT_KEEPER", made[0].socket)
        monkeypatch.setenv("CORDEE_CHECKPOINT_TIERS", f"{tier},shared" if tier else "shared")
        return made

    yield make
    for node in made:
        node.keeper.end(clean=True)


@pytest.fixture
def rank(tmp_path):
    """Return a function that makes a model whose weights are one number, and its saver."""
    savers = []

    def make(**more):
        model = nn.Linear(64, 64)
        saver = cordee.checkpointer(model, folder=tmp_path / "shared", asynchronous=True, **more)
        savers.append(saver)
        return model, saver

    yield make
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for saver in savers:
            saver._background.close()


def save(model, saver, step):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float(step))
    saver.save(step)


def on_nodes(saver):
    """Wait until the newest save is on its node."""
    assert saver._background.finish_part() == ""


def killed(saver):
    """The rank is gone without a word, as by SIGKILL."""
    saver._background._requests.clear()  # it asks nobody any more
    saver._background._writer._connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: saver._background._writer.gone, 30)


def weight_of(path):
    state = {"model": {"weight": torch.zeros(64, 64), "bias": torch.zeros(64)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)
    (value,) = {float(one) for tensor in state["model"].values() for one in tensor.unique()}
    return value


def shared(tmp_path):
    return [found.step for found in find_checkpoints(tmp_path / "shared")]


def test_a_save_lies_on_its_node_and_a_neighbour_before_it_is_on_shared_storage(tmp_path, nodes, rank):
    first, second, third = nodes("a b c")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 3)
    on_nodes(saver)
    assert (first.steps(), second.steps(), third.steps()) == ([3], [3], [])
    assert shared(tmp_path) == []
    saver.wait()
    assert shared(tmp_path) == [3]
    assert weight_of(tmp_path / "shared" / "step-000000003") == 3.0


def test_what_comes_while_one_is_on_its_way_stays_on_nodes_and_the_newest_arrives_in_the_end(tmp_path, nodes, rank):
    nodes("a b")
    model, saver = rank(pace=SLOWLY)
    for step in range(1, 5):
        save(model, saver, step)
    on_nodes(saver)
    assert shared(tmp_path) == []
    saver.wait()
    assert shared(tmp_path) == [1, 4]
    assert weight_of(tmp_path / "shared" / "step-000000004") == 4.0


def test_older_saves_go_from_both_nodes_once_a_newer_one_is_there(nodes, rank):
    first, second = nodes("a b")
    model, saver = rank(pace="off")
    for step in range(1, 6):
        save(model, saver, step)
        saver.wait()
    assert (first.steps(), second.steps()) == ([4, 5], [4, 5])


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.usefixtures("real")
def test_a_rank_that_is_killed_and_its_node_cost_nothing_that_was_saved(tmp_path, nodes, rank, lost):
    first, second = nodes("a b")
    model, saver = rank(pace=SLOWLY)
    for step in (1, 2):
        save(model, saver, step)
    on_nodes(saver)
    killed(saver)
    if lost:
        first.lost()
    saves = NodeSaves(str(tmp_path / "control"))
    there = saves.settled()
    path, problems = saves.bring(there, -1)
    assert (os.path.basename(path), problems) == ("step-000000002", [])
    assert weight_of(path) == 2.0
    assert second.steps() == []
    assert rank()[1].restore() == 3
    assert saves.bring(there, 2) == (None, [])


def test_a_copy_that_is_damaged_is_left_for_another_and_without_one_it_is_said(tmp_path, nodes, rank, monkeypatch):
    first, second = nodes("a b")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 7)
    on_nodes(saver)
    killed(saver)
    saves = NodeSaves(str(tmp_path / "control"))

    def spoil(node):
        (part,) = node.saves.parts()
        path = node.saves.file(part.save, 0, "__0_0.distcp")
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    spoil(first)
    path, problems = saves.bring(saves.settled(), -1)
    assert (weight_of(path), problems) == (7.0, [])
    monkeypatch.setenv("CORDEE_ATTEMPT", "1")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 9)
    on_nodes(saver)
    killed(saver)
    spoil(first)
    spoil(second)
    path, problems = saves.bring(saves.settled(), 7)
    assert path is None
    assert problems == [
        "step-000000009 lies on the nodes and could not be written: rank 0's part is damaged on "
        f"{'a' if 'damaged on a' in problems[0] else 'b'}"
    ]
    assert [name for name in os.listdir(tmp_path / "shared") if "gathered" in name] == []


def test_a_node_that_cannot_keep_it_has_it_written_to_shared_storage_at_once(tmp_path, nodes, rank, monkeypatch):
    first, _ = nodes("a b")
    said = []
    monkeypatch.setattr(
        "cordee.systems.checkpoints.node.save_facts.tell_finding", lambda rule, text, what: said.append((rule, text))
    )
    first.saves.folder.write_text("in the way")
    model, saver = rank(pace="off")
    save(model, saver, 1)
    on_nodes(saver)
    saver.wait()
    assert shared(tmp_path) == [1]
    assert said[0][0] == "checkpoint-not-copied"
    assert "this node has none: File exists" in said[0][1]
    first.saves.folder.unlink()


def test_ranks_that_look_for_room_at_once_do_not_take_the_same(tmp_path):
    saves = KeptSaves(tmp_path / "kept")

    def lacks(size):
        taken = sum(path.stat().st_blocks * 512 for path in saves.folder.rglob("*"))
        time.sleep(0.05)
        return "" if taken + size <= 10 << 20 else "no room"

    def begun(rank):
        try:
            return saves.begin("step-1", rank, {"a": 4 << 20, "b": 0}, lacks).name
        except CheckpointError as error:
            return error.text

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(begun, range(6)))
    assert found.count("no room") == 4, found


def test_without_another_node_it_lies_on_its_own_and_a_lost_neighbour_is_replaced(nodes, rank):
    first, second, third = nodes("a b c")
    model, saver = rank(pace="off")
    save(model, saver, 1)
    saver.wait()
    second.lost()
    save(model, saver, 2)
    saver.wait()
    assert (first.steps(), third.steps()) == ([1, 2], [2])


def test_the_writer_of_a_rank_that_is_killed_finishes_without_tiers_too(tmp_path, nodes, rank):
    nodes("a", tier="")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 4)
    assert shared(tmp_path) == []
    saver._background._writer._connection.shutdown(socket.SHUT_RDWR)
    assert NodeSaves(str(tmp_path / "control")).settled() == []
    assert shared(tmp_path) == [4]
    assert weight_of(tmp_path / "shared" / "step-000000004") == 4.0


@pytest.mark.parametrize("tier", ["", "node"])
def test_a_rank_whose_end_does_not_show_yet_is_waited_for_and_one_of_that_attempt_gets_no_writer_any_more(
    tmp_path, nodes, rank, tier
):
    (first,) = nodes("a", tier=tier)
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 4)  # its connection stays open, as by a process that it has forked
    saves = NodeSaves(str(tmp_path / "control"))
    there = saves.settled()
    assert all(one.process.poll() is not None for one in first.keeper._writers)
    assert [save.completion.step for save in there] == ([4] if tier else [])
    assert os.path.basename(saves.bring(there, -1)[0] or "") == ("step-000000004" if tier else "")
    assert shared(tmp_path) == [4]
    model, late = rank(pace="off")
    with pytest.raises(CheckpointError):
        save(model, late, 5)
        late.wait()


def test_a_call_that_the_keeper_has_not_heard_yet_counts(tmp_path, nodes, rank, monkeypatch):
    (first,) = nodes("a", tier="")
    start = first.keeper._start_writer

    def late(*about):
        time.sleep(0.5)
        start(*about)

    monkeypatch.setattr(first.keeper, "_start_writer", late)
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 4)
    saver._background._writer._connection.shutdown(socket.SHUT_RDWR)
    assert NodeSaves(str(tmp_path / "control")).settled() == []
    assert shared(tmp_path) == [4]


def test_a_writer_that_does_not_end_is_killed_before_the_keeper_answers(tmp_path, nodes, rank, monkeypatch):
    (first,) = nodes("a", tier="")
    monkeypatch.setattr("cordee.systems.checkpoints.node.tiers.keeper._SETTLE_S", 0.5)
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 4)
    wait_until(lambda: first.keeper._writers, 10)
    os.kill(first.keeper._writers[0].process.pid, signal.SIGSTOP)
    assert NodeSaves(str(tmp_path / "control")).settled() == []
    assert first.keeper._writers[0].process.poll() == -signal.SIGKILL
    assert shared(tmp_path) == []


def test_a_rank_that_an_exception_ends_leaves_what_lies_on_nodes_to_whoever_starts_the_next(
    tmp_path, nodes, rank, monkeypatch
):
    nodes("a b")
    model, saver = rank(pace=SLOWLY)
    for step in (1, 2):
        save(model, saver, step)
    on_nodes(saver)
    monkeypatch.setattr(sys, "last_type", RuntimeError, raising=False)
    saver._background.close()
    assert shared(tmp_path) == []
    killed(saver)
    saves = NodeSaves(str(tmp_path / "control"))
    assert os.path.basename(saves.bring(saves.settled(), -1)[0]) == "step-000000002"


@pytest.mark.parametrize("tier", ["", "node"])
def test_a_rank_hears_that_its_writer_was_killed_and_goes_on_with_the_next(tmp_path, nodes, rank, tier):
    (first,) = nodes("a", tier=tier)
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 1)
    wait_until(lambda: first.keeper._writers, 10)
    os.kill(first.keeper._writers[0].process.pid, signal.SIGKILL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in (2, 3):
            save(model, saver, step)
        saver.wait()
    assert shared(tmp_path)[-1] == 3
    assert weight_of(tmp_path / "shared" / "step-000000003") == 3.0


def saved_by_both(model, first, second) -> None:
    """Have two ranks hand over their parts of step 1, which then lie on the node."""
    partial = first._place.hidden("step-000000001")
    first._place.begin(partial)
    completion = Completion("step-000000001", 1, 2, torch.__version__, 1)
    for number, saver in enumerate((first, second)):
        saves = saver._background
        saves.snapshot({"model": model.state_dict()}, partial)
        saves.hand_over(SaveInFlight(1, time.monotonic(), 0.0), partial, None, number, completion, saver._place)
        on_nodes(saver)


def test_a_part_that_its_writer_loses_on_the_way_to_shared_storage_keeps_no_other_rank_waiting(tmp_path, nodes, rank):
    (node,) = nodes("a")
    model, first = rank()
    _, second = rank(pace=SLOWLY)
    saved_by_both(model, first, second)
    assert first._background.draining is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ended = node.keeper._writers[-1].process
        ended.kill()
        wait_until(lambda: node.keeper._writers[-1].process is not ended, 60)  # another one goes on, and none after it
        node.keeper._writers[-1].process.kill()
        wait_until(lambda: first._background.draining is None, 30)
    assert "rank 1: the process that writes it ended" in first._background._undrained
    assert second._background.draining is None


def arrived(saver):
    wait_until(lambda: saver._background.draining is None and saver._background.storing is None, 60)


@pytest.mark.usefixtures("real")
def test_what_a_killed_writer_had_on_its_way_to_shared_storage_another_brings_there_without_a_next_save(
    tmp_path, nodes, rank
):
    (node,) = nodes("a")
    model, saver = rank(pace=SLOWLY)
    for step in (1, 2):  # the second one waits for the first
        save(model, saver, step)
    on_nodes(saver)
    os.kill(node.keeper._writers[0].process.pid, signal.SIGKILL)
    arrived(saver)
    assert shared(tmp_path) == [1]
    saver.wait()
    assert shared(tmp_path) == [1, 2]
    assert [weight_of(tmp_path / "shared" / f"step-00000000{step}") for step in (1, 2)] == [1.0, 2.0]
    assert len(node.keeper._writers) == 1


@pytest.mark.usefixtures("real")
def test_the_writer_that_completes_a_save_may_be_killed_after_others_have_brought_their_parts(tmp_path, nodes, rank):
    (node,) = nodes("a")
    model, first = rank(pace=SLOWLY)
    _, second = rank(pace="off")
    saved_by_both(model, first, second)
    arrived(second)
    os.kill(node.keeper._writers[0].process.pid, signal.SIGKILL)
    arrived(first)
    assert first._background._undrained == ""
    assert shared(tmp_path) == [1]


@pytest.mark.usefixtures("real")
def test_a_writer_that_is_killed_goes_on_once_its_keeper_is_there_again(tmp_path, nodes, rank):
    (node,) = nodes("a")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 1)
    on_nodes(saver)
    os.rename(node.socket, f"{node.socket}.away")
    os.kill(node.keeper._writers[0].process.pid, signal.SIGKILL)
    wait_until(lambda: saver._background._writer.gone, 30)
    os.rename(f"{node.socket}.away", node.socket)
    arrived(saver)
    assert shared(tmp_path) == [1]


@pytest.mark.parametrize("left", ["described", "named"])
@pytest.mark.usefixtures("real")
def test_a_save_that_a_killed_writer_had_described_or_named_is_completed_once(tmp_path, nodes, rank, left):
    (node,) = nodes("a")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 1)
    on_nodes(saver)
    (writer,) = node.keeper._writers
    os.kill(writer.process.pid, signal.SIGSTOP)
    (request,) = saver._background._requests.values()
    (part,) = node.saves.parts()
    for name in part.sizes:
        shutil.copy(node.saves.file(part.save, 0, name), request.partial)
    place = CheckpointPlace.taken_over(request.place)
    if left == "described":
        place.renamed = lambda partial, name: partial
        place.remove_old = lambda *of: None
    complete(request.partial, Completion(*request.completion), dict(part.sums), place, durable=True)
    writer.process.kill()
    arrived(saver)
    assert saver._background._undrained == ""
    assert [found.name for found in find_checkpoints(tmp_path / "shared")] == ["step-000000001"]
    assert weight_of(tmp_path / "shared" / "step-000000001") == 1.0
    verify(str(tmp_path / "shared" / "step-000000001"), 0, 1)


def test_a_list_ends_nothing(tmp_path, nodes, rank):
    nodes("a b")
    model, saver = rank(pace=SLOWLY)
    save(model, saver, 4)
    on_nodes(saver)
    assert [save.completion.step for save in NodeSaves(str(tmp_path / "control")).found()] == [4]
    save(model, saver, 5)
    saver.wait()
    assert shared(tmp_path) == [4, 5]


def test_a_folder_that_the_run_does_not_know_is_written_by_the_ranks_own_child(tmp_path, nodes):
    nodes("a b")
    saver = cordee.checkpointer(nn.Linear(4, 4), folder=tmp_path / "elsewhere", asynchronous=True)
    saver.save(1)
    saver.wait()
    assert saver._background._writer.process.pid
    assert [found.step for found in find_checkpoints(tmp_path / "elsewhere")] == [1]


def test_a_node_without_such_a_place_saves_beside_the_training_all_the_same(tmp_path, nodes, rank, monkeypatch):
    nodes("a", tier="")
    monkeypatch.setenv("CORDEE_CHECKPOINT_TIERS", "node,shared")
    model, saver = rank(pace="off")
    for step in (1, 2, 3):
        save(model, saver, step)
    saver.wait()
    assert shared(tmp_path) == [1, 2, 3]
    assert weight_of(tmp_path / "shared" / "step-000000003") == 3.0


def test_a_keeper_gives_nothing_but_parts_of_checkpoints(tmp_path, nodes):
    nodes("a")
    with pytest.raises(CheckpointError, match="no part of a checkpoint"):
        stream = KeeperLinks(tmp_path / "control", "b").connect("a")
        asked(stream, {"do": "read", "save": "..", "rank": 0, "name": "a.sock", "offset": 0, "length": 9}, 10)
    with pytest.raises(CheckpointError, match="does not know this"):
        asked(stream, {"do": "remove"}, 10)
    stream.close()
    assert (tmp_path / "control" / "checkpoints" / "token").stat().st_mode & 0o777 == 0o600


def test_parts_are_read_while_other_ranks_remove_theirs(tmp_path):
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            (tmp_path / "step-1.tmp").mkdir(exist_ok=True)
            (tmp_path / "step-1.tmp").rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        assert [list(KeptSaves(tmp_path).parts()) for _ in range(3000)] == [[]] * 3000
    finally:
        over.set()
        other.join()
