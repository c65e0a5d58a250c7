"""Bytes that come from a store otherwise than its ETags say: read again, refused, or taken where ETags are no check sums."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.core.errors import CorruptDataError, DataError
from cordee.job.profile import ClusterProfile
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.stage import stage
from cordee.wire.stores import open_store
from cordee.wire.stores.s3 import S3Store
from support.servers.object_store import DisposableS3, FailingWay

CONTENT = {name: os.urandom(5000) for name in ("a.bin", "b.bin", "c.bin")}
ALWAYS = 10**6


@pytest.fixture
def way(server: DisposableS3, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingWay]:
    """Three objects behind a way that changes only what is read of `b.bin`; the disk of this node is `tmp_path`."""
    for name, content in CONTENT.items():
        open_store(s3).write(name, iter([content]))
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    with FailingWay(server.url) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        way.matching = lambda method, path: method == "GET" and path.endswith("/b.bin")
        yield way


def staged(address: str) -> dict[str, bytes]:
    found = stage(address, ClusterProfile(name="local", scheduler="local"), to="node", claim=os.getpid())
    return {path.name: path.read_bytes() for path in Path(found.path).iterdir()}


def left(disk: Path) -> list[Path]:
    return [path for path in disk.rglob("*.bin") if path.is_file()]


def test_what_came_broken_is_read_again(s3: str, way: FailingWay) -> None:
    way.flipped = 1
    assert staged(s3) == CONTENT
    assert way.flipped == 0


def test_what_lies_beside_an_object_that_is_read_again_stays_as_it_came(s3: str, way: FailingWay) -> None:
    read: list[str] = []

    def broken(method: str, path: str) -> bool:
        name = path.rpartition("/")[2]
        if method == "GET" and name in CONTENT:
            read.append(name)
            return (name, read.count(name)) in (("b.bin", 1), ("a.bin", 2))
        return False

    way.matching, way.flipped = broken, ALWAYS
    assert staged(s3) == CONTENT
    assert sorted(read) == ["a.bin", "b.bin", "b.bin", "c.bin"]


def test_what_comes_broken_again_is_refused_and_nothing_is_left_of_it(s3: str, way: FailingWay, tmp_path: Path) -> None:
    way.flipped = ALWAYS
    with pytest.raises(CorruptDataError) as error:
        staged(s3)
    assert str(error.value.given).startswith(f"{s3}/b.bin: MD5 ")
    assert left(tmp_path) == []
    way.flipped = 0
    assert staged(s3) == CONTENT


def test_one_object_alone_is_held_against_its_etag(s3: str, way: FailingWay, tmp_path: Path) -> None:
    for name in ("a.bin", "c.bin"):
        open_store(s3).delete(name)
    way.flipped = ALWAYS
    with pytest.raises(CorruptDataError):
        staged(s3)
    assert left(tmp_path) == []


def test_etags_of_objects_that_are_encrypted_by_a_managed_key_are_no_sums(
    s3: str, way: FailingWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Store, "agrees", lambda self, stored, md5: False)
    way.headers = {"x-amz-server-side-encryption": "aws:kms"}
    assert staged(s3) == CONTENT
    heads = [path for method, path in way.asked if method == "HEAD" and "X-Amz-Signature" in path]
    assert len(heads) == len(CONTENT)


def test_an_object_that_is_not_encrypted_is_refused_also_where_others_are(
    s3: str, way: FailingWay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agrees = S3Store.agrees
    monkeypatch.setattr(
        S3Store, "agrees", lambda self, stored, md5: stored.name == "b.bin" and agrees(self, stored, md5)
    )
    monkeypatch.setattr(S3Store, "encrypts", lambda self, name: name != "b.bin")
    way.flipped = ALWAYS
    with pytest.raises(CorruptDataError):
        staged(s3)
    assert left(tmp_path) == []


def test_a_store_whose_etags_are_other_sums_is_read_and_that_is_said(
    s3: str, way: FailingWay, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(S3Store, "agrees", lambda self, stored, md5: False)
    assert staged(s3) == CONTENT
    assert f"ETags of {s3} are no MD5 sums" in capfd.readouterr().err


def test_the_etags_of_a_directory_bucket_and_of_several_parts_are_no_sums(s3: str) -> None:
    store, md5 = open_store(s3), hashlib.md5(b"x").digest()
    stored = store.write("x", iter([b"x"]))
    assert stored.version.endswith('-1"')
    assert (store.agrees(stored, md5), store.agrees(stored, b"other")) == (True, False)
    plain = stored._replace(version=f'"{md5.hex()}"')
    assert (store.agrees(plain, md5), store.agrees(plain, b"other")) == (True, False)
    assert store.agrees(stored._replace(version=f'"{md5.hex()}-3"'), md5) is None
    assert open_store("s3://models--usw2-az1--x-s3/p").agrees(plain, md5) is None


def test_what_is_packed_is_held_against_its_etag(s3: str, way: FailingWay, tmp_path: Path) -> None:
    way.flipped = ALWAYS
    with pytest.raises(DataError, match="not what it says that it holds"):
        pack(plan_of(s3), str(tmp_path / "packed"), PackOptions(name="x"))
    way.flipped = 0
    pack(plan_of(s3), str(tmp_path / "packed"), PackOptions(name="x"))


def test_what_is_packed_from_a_store_with_other_etags_is_taken_and_that_is_said(
    s3: str, way: FailingWay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(S3Store, "agrees", lambda self, stored, md5: False)
    pack(plan_of(s3), str(tmp_path / "packed"), PackOptions(name="x"))
    assert capfd.readouterr().err.count(f"ETags of {s3} are no MD5 sums") == 1
