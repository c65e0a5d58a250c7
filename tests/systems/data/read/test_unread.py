"""Samples that are read in parts by the threads that decode them: the same as read at once, whatever the parts."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest

import cordee
from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.read.order.mixture import Mix
from cordee.systems.data.node.read.packed.source import PackedSource
from cordee.systems.data.node.read.plain import PlainFolder

from .conftest import make_samples


@pytest.fixture
def samples() -> list[dict[str, Any]]:
    found = make_samples(200)
    for number in range(0, 200, 7):
        del found[number]["txt"]
    return found


@pytest.fixture
def packed(tmp_path, pack, samples) -> Any:
    return pack(tmp_path / "packed", samples)


@pytest.fixture
def far_apart(tmp_path, pack) -> Any:
    samples = [
        {"key": f"{n}", "a": b"%d" % n, "b": b"-" * (50_000 if n % 3 else 9), "c": b"c%d" % n} for n in range(90)
    ]
    return pack(tmp_path / "far", samples)


@pytest.fixture
def folder(tmp_path) -> Any:
    for number in range(120):
        (tmp_path / "plain" / f"class-{number % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "plain" / f"class-{number % 3}" / f"{number:03d}.jpg").write_bytes(b"%d" % number * (number % 5))
    return tmp_path / "plain"


@pytest.fixture(params=["packed", "far apart", "folder", "mix"])
def make(request, packed, far_apart, folder) -> Any:
    return {
        "packed": lambda: PackedSource(packed, keys=True),
        "far apart": lambda: PackedSource(far_apart, ["a", "c"]),
        "folder": lambda: PlainFolder(folder, keys=True),
        "mix": lambda: Mix({"one": PackedSource(packed), "two": PlainFolder(folder)}, {"one": 1, "two": 2}),
    }[request.param]


@pytest.mark.parametrize("size", [1, 7, 64, 300])
def test_parts_in_any_order_by_many_threads_are_what_read_gives(make, size):
    source, whole = make(), make()
    assert source.in_parts
    numbers = numpy.random.default_rng(size).permutation(source.size)[:300]
    expected = whole.read(numbers)
    unread = source.unread(numbers)
    stretches = [(begin, min(begin + size, len(numbers))) for begin in range(0, len(numbers), size)][::-1]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda stretch: list(unread.read(*stretch)), stretches))
    assert [sample for part in parts[::-1] for sample in part] == expected
    counts, others = source.counts, whole.counts
    assert (counts.samples, counts.requests, counts.bytes) == (others.samples, others.requests, others.bytes)
    assert counts.sizes == others.sizes


def test_how_many_bytes_are_to_be_read_is_known_before(packed, samples):
    source = PackedSource(packed, ["jpg"])
    assert source.unread(numpy.arange(200)).bytes == sum(len(sample["jpg"]) for sample in samples)
    assert source.counts.requests == 0


def first_bytes(sample: dict[str, Any]) -> dict[str, Any]:
    return {"thread": threading.current_thread().name, "label": sample["label"], "head": sample["jpg"][:4]}


@pytest.mark.parametrize("batch", [1, 16, 200])
def test_a_loop_whose_threads_read_what_they_decode_gives_what_the_loop_by_itself_gives(packed, batch):
    def made(threads: int) -> list[Any]:
        ds = cordee.dataset(packed, batch=batch, seed=3, transform=first_bytes, threads=threads)
        return list(ds) + list(ds)

    alone, by_threads = made(0), made(3)
    assert [b["label"].tolist() for b in alone] == [b["label"].tolist() for b in by_threads]
    assert [b["head"] for b in alone] == [b["head"] for b in by_threads]
    names = {name for batch in by_threads for name in batch["thread"]}
    assert names <= {f"cordee-decode-{number}" for number in range(3)}


def damaged(folder: Any, number: int) -> None:
    source = PackedSource(folder)
    block = source._layout.block(numpy.array([number]))
    with open(source.index.shard_path(int(block.shards[0])), "r+b") as file:
        file.seek(int(block.begins[0]))
        file.write(b"\xff" * 16)


def test_a_damaged_sample_is_named_at_its_batch_or_left_out_as_asked(packed):
    damaged(packed, 33)
    loop = iter(cordee.dataset(packed, batch=10, shuffle=False, transform=first_bytes, check="always", threads=2))
    given = [next(loop) for _ in range(3)]
    assert [len(batch["label"]) for batch in given] == [10, 10, 10]
    with pytest.raises(CorruptDataError, match="class-0/000033"):
        next(loop)
    ds = cordee.dataset(
        packed, batch=10, shuffle=False, transform=first_bytes, check="always", corrupt="skip", threads=2
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sizes = [len(batch["label"]) for batch in ds]
    assert sizes == [10, 10, 10, 9] + [10] * 16
    assert ds.counts.skipped == 1
    assert "class-0/000033" in str(said[0].message)


def test_a_batch_of_which_nothing_is_left_says_why(packed):
    for number in range(20, 25):
        damaged(packed, number)
    ds = cordee.dataset(
        packed, batch=5, shuffle=False, transform=first_bytes, check="always", corrupt="skip", threads=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="every sample of this rank's batch was skipped"):
            list(ds)


def test_a_shard_that_is_gone_is_an_error_of_the_loop_and_ends_its_threads(packed):
    (packed / "set-000003.tar").unlink()
    ds = cordee.dataset(packed, batch=10, transform=first_bytes, threads=3)
    with pytest.raises(DataError, match=r"set-000003\.tar"):
        list(ds)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cordee-decode")]


def test_a_file_that_is_gone_is_an_error_of_the_loop(folder):
    ds = cordee.dataset(folder, batch=10, transform=first_bytes, threads=3)
    (folder / "class-1" / "100.jpg").unlink()
    with pytest.raises(DataError, match=r"100\.jpg"):
        list(ds)


def test_a_loop_that_is_left_early_ends_its_threads_and_the_next_begins_there(packed):
    ds = cordee.dataset(packed, batch=8, seed=5, transform=first_bytes, threads=3)
    whole = [batch["label"].tolist() for batch in cordee.dataset(packed, batch=8, seed=5, transform=first_bytes)]
    given = []
    for batch in ds:
        given.append(batch["label"].tolist())
        if len(given) == 4:
            break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cordee-decode")]
    given += [batch["label"].tolist() for batch in ds]
    assert given == whole


def test_what_is_made_ahead_is_bounded_though_nothing_is_read_before(packed):
    taken = []

    def note(sample: dict[str, Any]) -> dict[str, Any]:
        taken.append(sample["label"])
        return {"label": sample["label"], "weight": numpy.zeros(1 << 20, numpy.uint8)}

    ds = cordee.dataset(packed, batch=4, transform=note, threads=2, prefetch="8MB")
    loop = iter(ds)
    next(loop)
    for _ in range(200):
        threading.Event().wait(0.005)
    assert len(taken) <= 40
    loop.close()
