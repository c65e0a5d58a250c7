"""Many nodes, one reading of the source: each has the rest from the others, whoever is lost on the way."""

from __future__ import annotations

import collections
import os
import secrets
import threading
import time
from pathlib import Path

import pytest

from cordee.core.errors import DataError, WireError
from cordee.systems.data.node.stage import fan_out as module
from cordee.systems.data.node.stage.blocks import BlockFolder, BlockRow
from cordee.systems.data.node.stage.fan_out import BlockService, FanOut, StagingPeer, StagingRate
from cordee.wire.peers import PeerListener, connect
from cordee.wire.stores.local import LocalStore

BLOCK = 10_000


class CountedStore(LocalStore):
    """A folder that counts what is read of it, and may be slow."""

    def __init__(self, path: Path, pause_s: float = 0.0) -> None:
        super().__init__(str(path))
        self.read_bytes, self.pause_s = 0, pause_s
        self.by_thread: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def read(self, name, start=0, length=None, version=""):
        data = super().read(name, start, length, version)
        time.sleep(self.pause_s)
        with self._lock:
            self.read_bytes += len(data)
        return data


class StagingNode:
    """A node that stages: its folder, what it gives to others, and its fan-out."""

    def __init__(self, name: str, folder: Path, store: CountedStore, token: bytes) -> None:
        self.name, self.folder, self.store, self.token = name, folder, store, token
        folder.mkdir(exist_ok=True)
        self.blocks = BlockFolder(folder, BlockRow(list(store.list()), BLOCK), folder.parent / f"{name}.blocks")
        self.service = BlockService()
        self.service.offer("corpus", self.blocks)
        self.listener = PeerListener("127.0.0.1", token, name, self.service.answer)
        self.stopped = threading.Event()
        self.failure: BaseException | None = None

    @property
    def peer(self) -> StagingPeer:
        return StagingPeer(self.name, "127.0.0.1", self.listener.port)

    def begin(self, peers, rate: StagingRate | None = None) -> None:
        self.fan_out = FanOut("corpus", self.store, self.blocks, self.name, peers, self.token, rate, self.stopped)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.fan_out.run()
        except BaseException as error:
            self.failure = error

    def die(self) -> None:
        self.stopped.set()
        self.listener.close()


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.bin").write_bytes(os.urandom(50_000 + 777 * number))
    return folder


@pytest.fixture
def make_nodes(tmp_path, corpus):
    made = []

    def make(count, pause_s=0.0):
        store, token = CountedStore(corpus, pause_s), secrets.token_bytes(16)
        nodes = [StagingNode(f"n{number}", tmp_path / f"n{number}", store, token) for number in range(count)]
        made.extend(nodes)
        return store, nodes

    yield make
    for node in made:
        node.die()


def same(corpus: Path, folder: Path) -> bool:
    return all((folder / path.name).read_bytes() == path.read_bytes() for path in corpus.iterdir())


def ended(nodes, seconds=20.0):
    for node in nodes:
        node.thread.join(seconds)
        assert not node.thread.is_alive()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_source_is_read_once_whatever_the_number_of_nodes(corpus, make_nodes, count):
    store, nodes = make_nodes(count, 0.002)
    for node in nodes:
        node.begin([one.peer for one in nodes])
    ended(nodes)
    size = sum(path.stat().st_size for path in corpus.iterdir())
    assert store.read_bytes == size
    assert all(same(corpus, node.folder) for node in nodes)
    assert sum(node.fan_out.source_bytes for node in nodes) == size
    assert sum(node.fan_out.peer_bytes for node in nodes) == (count - 1) * size
    shares = [node.service.sent_bytes for node in nodes]
    assert max(shares) - min(shares) <= count * BLOCK  # all links carry the same


def test_a_node_that_is_lost_is_missed_for_its_share_alone(corpus, make_nodes):
    store, nodes = make_nodes(4, 0.01)
    for node in nodes:
        node.begin([one.peer for one in nodes])
    while nodes[2].blocks.size < 50_000:
        time.sleep(0.005)
    nodes[2].die()
    others = [node for node in nodes if node is not nodes[2]]
    ended(others)
    assert [node.failure for node in others] == [None] * 3
    assert all(same(corpus, node.folder) for node in others)
    assert all(node.fan_out.gone == {"n2"} for node in others)
    size = sum(path.stat().st_size for path in corpus.iterdir())
    assert store.read_bytes <= 1.5 * size  # what had been read by it, once more, and what it was at


def test_a_block_that_was_changed_is_named_and_fetched_again(corpus, make_nodes, monkeypatch):
    _, nodes = make_nodes(2)
    get, spoiled = nodes[0].blocks.get, []

    def spoil(block):
        data, digest = get(block)
        if block == 4 and len(spoiled) < 2:
            spoiled.append(block)
            return bytes([data[0] ^ 1]) + data[1:], digest
        return data, digest

    nodes[0].blocks.get = spoil
    for node in nodes:
        node.begin([one.peer for one in nodes])
    ended(nodes)
    assert nodes[1].fan_out.corrupt == [(4, "n0")] * 2
    assert same(corpus, nodes[1].folder)


def test_what_was_there_before_a_kill_is_not_read_again_unless_it_was_changed(corpus, make_nodes, tmp_path):
    store, [node] = make_nodes(1, 0.005)
    node.begin([node.peer])
    while node.blocks.size < 200_000:
        time.sleep(0.002)
    node.stopped.set()
    ended([node])
    assert isinstance(node.failure, DataError)
    there = node.blocks.size
    damaged = next(iter(node.blocks.row.stretches(0))).object.name
    with (node.folder / damaged).open("r+b") as file:
        file.write(b"damaged")
    store.read_bytes = 0
    again = StagingNode("n0", node.folder, store, node.token)
    again.begin([again.peer])
    ended([again])
    again.die()
    size = sum(path.stat().st_size for path in corpus.iterdir())
    assert store.read_bytes == size - there + BLOCK
    assert same(corpus, node.folder)


def test_who_comes_later_has_all_of_it_from_the_others(corpus, make_nodes, tmp_path):
    store, nodes = make_nodes(2)
    for node in nodes:
        node.begin([one.peer for one in nodes])
    ended(nodes)
    read = store.read_bytes
    late = StagingNode("late", tmp_path / "late", store, nodes[0].token)
    late.begin([one.peer for one in nodes], StagingRate(2_000_000))
    began = time.monotonic()
    ended([late])
    late.die()
    assert (store.read_bytes, late.fan_out.source_bytes) == (read, 0)
    assert time.monotonic() - began > 0.15  # at the rate that it was given
    assert same(corpus, late.folder)


def test_a_peer_that_has_none_of_it_for_too_long_is_not_waited_for(corpus, make_nodes, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    _, nodes = make_nodes(2)
    nodes[1].service.forget("corpus")
    nodes[0].begin([one.peer for one in nodes])
    ended([nodes[0]])
    assert same(corpus, nodes[0].folder)


def test_strangers_get_nothing(make_nodes):
    _, [node] = make_nodes(1)
    with pytest.raises((WireError, OSError)):
        connect("127.0.0.1", node.listener.port, b"guessed", "n1", "n0", 2.0)
    with pytest.raises((WireError, OSError)):
        connect("127.0.0.1", node.listener.port, node.token, "n1", "another", 2.0)
    stream = connect("127.0.0.1", node.listener.port, node.token, "n1", "n0", 2.0)
    stream.send({"set": "other", "block": 0})
    assert stream.receive() == ({}, b"")
    stream.close()


def test_a_source_that_changes_ends_it(corpus, make_nodes):
    _, nodes = make_nodes(2, 0.01)
    (corpus / "8.bin").write_bytes(b"changed")
    for node in nodes:
        node.begin([one.peer for one in nodes])
    ended(nodes[:1], 30)
    assert any(node.failure is not None and "changed after it was listed" in str(node.failure) for node in nodes)
