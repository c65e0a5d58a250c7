"""Saves that go on from shared storage to an object store: complete there or absent, and fetched from there where nothing else is left."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import cordee
from cordee.core.errors import CheckpointError, DataError
from cordee.systems.checkpoints import library
from cordee.systems.checkpoints.cli import command
from cordee.systems.checkpoints.node.folder import MANIFEST, find_checkpoints
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.owner import RunCheckpoints
from cordee.systems.checkpoints.node.sums import file_with_sum, verify
from cordee.systems.checkpoints.node.tiers import object_saves
from cordee.systems.checkpoints.node.tiers.keeper import CheckpointKeeper
from cordee.systems.checkpoints.node.tiers.node_saves import NodeSaves
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace
from cordee.testing.patience import wait_until
from cordee.wire.stores import open_store
from cordee.wire.stores.patience import VARIABLE
from support.servers.object_store import DisposableS3, FailingWay

from ...job.plan.conftest import HEAD, make  # noqa: F401


@pytest.fixture(scope="module")
def server():
    with DisposableS3() as server:
        yield server


@pytest.fixture
def way(server, monkeypatch):
    """The way to a store that may fail, which the environment leads to."""
    with FailingWay(server.url) as way:
        for name, value in {**server.variables, "AWS_ENDPOINT_URL": way.url}.items():
            monkeypatch.setenv(name, value)
        yield way


@pytest.fixture
def address(request, server, way):
    return f"s3://{server.bucket}/{request.node.name}/r-1"


def whole(data):
    yield data


def on_shared(folder, step, keep=9, files=("__0_0.distcp", "__1_0.distcp")):
    place = CheckpointPlace.taken_over(
        {"run": "r-1", "attempt": "0", "epoch": 1, "folder": str(folder), "token": "t", "saved": [], "goes_on": True}
    )
    folder.mkdir(exist_ok=True)
    place.begin(partial := place.fresh(f"step-{step:09d}"))
    sums = {name: file_with_sum(f"{partial}/{name}", [content(step, name)]) for name in files}
    what = Completion(f"step-{step:09d}", step, len(files), "2", keep)
    return partial, what, complete(partial, what, sums, place, durable=True)


def content(step, name):
    return f"{step} {name} ".encode() * 9000


def stored(saves, folder, step, keep=9, milestones=0):
    """Bring a checkpoint of two ranks to the store as their writers do."""
    partial, what, path = on_shared(folder, step)
    name = saves.name_of(partial)
    for file in what_files(path):
        saves.put(name, {file: memoryview(content(step, file))}, whole)
    saves.complete(name, manifest_of(path), what._replace(keep=keep, milestones=milestones), lambda: False)
    return name


def what_files(path):
    return sorted(set(os.listdir(path)) - {MANIFEST})


def manifest_of(path):
    with open(f"{path}/{MANIFEST}", "rb") as file:
        return file.read()


def steps_in(address):
    return sorted({one.name.partition("/")[0].partition(".")[0][-4:] for one in open_store(address).list()})


def test_a_save_counts_once_all_ranks_files_and_then_its_manifest_are_there(tmp_path, address, monkeypatch):
    saves = ObjectSaves(address)
    assert saves.newest() is None
    monkeypatch.setattr(object_saves, "_LOOK_S", 0.02)
    partial, what, path = on_shared(tmp_path / "c", 4)
    name = saves.name_of(partial)
    saves.put(name, {"__0_0.distcp": memoryview(content(4, "__0_0.distcp"))}, whole)
    completing = threading.Thread(target=saves.complete, args=(name, manifest_of(path), what, lambda: False))
    completing.start()
    assert saves.newest() is None
    saves.put(name, {"__1_0.distcp": memoryview(content(4, "__1_0.distcp"))}, whole)
    completing.join()
    found = saves.newest()
    assert (found.name, found.manifest["step"]) == (name, 4)
    assert saves.newest(below=4) is None


def test_a_save_whose_other_ranks_bring_nothing_is_given_up_and_goes_with_the_next(tmp_path, address, monkeypatch):
    saves = ObjectSaves(address)
    partial, what, path = on_shared(tmp_path / "c", 4)
    name = saves.name_of(partial)
    saves.put(name, {"__0_0.distcp": memoryview(content(4, "__0_0.distcp"))}, whole)
    monkeypatch.setattr(object_saves, "_LOOK_S", 0.02)
    monkeypatch.setattr(object_saves, "_NOTHING_COMES_S", 0.1)
    with pytest.raises(CheckpointError, match="1 of 2 files did not come"):
        saves.complete(name, manifest_of(path), what, lambda: False)
    assert (saves.newest(), steps_in(address)) == (None, ["0004"])
    stored(saves, tmp_path / "c", 8)
    assert steps_in(address) == ["0008"]


def test_so_many_stay_and_the_first_of_every_milestone(tmp_path, address):
    saves = ObjectSaves(address)
    for step in (3, 5, 7, 11, 13):
        stored(saves, tmp_path / "c", step, keep=2, milestones=5)
    assert steps_in(address) == ["0005", "0011", "0013"]
    stored(saves, tmp_path / "c", 13, keep=1)
    assert (steps_in(address), len(list(open_store(address).list()))) == (["0013"], 3)


def test_a_store_that_does_not_answer_in_time_is_told_of_and_the_save_before_stays_whole(
    tmp_path, address, way, monkeypatch
):
    saves = ObjectSaves(address)
    first = stored(saves, tmp_path / "c", 4)
    monkeypatch.setenv(VARIABLE, "1s")
    late = ObjectSaves(address)
    way.matching, way.silent = lambda method, path: method == "PUT", 99
    with pytest.raises(DataError, match="did not serve"):
        late.put("step-8.x", {"__0_0.distcp": memoryview(b"8" * 100)}, whole)
    way.silent = 0
    assert saves.newest().name == first


@pytest.fixture
def keepers(tmp_path, address):
    """Two nodes of another allocation, on which nothing lies."""
    (tmp_path / "control").mkdir()
    about = {"run": "r-1", "host": "127.0.0.1", "control": str(tmp_path / "control"), "tier": "", "declared": []}
    made = [
        CheckpointKeeper({**about, "node": node, "socket": str(tmp_path / f"{node}.sock"), "store": address})
        for node in ("a", "b")
    ]
    yield NodeSaves(str(tmp_path / "control"))
    for keeper in made:
        keeper.end(clean=True)


def test_what_is_gone_from_shared_storage_is_fetched_by_all_nodes_and_is_what_it_was(tmp_path, address, keepers, way):
    folder = tmp_path / "c"
    for step in (4, 8):
        stored(ObjectSaves(address), folder, step)
    before = find_checkpoints(folder)[-1]
    manifest = manifest_of(before.path)
    shutil.rmtree(folder)
    folder.mkdir()
    way.cut = 2  # answers that end in the middle are asked for again
    path, problems = keepers.fetch(str(folder), "r-1", -1)
    assert (path, problems) == (before.path, [])
    verify(path, 0, 1)
    assert [one.step for one in find_checkpoints(folder)] == [8]
    kept = {"step", "world_size", "files", "crc32", "run", "epoch", "attempt", "torch"}
    now, then = json.loads(manifest_of(path)), json.loads(manifest)
    assert {name: now[name] for name in kept} == {name: then[name] for name in kept}
    assert keepers.fetch(str(folder), "r-1", 8) == (None, [])


def test_a_damaged_save_is_passed_over_for_the_one_before_and_it_is_said(tmp_path, address, keepers):
    for step in (4, 8):
        stored(ObjectSaves(address), tmp_path / "c", step)
    newest = ObjectSaves(address).newest().name
    open_store(address).write(f"{newest}/__1_0.distcp", [bytes(len(content(8, "__1_0.distcp")))])
    path, (problem,) = keepers.fetch(str(tmp_path / "d"), "r-1", -1)
    assert path == str(tmp_path / "d" / "step-000000004")
    assert "step 8 in the object store cannot be fetched: __1_0.distcp of step-000000008" in problem
    verify(path, 0, 1)
    assert [one.name for one in (tmp_path / "d").iterdir()] == ["step-000000004"]


def test_a_store_that_cannot_be_asked_keeps_no_run_from_its_beginning(tmp_path, keepers, way, monkeypatch):
    way.matching, way.failures = lambda method, path: True, 10**6
    monkeypatch.setenv(VARIABLE, "500ms")
    path, (problem,) = keepers.fetch(str(tmp_path / "c"), "r-1", -1)
    assert path is None
    assert "what lies in the object store cannot be fetched: the store did not serve" in problem


@pytest.fixture
def training(tmp_path, address, monkeypatch):
    """A function that makes a model and its saver on a node whose saves go to the store in the end."""
    import torch

    for folder in ("control", "disk"):
        (tmp_path / folder).mkdir()
    told = {"RUN_ID": "r-1", "CHECKPOINT_DIR": str(tmp_path / "c"), "CHECKPOINT_KEEPER": str(tmp_path / "s")}
    for name, value in {**told, "CHECKPOINT_TIERS": "node,shared,s3://there"}.items():
        monkeypatch.setenv(f"CORDEE_{name}", value)
    about = {"run": "r-1", "node": "a", "host": "127.0.0.1", "control": str(tmp_path / "control"), "tier": "node"}
    begin = {**about, "socket": str(tmp_path / "s"), "declared": [str(tmp_path / "disk")], "store": address}
    made = []

    def begun(**more):
        made.append(CheckpointKeeper(begin))
        model = torch.nn.Linear(512, 512)
        saver = cordee.checkpointer(model, folder=tmp_path / "c", asynchronous=True, **more)
        made.append(saver._background)
        return model, saver

    begun.keeper = lambda: made[0]
    yield begun
    keeper, background = made
    background.close()
    keeper.end(clean=True)


def test_a_training_brings_its_newest_save_there_and_is_restored_when_nothing_else_is_left(tmp_path, address, training):
    import torch

    model, saver = training(pace=500_000)
    for step in (3, 4, 5):
        saver.save(step)
    saver.wait()
    assert ObjectSaves(address).newest().manifest["step"] == 5
    shutil.rmtree(tmp_path / "c")
    path, problems = NodeSaves(str(tmp_path / "control")).fetch(str(tmp_path / "c"), "r-1", -1)
    assert (os.path.basename(path), problems) == ("step-000000005", [])
    again = torch.nn.Linear(512, 512)
    assert cordee.checkpointer(again, folder=tmp_path / "c").restore() == 6
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in again.state_dict().items())


def test_what_a_killed_writer_was_sending_another_sends_without_a_next_save(address, way, training):
    _, saver = training(pace="off")
    way.matching, way.silent = lambda method, path: method == "PUT", 1
    saver.save(3)
    background = saver._background
    wait_until(lambda: background.draining is None and way.silent == 0, 60)
    (writer,) = training.keeper()._writers
    writer.process.kill()
    wait_until(lambda: background.storing is None, 60)
    assert ObjectSaves(address).newest().manifest["step"] == 3
    assert background._writer.gone is False


def finder(tmp_path):
    policy = SimpleNamespace(path=str(tmp_path / "c"), pattern="step-*", ignore={}, asynchronous=True, begin=None)
    more = {"tiers": ("node", "shared", "s3://bucket/p"), "own_folder": True, "resume": ""}
    policy.__dict__.update(more)
    return RunCheckpoints(policy, "r-1", tmp_path / "control", 1.0, 1.0)


def test_what_a_killed_rank_was_sending_its_node_sends_before_the_next_save_once(tmp_path, address, way, training):
    _, saver = training(pace="off")
    way.matching, way.silent = lambda method, path: method == "PUT", 1
    saver.save(3)
    background = saver._background
    wait_until(lambda: background.draining is None and way.silent == 0, 60)
    background._requests = {}  # the rank is killed
    background._writer._connection.shutdown(socket.SHUT_RDWR)
    way.asked.clear()
    for _ in range(3):
        problems = []
        assert finder(tmp_path).newest(problems).step == 3
        assert problems == []
    wait_until(lambda: ObjectSaves(address).newest() is not None, 60)
    assert ObjectSaves(address).newest().manifest["step"] == 3
    sent = [path.partition("?")[0] for method, path in way.asked if method == "PUT"]
    assert len(sent) == len(set(sent)) == len(list(open_store(address).list()))


def test_nodes_share_what_goes_on_to_the_store_and_one_of_them_completes_it(tmp_path, address, keepers):
    _, _, path = on_shared(tmp_path / "c", 4)
    keepers.catch_up(path)
    wait_until(lambda: ObjectSaves(address).newest() is not None, 60)
    shutil.rmtree(path)
    found, problems = keepers.fetch(str(tmp_path / "c"), "r-1", -1)
    assert (found, problems) == (path, [])
    verify(path, 0, 1)


def test_a_training_goes_on_where_the_store_is_silent_and_the_run_is_told(
    tmp_path, address, way, training, monkeypatch
):
    said = []
    tell = "cordee.systems.checkpoints.node.save_facts.tell_finding"
    monkeypatch.setattr(tell, lambda rule, text, what: said.append((rule, text)))
    monkeypatch.setenv(VARIABLE, "1s")
    way.matching, way.silent = lambda method, path: method == "PUT", 10**6
    _, saver = training(pace="off")
    for step in (3, 4):
        saver.save(step)
        saver.wait()
    assert [one.step for one in find_checkpoints(tmp_path / "c")] == [3, 4]
    ((rule, text),) = said
    assert rule == "checkpoint-not-stored"
    assert "a save is on shared storage and not in the object store: the store did not serve" in text
    way.silent = 0
    saver.save(5)
    saver.wait()
    assert steps_in(address) == ["0005"]


def test_a_store_that_says_no_is_refused_when_a_job_is_checked_and_one_that_says_nothing_is_warned_of(
    make,  # noqa: F811
    server,
    way,
    monkeypatch,
):
    def judged(bucket):
        tiers = f'["memory", "shared", "s3://{bucket}/me"]'
        found = make(f"{HEAD}[need]\nnodes = 2\n[checkpoint]\ntiers = {tiers}\n")[2]
        return [(one.severity, one.text) for one in found if one.rule == "checkpoint-store"]

    assert judged(server.bucket) == []
    ((severity, text),) = judged("another")
    assert (severity, "there is no such bucket" in text) == ("error", True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ((severity, text),) = judged(server.bucket)
    assert (severity, "cannot be seen from here" in text) == ("warn", True)


def test_a_list_has_what_lies_in_the_store_and_says_where_it_cannot_be_asked(tmp_path, address, way, monkeypatch):
    stored(ObjectSaves(address), tmp_path / "c", 4)
    open_store(address).write("step-000000008.x/__0_0.distcp", [b"8"])
    monkeypatch.setattr(library, "_policy_of", lambda run: {"tiers": [address.rpartition("/")[0]]})
    monkeypatch.setattr(library, "on_nodes", lambda library: [])
    run = SimpleNamespace(id="r-1")
    monkeypatch.setattr(library, "library_of", lambda target, runs: library.CheckpointLibrary(str(tmp_path), [], run))
    listed = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    found = [(one["step"], one["tier"], one["complete"], one["time"]) for one in listed["checkpoints"]]
    assert found == [(4, "store", True, None), (8, "store", False, None)]
    way.failures = 99
    monkeypatch.setenv(VARIABLE, "500ms")
    silent = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    assert silent["checkpoints"] == []
    assert "its object store cannot be asked: the store did not serve" in silent["unseen"]
