"""Packing from S3 and to S3: the same data set as in a folder, also after kill -9 and a store that does not answer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.shards.index import open_index
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.shards.index_only import index_shards
from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify
from cordee.wire.stores import open_store
from support.servers.object_store import DisposableS3, FailingWay

OPTIONS = PackOptions(shard_bytes=60_000, workers=2, name="x")

# Packs and is killed while its third shard is on its way to the store.
KILLED = """
import os, signal, sys
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.shards.index_only import index_shards
from cordee.systems.data.pack.build import pack, plan_of
from cordee.wire.stores.s3 import S3Store

write, names = S3Store.write, []

def killed(self, name, content):
    names.append(name)
    if len(names) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, name, content)

S3Store.write = killed
pack(plan_of(sys.argv[1]), sys.argv[2], PackOptions(shard_bytes=60_000, name="x"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw = random.Random(3)
    for number in range(40):
        path = tmp_path / "files" / f"{number % 3}" / f"{number:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randrange(10_000)))
    return tmp_path / "files"


def packed_here(folder: Path, to: Path) -> dict[str, bytes]:
    pack(plan_of(str(folder)), str(to), OPTIONS)
    return {path.name: path.read_bytes() for path in to.iterdir() if path.is_file()}


def stored(address: str) -> dict[str, bytes]:
    store = open_store(address)
    return {each.name: store.read(each.name, 0, each.bytes) for each in store.list()}


def test_what_is_packed_to_s3_is_what_is_packed_here(folder: Path, tmp_path: Path, s3: str) -> None:
    result = pack(plan_of(str(folder)), s3, OPTIONS)
    assert result.shards > 3
    assert stored(s3) == packed_here(folder, tmp_path / "here")
    assert list((tmp_path / "cache").rglob("*.partial")) == []
    again = pack(plan_of(str(folder)), s3, OPTIONS)
    assert (again.already, again.id, again.packed_s) == (True, result.id, None)


def test_objects_below_a_prefix_are_packed_like_files(folder: Path, tmp_path: Path, s3: str) -> None:
    store = open_store(f"{s3}/objects")
    for path in folder.rglob("*.bin"):
        store.write(str(path.relative_to(folder)), [path.read_bytes()])
    pack(plan_of(f"{s3}/objects"), str(tmp_path / "from"), OPTIONS)
    shards = {path.name: path.read_bytes() for path in (tmp_path / "from").glob("*.tar")}
    here = packed_here(folder, tmp_path / "here")
    assert shards == {name: content for name, content in here.items() if name.endswith(".tar")}


def test_an_object_that_is_replaced_after_it_was_listed_is_not_packed(folder: Path, tmp_path: Path, s3: str) -> None:
    store = open_store(s3)
    store.write("a.bin", [b"first"])
    store.write("b.bin", [b"other"])
    plan = plan_of(s3)
    store.write("a.bin", [b"again"])
    with pytest.raises(DataError) as caught:
        pack(plan, str(tmp_path / "out"), OPTIONS)
    assert "a.bin" in str(caught.value)
    assert "changed after it was listed" in str(caught.value)


def test_packing_to_s3_goes_on_after_kill_9(folder: Path, tmp_path: Path, s3: str) -> None:
    argv = [sys.executable, "-c", KILLED, str(folder), s3]
    assert subprocess.run(argv, timeout=300).returncode == -signal.SIGKILL
    before = {each.name: each.version for each in open_store(s3).list()}
    assert len(before) == 2
    result = pack(plan_of(str(folder)), s3, OPTIONS)
    assert result.resumed_shards >= 1
    after = open_store(s3).list()
    kept = [each.name for each in after if before.get(each.name) == each.version]
    assert len(kept) >= result.resumed_shards
    assert stored(s3) == packed_here(folder, tmp_path / "here")


def test_a_store_that_fails_for_good_ends_packing_and_the_next_call_goes_on(
    folder: Path, tmp_path: Path, s3: str, server: DisposableS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORDEE_STORE_TIMEOUT", "1s")
    with FailingWay(server.url) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        way.matching = lambda method, path: method in ("PUT", "POST") and "000002" in path
        way.silent = 1000
        with pytest.raises(DataError, match="did not answer in time"):
            pack(plan_of(str(folder)), s3, OPTIONS)
        assert open_store(s3).look("dataset.index") is None
        way.silent = 0
        assert pack(plan_of(str(folder)), s3, OPTIONS).resumed_shards > 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    assert stored(s3) == packed_here(folder, tmp_path / "here")


def test_other_formats_go_to_s3_too(folder: Path, tmp_path: Path, s3: str) -> None:
    for kind in ("hdf5", "zarr"):
        pack(plan_of(str(folder)), f"{s3}/{kind}", OPTIONS, target=kind)
        pack(plan_of(str(folder)), str(tmp_path / kind), OPTIONS, target=kind)
        here = {str(one.relative_to(tmp_path / kind)): one for one in (tmp_path / kind).rglob("*") if one.is_file()}
        there = stored(f"{s3}/{kind}")
        assert there == {name: path.read_bytes() for name, path in here.items()}
    assert open_index(tmp_path / "zarr").samples == 40


def test_an_object_of_many_requests_is_packed(tmp_path: Path, s3: str) -> None:
    content = os.urandom(1 << 20) * 9
    open_store(s3).write("large.bin", [content])
    pack(plan_of(s3), str(tmp_path / "out"), OPTIONS)
    unpack(str(tmp_path / "out"), str(tmp_path / "back"))
    assert (tmp_path / "back" / "large.bin").read_bytes() == content


def test_a_data_set_on_s3_is_verified_and_unpacked(folder: Path, tmp_path: Path, s3: str) -> None:
    pack(plan_of(str(folder)), s3, OPTIONS)
    assert verify(s3, workers=2).damaged == []
    unpack(s3, str(tmp_path / "back"), workers=2)
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.bin"))
    assert [(tmp_path / "back" / name).read_bytes() for name in names] == [
        (folder / name).read_bytes() for name in names
    ]
    store = open_store(s3)
    shard = bytearray(store.read("x-000001.tar"))
    shard[600] ^= 1
    store.write("x-000001.tar", [bytes(shard)])
    (damage,) = verify(s3).damaged
    assert damage.shard == "x-000001.tar"
    assert damage.key is not None
    store.delete("x-000000.tar")
    assert "is not there" in verify(s3).damaged[0].reason


def test_shards_on_s3_get_an_index_there_or_here(folder: Path, tmp_path: Path, s3: str) -> None:
    pack(plan_of(str(folder)), s3, OPTIONS)
    store = open_store(s3)
    store.delete("dataset.index")
    index_shards(s3, str(tmp_path / "index"), workers=2)
    assert open_index(tmp_path / "index").root == s3
    assert verify(str(tmp_path / "index")).damaged == []
    with pytest.raises(UsageError, match="an index already"):
        index_shards(s3, str(tmp_path / "index"))
    assert index_shards(s3).packed.samples == 40
    assert verify(s3).damaged == []
