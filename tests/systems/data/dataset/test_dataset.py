"""`cordee.dataset`: batches, their position, threads, errors."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import numpy
import pytest

import cordee
from cordee.core.errors import CordeeError, CorruptDataError, DataError, UsageError


def labels(batches: Any) -> list[list[int]]:
    return [numpy.asarray(batch["label"]).tolist() for batch in batches]


def flat(parts: Any) -> list[int]:
    return [label for part in parts for label in part]


def square(sample: dict[str, Any]) -> dict[str, Any]:
    return {"label": sample["label"], "square": numpy.full((2, 3), sample["label"] ** 2)}


BEFORE: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _threads_of_other_tests() -> None:
    BEFORE.clear()
    BEFORE.update(threading.enumerate())


def cordee_threads() -> list[str]:
    """Return the threads of this test's loops; a source may have one of its own until it is closed."""
    names = [thread.name for thread in threading.enumerate() if thread not in BEFORE]
    return [name for name in names if name == "cordee-read" or name.startswith("cordee-decode")]


def test_an_epoch_gives_every_sample_once_and_the_next_another_order(numbers):
    ds = cordee.dataset(numbers(1003), batch=64, seed=1)
    first, second = labels(ds), labels(ds)
    assert len(first) == len(ds) == 16
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(1003))
    assert first != second
    assert (ds.epoch, ds.position) == (2, 0)


def test_a_batch_is_a_dict_of_columns(numbers):
    ds = cordee.dataset(numbers(10), batch=4, shuffle=False, decode={"data": float})
    batch = next(iter(ds))
    assert batch["key"] == ["numbers/0", "numbers/1", "numbers/2", "numbers/3"]
    assert batch["data"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert batch["label"].dtype == numpy.int64


@pytest.mark.parametrize("threads", [None, 0, 3])
@pytest.mark.parametrize("decode", [None, square])
def test_the_order_is_the_same_with_any_threads_whatever_is_ready_first(numbers, threads, decode):
    expected = labels(cordee.dataset(numbers(500), batch=32, seed=1, threads=0))

    def late(sample):
        time.sleep(random.random() / 1000)
        return decode(sample)

    ds = cordee.dataset(numbers(500), batch=32, seed=1, threads=threads, decode=decode and late)
    assert labels(ds) == expected
    assert cordee_threads() == []


def test_arrays_of_one_shape_are_stacked_and_others_are_a_list(numbers):
    ds = cordee.dataset(numbers(6), batch=6, shuffle=False, transform=square)
    assert next(iter(ds))["square"].shape == (6, 2, 3)
    ragged = cordee.dataset(numbers(3), batch=3, shuffle=False, transform=lambda s: {"a": numpy.zeros(s["label"])})
    assert [value.shape for value in next(iter(ragged))["a"]] == [(0,), (1,), (2,)]
    pairs = cordee.dataset(numbers(3), batch=3, shuffle=False, transform=lambda s: (s["data"], s["label"]))
    data, label = next(iter(pairs))
    assert (data, label.tolist()) == ([b"0", b"1", b"2"], [0, 1, 2])
    own = cordee.dataset(numbers(3), batch=3, shuffle=False, collate=list)
    assert [sample["label"] for sample in next(iter(own))] == [0, 1, 2]


def test_a_field_that_a_sample_lacks_is_none_and_never_zero(numbers):
    ds = cordee.dataset(
        numbers(3), batch=3, shuffle=False, transform=lambda s: {"a": 1} if s["label"] else {"b": numpy.zeros(2)}
    )
    batch = next(iter(ds))
    assert batch["a"] == [None, 1, 1]
    assert batch["b"][1:] == [None, None]


@pytest.mark.parametrize("threads", [None, 0])
def test_it_goes_on_where_it_was_with_other_ranks_and_another_batch(numbers, threads):
    """Ranks 1, 2, 4, 8, 3 after one another: each is told of rank 0's state and the union is one uninterrupted order."""
    whole = flat(labels(cordee.dataset(numbers(1003), batch=48, seed=9)))
    for epoch in (1, 2):
        whole += flat(labels(resumed(numbers, 1003, {"epoch": epoch, "position": 0, "seed": 9})))
    given: list[int] = []
    state: dict[str, Any] | None = None
    for ranks, batch, steps in [(1, 48, 5), (2, 48, 4), (4, 48, 3), (8, 40, 6), (3, 48, 9), (2, 48, 20)]:
        sets = [
            cordee.dataset(numbers(1003), batch=batch, seed=9, rank=r, world=ranks, threads=threads)
            for r in range(ranks)
        ]
        for ds in sets if state else []:
            ds.load_state_dict(state)
        loops = [iter(ds) for ds in sets]
        for _ in range(steps):
            try:
                parts = [labels([next(loop)])[0] for loop in loops]
            except StopIteration:
                loops = [iter(ds) for ds in sets]
                parts = [labels([next(loop)])[0] for loop in loops]
            given += flat(parts)
        states = [ds.state_dict() for ds in sets]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        assert len(json.dumps(state)) < 200
    assert len(given) > 1003
    assert given == whole[: len(given)]


def resumed(numbers: Any, size: int, position: dict[str, Any]) -> Any:
    ds = cordee.dataset(numbers(size), batch=48, seed=position["seed"])
    ds.load_state_dict({**ds.state_dict(), **position})
    return ds


def test_the_state_counts_what_the_loop_was_given_and_not_what_was_read_ahead(numbers):
    source = numbers(100_000)
    ds = cordee.dataset(source, batch=10)
    loop = iter(ds)
    next(loop)
    next(loop)
    assert (ds.state_dict()["epoch"], ds.state_dict()["position"]) == (0, 20)
    assert (ds.epoch, ds.position) == (0, 20)
    loop.close()
    assert source.counts.samples > 20


def test_after_the_last_batch_the_state_is_the_next_epochs_start_also_within_the_loop(numbers):
    ds = cordee.dataset(numbers(10), batch=5)
    states = [(ds.state_dict()["epoch"], ds.state_dict()["position"], ds.epoch, ds.position) for _ in ds]
    assert states == [(0, 5, 0, 5), (1, 0, 0, 10)]
    assert (ds.epoch, ds.position) == (1, 0)


def test_a_last_batch_that_is_dropped_is_counted_and_the_state_is_the_next_epochs(numbers):
    ds = cordee.dataset(numbers(23), batch=5, last="drop")
    assert [len(part) for part in labels(ds)] == [5, 5, 5, 5]
    assert (ds.epoch, ds.position) == (1, 0)
    assert ds.dropped == 3


def test_breaking_out_leaves_no_threads_and_the_next_loop_goes_on(numbers):
    ds = cordee.dataset(numbers(1000), batch=10, seed=4, transform=square, threads=2)
    whole = flat(labels(cordee.dataset(numbers(1000), batch=10, seed=4)))
    given = []
    for batch in ds:
        given += batch["label"].tolist()
        if len(given) == 30:
            break
    gc.collect()
    assert cordee_threads() == []
    assert given + flat(labels(ds)) == whole


def test_another_loop_ends_the_one_before(numbers):
    ds = cordee.dataset(numbers(100, slow_s=0.01), batch=10, seed=4, prefetch=0)
    whole = labels(cordee.dataset(numbers(100), batch=10, seed=4))
    one = iter(ds)
    next(one)
    two = iter(ds)
    assert labels([next(two)]) == whole[1:2]
    assert len(cordee_threads()) == 1
    with pytest.raises(UsageError, match="another was begun"):
        next(one)
    assert labels(two) == whole[2:]


def test_a_failure_of_storage_comes_after_all_batches_before_it(numbers):
    ds = cordee.dataset(numbers(3000, fails_at={2995}), batch=10, shuffle=False)
    given = []
    with pytest.raises(DataError, match="storage failed"):
        for batch in ds:
            given += batch["label"].tolist()
    assert given == list(range(len(given)))
    assert len(given) >= 2000  # what was read with it, a block, is not given
    assert cordee_threads() == []
    assert ds.state_dict()["position"] == len(given)


@pytest.mark.parametrize("threads", [0, 2])
def test_what_decoding_raises_names_the_sample_and_keeps_the_cause(numbers, threads):
    def fails(sample):
        if sample["label"] == 77:
            raise ValueError("not a picture")
        return sample

    ds = cordee.dataset(numbers(100), batch=10, shuffle=False, decode=fails, threads=threads)
    given = []
    with pytest.raises(DataError, match="ValueError: not a picture") as caught:
        for batch in ds:
            given += batch["label"].tolist()
    assert given == list(range(70))
    assert caught.value.given == "numbers/77"
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_sample_that_cannot_be_decoded_because_it_is_damaged_is_told_from_one_that_is_not(numbers):
    def fails(data):
        if data in (b"7", b"8"):
            raise ValueError("not a picture")
        return data

    ds = cordee.dataset(numbers(20, damaged={7}), batch=5, shuffle=False, decode={"data": fails})
    with pytest.raises(CorruptDataError, match="damaged"):
        list(ds)
    ds = cordee.dataset(numbers(20, damaged={7, 8}), batch=5, shuffle=False, decode={"data": fails}, corrupt="raise")
    source = numbers(20, damaged={7, 8})
    ds = skipping(source, batch=5, decode={"data": fails})
    with pytest.warns(RuntimeWarning, match="numbers/[78]"):
        assert labels(ds) == [[0, 1, 2, 3, 4], [5, 6, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert ds.counts.skipped == 2
    with pytest.raises(DataError, match="could not be decoded"), pytest.warns(RuntimeWarning):
        list(skipping(numbers(20, damaged={7}), batch=5, decode={"data": fails}))


def skipping(source: Any, **settings: Any) -> Any:
    return cordee.dataset(source, shuffle=False, corrupt="skip", **settings)


def test_a_skipped_sample_makes_its_batch_shorter_and_the_position_stays_exact(numbers):
    ds = skipping(numbers(20, corrupt={3, 11}), batch=5)
    loop = iter(ds)
    assert labels([next(loop)]) == [[0, 1, 2, 4]]
    assert ds.position == 5
    assert labels(loop) == [[5, 6, 7, 8, 9], [10, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert ds.counts.skipped == 2


def test_a_batch_of_which_every_sample_was_skipped_is_an_error_that_says_why(numbers):
    with pytest.raises(DataError, match="every sample of this rank's batch"):
        list(skipping(numbers(20, corrupt={5, 6, 7, 8, 9}), batch=5))


def test_what_is_read_is_announced_before_in_the_same_order_and_once(numbers):
    source = numbers(10_000)
    given = flat(labels(cordee.dataset(source, batch=100)))
    assert source.expected == given
    assert max(source.reads) <= 512


def test_a_source_that_can_use_it_is_told_ever_more(numbers):
    source = numbers(100_000)
    source.ahead_samples = 20_000
    ds = cordee.dataset(source, batch=1000, threads=0)
    loop = iter(ds)
    told = []
    for _ in range(60):
        next(loop)
        told.append(len(source.expected))
    assert sorted(set(told)) == [14_000, 31_000, 51_000, 71_000, 91_000]
    assert all(many > 1000 * (number + 1) for number, many in enumerate(told))


@pytest.mark.parametrize(("prefetch", "most"), [("20MB", 400), ("256MB", 900)])
def test_what_waits_is_bounded_by_its_bytes_and_by_less_while_the_loop_does_not_wait(numbers, prefetch, most):
    class Large(type(numbers(1))):
        def read(self, samples):
            self.counts.samples += len(samples)
            return [{"label": number, "data": b"\0" * 100_000} for number in samples.tolist()]

    source = Large(100_000)
    ds = cordee.dataset(source, batch=10, prefetch=prefetch)
    loop = iter(ds)
    next(loop)
    deadline = time.monotonic() + 120
    seen = -1
    while source.counts.samples != seen and time.monotonic() < deadline:
        seen = source.counts.samples
        time.sleep(0.2)
    assert 150 <= seen <= most
    loop.close()


def test_a_position_of_another_data_set_a_newer_cordee_or_none_is_refused(numbers):
    ds = cordee.dataset(numbers(100), batch=10)
    state = ds.state_dict()
    for change, word in [
        ({"identity": "other"}, "another data set"),
        ({"size": 99}, "another data set"),
        ({"schema": 2}, "newer"),
        ({"position": 100}, "outside"),
        ({"epoch": -1}, "outside"),
        ({"seed": "x"}, "no position"),
    ]:
        with pytest.raises(DataError, match=word):
            ds.load_state_dict({**state, **change})
    with pytest.raises(DataError, match="no position"):
        ds.load_state_dict({})
    assert (ds.epoch, ds.position) == (0, 0)


def test_a_restart_with_another_seed_goes_on_in_the_order_it_began_with_and_says_so(numbers):
    begun = cordee.dataset(numbers(100), batch=10, seed=1)
    loop = iter(begun)
    next(loop)
    other = cordee.dataset(numbers(100), batch=10, seed=2)
    with pytest.warns(UserWarning, match="seed=1"):
        other.load_state_dict(begun.state_dict())
    assert labels(other) == labels(loop)


def test_without_a_seed_that_differs_nothing_is_warned_of(numbers):
    ds = cordee.dataset(numbers(100), batch=10, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.load_state_dict(ds.state_dict())
        list(ds)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"batch": 0}, "batch is no number that fits"),
        ({"batch": 2.5}, "batch is no number that fits"),
        ({"batch": 2, "world": 4, "rank": 0}, "fewer samples than there are ranks"),
        ({"batch": 8, "rank": 1}, "rank and world are given together"),
        ({"batch": 8, "rank": 4, "world": 4}, "none of the world's"),
        ({"batch": 8, "last": "pad"}, "invalid value for last"),
        ({"batch": 8, "corrupt": "ignore"}, "invalid value for corrupt"),
        ({"batch": 8, "prefetch": "many"}, "prefetch is no size"),
        ({"batch": 8, "decode": 5}, "invalid value for decode"),
        ({"batch": 8, "threads": -1}, "threads is no number"),
        ({"batch": 8, "seed": 1.5}, "seed is no number"),
        ({"batch": 800, "last": "drop"}, "no full batch"),
        ({"batch": 8, "samples_per_epoch": 10}, "for mixes"),
        ({"batch": 8, "shufle": True}, "no argument 'shufle' of a source that is open already"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(numbers, settings, word):
    with pytest.raises(UsageError, match=word):
        list(cordee.dataset(numbers(100), **settings))


def test_an_argument_that_a_kind_of_data_set_does_not_take_is_named_with_those_it_does(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(UsageError, match="no argument 'shufle' of such a data set") as caught:
        cordee.dataset(tmp_path, batch=1, shufle=True)
    assert {"shuffle", "include", "keys"} <= set(caught.value.allowed)
    assert "__init__" not in str(caught.value)


def test_an_empty_data_set_and_one_that_is_not_there_are_errors(numbers, monkeypatch, tmp_path):
    with pytest.raises(DataError, match="empty"):
        cordee.dataset(numbers(0), batch=1)
    monkeypatch.setenv("CORDEE_DATA_WEB", str(tmp_path))
    with pytest.raises(DataError) as caught:
        cordee.dataset("corpus", batch=1)
    assert "[data.corpus]" in str(caught.value)
    assert "web" in str(caught.value)
    assert "CORDEE_DATA_CORPUS" in str(caught.value)


def test_a_batch_larger_than_the_data_set_is_all_of_it(numbers):
    assert [sorted(part) for part in labels(cordee.dataset(numbers(7), batch=100))] == [list(range(7))]


def test_ranks_come_from_the_launchers_variables(numbers, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    ds = cordee.dataset(numbers(10), batch=5, shuffle=False)
    assert labels(ds) == [[2, 3, 4], [7, 8, 9]]
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(UsageError, match="RANK"):
        len(ds)


def test_the_data_parallel_part_of_a_mesh_is_the_share(numbers):
    class Mesh:
        ndim = 1

        def get_local_rank(self):
            return 1

        def size(self):
            return 5

    assert labels(cordee.dataset(numbers(10), batch=10, shuffle=False, mesh=Mesh())) == [[2, 3]]
    with pytest.raises(UsageError, match="mesh"):
        list(cordee.dataset(numbers(10), batch=10, mesh=Mesh(), rank=0, world=1))


def test_numpy_gives_arrays_only(numbers):
    batch = next(cordee.dataset(numbers(4), batch=4, shuffle=False).numpy())
    assert batch["data"].dtype == object
    assert batch["data"].tolist() == [b"0", b"1", b"2", b"3"]
    assert batch["label"].tolist() == [0, 1, 2, 3]


def test_a_loop_that_a_script_leaves_open_does_not_keep_it_from_ending_and_says_nothing(packed):
    program = f"""
import cordee
ds = cordee.dataset({str(packed)!r}, batch=2, decode="auto", threads=2)
loop = iter(ds)
print(len(next(loop)["txt"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_a_loop_that_was_begun_before_a_fork_is_an_error_in_the_child_and_goes_on_in_the_parent(numbers):
    ds = cordee.dataset(numbers(10_000), batch=100)
    loop = iter(ds)
    next(loop)
    child = os.fork()
    if not child:
        try:
            for _ in loop:
                pass
        except UsageError:
            # A loop of its own is none of the parent's.
            os._exit(0 if sum(1 for _ in ds) > 0 else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(1 for _ in loop) == 99


def test_asking_for_a_sample_by_number_says_what_to_do_instead(numbers):
    ds = cordee.dataset(numbers(10), batch=2)
    with pytest.raises(UsageError, match="looped over") as caught:
        ds[0]
    assert "ds.loader" in str(caught.value)


def test_an_interrupted_loop_ends_its_threads(numbers):
    ds = cordee.dataset(numbers(1000), batch=10, transform=square, threads=2)

    def training():
        for batch in ds:
            if 7 in batch["label"]:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training()
    gc.collect()
    assert cordee_threads() == []


def test_closing_gives_back_the_source(numbers):
    source = numbers(100)
    ds = cordee.dataset(source, batch=10)
    loop = iter(ds)
    next(loop)
    ds.close()
    assert source.closed
    assert cordee_threads() == []
    with pytest.raises(UsageError):
        next(loop)
    assert cordee_threads() == []


def test_errors_of_ours_are_cordees(numbers):
    with pytest.raises(CordeeError):
        cordee.dataset({}, batch=1)
