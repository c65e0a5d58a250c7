"""Reading packed data sets from an object store."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import cordee
from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.read.packed.source import PackedSource
from cordee.systems.data.node.read.sources import open_source
from cordee.systems.data.node.read.tokens.index import write_token_index
from cordee.systems.data.node.read.tokens.source import TokenSource
from support.servers.object_store import DisposableS3, FailingWay


@pytest.fixture(scope="module")
def store():
    with DisposableS3() as s3:
        yield s3


@pytest.fixture
def way(store, monkeypatch, tmp_path):
    """The way to the store; the environment leads there, within three seconds for a request."""
    with FailingWay(store.url) as found:
        variables = {**store.variables, "AWS_ENDPOINT_URL": found.url}
        for name, value in {
            **variables,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "CORDEE_STORE_TIMEOUT": "3s",
        }.items():
            monkeypatch.setenv(name, value)
        yield found


def upload(folder: Path, name: str) -> str:
    from obstore import put
    from obstore.store import S3Store

    client = S3Store("bucket", prefix=name, client_options={"allow_http": True})
    for path in folder.iterdir():
        put(client, path.name, path.read_bytes())
    return f"s3://bucket/{name}"


@pytest.fixture
def packed(way, pack, make, tmp_path):
    """A data set of 40 samples here and its address there."""
    folder = pack(tmp_path / "packed", make(40))
    return folder, upload(folder, tmp_path.name)


def test_samples_come_back_in_few_large_requests(packed, way):
    folder, address = packed
    here, there = PackedSource(folder, keys=True), PackedSource(address, keys=True)
    assert there.identity == here.identity
    order = numpy.random.default_rng(5).permutation(40)
    there.expect(order)
    assert there.read(order[:7]) + there.read(order[7:]) == here.read(order)
    assert there.counts.requests == 4
    assert there.read(order[:7]) == here.read(order[:7])
    there.close()


def test_the_index_here_reads_shards_there(packed):
    folder, address = packed
    there = PackedSource(folder, root=address, ahead="none")
    assert there.read(numpy.arange(40)) == PackedSource(folder).read(numpy.arange(40))
    copy = pickle.loads(pickle.dumps(there))
    assert copy.read(numpy.array([3])) == there.read(numpy.array([3]))


@pytest.mark.parametrize("fault", ["failures", "cut", "broken"])
def test_a_fault_that_passes_is_survived(packed, way, fault):
    folder, address = packed
    there = PackedSource(address)
    setattr(way, fault, 2)
    assert there.read(numpy.arange(20)) == PackedSource(folder).read(numpy.arange(20))


@pytest.mark.parametrize(("fault", "said"), [("failures", "status 503"), ("silent", "did not answer in time")])
def test_a_store_that_does_not_come_back_is_an_error_within_the_limit(packed, way, fault, said):
    there = PackedSource(packed[1])
    setattr(way, fault, 1000)
    with pytest.raises(DataError, match=said) as raised:
        there.read(numpy.array([1]))
    assert "CORDEE_STORE_TIMEOUT" in raised.value.next
    assert "AKIA" not in str(raised.value)


def test_what_is_not_there_is_said_at_once(way):
    with pytest.raises(DataError, match="it is not there"):
        PackedSource("s3://bucket/nothing")
    assert len(way.asked) == 1


def test_an_index_that_came_in_part_is_not_kept(packed, way, tmp_path):
    def of_index(method, path):
        return method == "GET" and "dataset.index" in path

    way.matching, way.failures = of_index, 1000
    with pytest.raises(DataError, match="status 503"):
        PackedSource(packed[1])
    assert list((tmp_path / "cache/cordee/indexes").iterdir()) == []
    way.failures = 0
    way.asked.clear()
    for _ in range(2):
        PackedSource(packed[1])
    assert sum(of_index(*asked) for asked in way.asked) == 1


def test_shards_of_another_data_set_are_refused(packed, pack, make, tmp_path):
    other = pack(tmp_path / "other", make(40, seed=3))
    with pytest.raises(CorruptDataError, match="not the one of this index"):
        PackedSource(other, root=packed[1]).read(numpy.array([1]))


@pytest.fixture
def tokens(way, tmp_path):
    """A token set whose tokens count up, here and in a folder there."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    numpy.arange(60_001, dtype="<u2").tofile(folder / "corpus.bin")
    write_token_index(folder / "corpus.idx", "<u2", numpy.array([1, 0, 60_000]))
    return folder, upload(folder, f"{tmp_path.name}/tokens")


@pytest.mark.parametrize("named", ["", "/", "/corpus", "/corpus.bin", "/corpus.idx"])
def test_tokens_are_found_by_any_of_their_names(tokens, named):
    folder, address = tokens
    there, here = open_source(address + named, length=100), TokenSource(folder, 100)
    assert (there.identity, there.size, there.name) == (here.identity, 600, "corpus")
    there.close()


def test_tokens_come_in_the_order_of_those_here_by_few_requests(tokens, way):
    folder, address = tokens
    batches = [cordee.dataset(place, batch=16, length=100, seed=4) for place in (folder, address)]
    for ours, theirs in zip(*batches, strict=True):
        assert (ours["tokens"] == theirs["tokens"]).all()
    assert batches[1].counts.bytes >= 120_000
    asked = [path for method, path in way.asked if method == "GET" and path.endswith("corpus.bin")]
    assert len(asked) == batches[1].counts.requests < 40
    batches[1].close()


def test_documents_of_tokens_are_read_from_a_store(tokens):
    there = open_source(tokens[1], documents=True)
    assert [len(sample["tokens"]) for sample in there.read(numpy.array([1, 2, 0]))] == [0, 60_000, 1]
    copy = pickle.loads(pickle.dumps(there))
    assert copy.read(numpy.array([0]))[0]["tokens"].tolist() == [0]


@pytest.mark.parametrize("fault", ["failures", "cut", "broken"])
def test_a_fault_while_tokens_are_read_is_survived(tokens, way, fault):
    there = open_source(tokens[1], length=100)
    setattr(way, fault, 2)
    assert there.read(numpy.array([5]))[0]["tokens"].tolist() == list(range(500, 601))


def test_what_is_no_data_set_in_a_store_is_said(way, tokens):
    with pytest.raises(DataError, match="there is no data set"):
        open_source("s3://bucket/nothing")
    with pytest.raises(DataError, match="pieces of a length"):
        open_source(tokens[1])


def test_tokens_of_another_index_are_refused(tokens):
    (tokens[0] / "corpus.bin").write_bytes(b"12")
    upload(tokens[0], f"{tokens[0].parent.name}/tokens")
    with pytest.raises(CorruptDataError, match="cut off"):
        open_source(tokens[1], length=100)


def in_a_fork(work):
    """Return what a forked process says."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            os.write(sender, str(work()).encode())
        except UsageError as error:
            os.write(sender, str(error).encode())
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_forked_worker_of_one_who_read_is_told_to_be_spawned(packed):
    there = PackedSource(packed[1])
    assert '"forkserver"' in in_a_fork(lambda: there.read(numpy.array([1])))


@pytest.mark.usefixtures("real")
def test_a_forked_worker_of_one_who_has_not_read_reads(packed):
    folder, address = packed
    program = (
        "import numpy, os; from cordee.systems.data.node.read.packed.source import PackedSource\n"
        f"source = PackedSource({str(folder)!r}, root={address!r})\n"
        "child = os.fork()\n"
        "if child: os._exit(os.waitpid(child, 0)[1])\n"
        "print(len(source.read(numpy.arange(40))), flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "40\n", done.stderr
