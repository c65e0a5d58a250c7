"""`cordee check` looks into an object store: what is there, what is not, and what cannot be seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cordee.faces.cli.check import command
from cordee.systems.data import listing_store
from cordee.systems.data.listing_store import look_in_store
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.wire.stores import Patience, open_store
from cordee.wire.stores.s3 import S3Store
from support.servers.object_store import DisposableS3, FailingWay


def test_a_store_that_does_not_know_where_to_begin_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:06}" for number in range(2500)]

    class Client:
        def list(
            self, below: str | None, offset: str | None = None, chunk_size: int = 1000
        ) -> list[list[dict[str, Any]]]:
            rows = [{"path": name, "size": 1, "e_tag": None} for name in names]
            return [rows[at : at + chunk_size] for at in range(0, len(rows), chunk_size)]

    store = S3Store("s3://bucket/a", Patience())
    monkeypatch.setitem(store.__dict__, "_reading", Client())
    assert [one.name for one in store.list()] == names


@pytest.fixture
def packed(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a packed data set of nine samples in several shards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    for number in range(9):
        (tmp_path / f"files/{number}.bin").write_bytes(bytes(30_000))
    pack(plan_of(str(tmp_path / "files")), s3, PackOptions(shard_bytes=70_000, name="x"))
    return s3


def check(folder: Path, address: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of `cordee check` of a job that reads an address, and its only finding; empty: none."""
    folder.mkdir(exist_ok=True)
    (folder / "cordee.toml").write_text(f'name = "x"\nrun = "true"\n[data.x]\nfrom = "{address}"\n')
    done = CliRunner().invoke(command, [str(folder), "--json"])
    found = [one for one in json.loads(done.stdout)["findings"] if (one["rule"] or "").startswith(("data", "no-"))]
    return done.exit_code, found[0] if found else {}


def test_a_packed_data_set_is_seen_with_its_samples(packed: str, tmp_path: Path) -> None:
    seen = look_in_store(packed)
    assert (seen.kind, seen.samples, seen.bytes, seen.fault) == ("packed", 9, 270_000, "")
    assert look_in_store(f"{packed}/dataset.index") == seen
    assert check(tmp_path / "job", packed) == (0, {})


@pytest.mark.parametrize("harm", ["a shard is gone", "a shard is shorter", "the index is cut off"])
def test_a_packed_data_set_that_is_not_whole_is_an_error(packed: str, tmp_path: Path, harm: str) -> None:
    store = open_store(packed)
    if harm == "a shard is gone":
        store.delete("x-000001.tar")
    elif harm == "a shard is shorter":
        store.write("x-000001.tar", [b"x"])
    else:
        store.write("dataset.index", [store.read("dataset.index")[:-9]])
    code, found = check(tmp_path / "job", packed)
    assert (code, found["rule"], found["severity"]) == (2, "data-unusable", "error")
    said = {"a shard is gone": "is not there", "a shard is shorter": "has 1 bytes", "the index is cut off": "9 bytes"}
    assert said[harm] in found["text"]


def test_shards_without_an_index_and_other_objects_are_told_by_their_names(packed: str, tmp_path: Path) -> None:
    store = open_store(packed)
    store.delete("dataset.index")
    code, found = check(tmp_path / "job", packed)
    assert (code, found["rule"]) == (0, "no-index")
    assert look_in_store(f"{packed}/x-000001.tar").kind == "archive"
    for number in range(3):
        store.write(f"below/{number}.parquet", [b"1234"])
    seen = look_in_store(f"{packed}/below")
    assert (seen.kind, seen.files, seen.bytes, seen.whole) == ("parquet", 3, 12, True)


def test_of_very_many_objects_the_first_are_looked_at(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_store, "MOST_NAMES", 2)
    for number in range(3):
        open_store(s3).write(f"{number}.jpg", [b"1234"])
    seen = look_in_store(s3)
    assert (seen.kind, seen.files, seen.whole, seen.mean_bytes) == ("files", 2, False, 4)


@pytest.mark.parametrize("address", ["s3://bucket/no/such/prefix", "s3://no-such-bucket/x"])
def test_an_address_at_which_nothing_is_is_an_error(s3: str, tmp_path: Path, address: str) -> None:
    code, found = check(tmp_path / "job", address)
    assert (code, found["rule"], found["given"]) == (2, "no-data-set", address)
    assert "AWS_ENDPOINT_URL" in found["next"]


@pytest.mark.parametrize(
    ("fault", "said"), [("silent", "did not answer in time"), ("failures", "503 Service Unavailable")]
)
def test_a_store_that_does_not_answer_is_a_warning(
    packed: str, tmp_path: Path, server: DisposableS3, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.setattr(
        listing_store, "IMPATIENT", Patience(total_s=1, tries=2, connect_s=1, stall_s=0.3, pause_s=0.01)
    )
    with FailingWay(server.url) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        setattr(way, fault, 1000)
        code, found = check(tmp_path / "job", packed)
    assert (code, found["rule"], found["severity"]) == (0, "data-unseen", "warn")
    assert said in found["text"]
    assert packed in found["given"]
