"""The data set as torch's people know it: loaders with workers, an IterableDataset, a map-style set with a sampler."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import threading
import time
from typing import Any

import numpy
import pytest

import cordee
from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.read.batches.batches import _skipping
from cordee.systems.data.node.read.order.position import EpochCut, RankShares
from cordee.systems.data.node.read.torch_sets import Rest, _way_to_start


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """PyTorch, where these tests run: not in every process that only collects them."""
    global DataLoader, _MultiProcessingDataLoaderIter, torch
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter


def labels(batches: Any) -> list[list[int]]:
    return [numpy.asarray(batch["label"]).tolist() for batch in batches]


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {"label": sample["label"], "twice": numpy.float32(2 * sample["label"])}


def dies_at_five_hundred(sample: dict[str, Any]) -> dict[str, Any]:
    """End the process, once the loop waits for it: PyTorch's signal handler raises there, which amid a put leaves a lock taken."""
    if sample["label"] == 500:
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
    return sample


def fails_at_seventy(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["label"] == 70:
        raise ValueError("not a picture")
    return sample


@pytest.mark.parametrize("threads", [0, 2])
def test_without_workers_a_loader_gives_tensors_from_threads(numbers, threads):
    ds = cordee.dataset(numbers(10), batch=4, shuffle=False, transform=double, threads=threads)
    loader = ds.loader()
    batch = next(iter(loader))
    assert batch["twice"].dtype == torch.float32
    assert batch["twice"].tolist() == [0, 2, 4, 6]
    assert batch["label"].dtype == torch.int64
    assert len(loader) == 3


def test_columns_that_cannot_be_stacked_are_lists_of_tensors(numbers):
    ds = cordee.dataset(
        numbers(3), batch=3, shuffle=False, transform=lambda s: {"a": numpy.zeros(s["label"]), "b": "x"}
    )
    batch = next(iter(ds.loader(pin_memory=True)))
    assert [value.shape[0] for value in batch["a"]] == [0, 1, 2]
    assert all(isinstance(value, torch.Tensor) for value in batch["a"])
    assert batch["b"] == ["x", "x", "x"]


@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
@pytest.mark.usefixtures("real")
def test_worker_processes_give_the_exact_order_and_their_counts(packed, context):
    expected = labels(cordee.dataset(packed, batch=8, seed=2))
    ds = cordee.dataset(packed, batch=8, seed=2, decode={"txt": int})
    loader = ds.loader(workers=2, multiprocessing_context=context)
    batches = list(loader)
    assert labels(batches) == expected
    assert all(batch["txt"].tolist() == batch["label"].tolist() for batch in batches)
    assert (ds.epoch, ds.position) == (1, 0)
    read = ds.counts
    assert (read.samples, read.batches) == (203, 26)
    assert read.bytes >= sum(len(str(number)) for number in range(203))
    if context == "fork":
        list(loader)
        assert ds.counts.samples == 406
        assert ds.counts.requests > read.requests
    gc.collect()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("chosen", "way"), [(None, "fork"), ("forkserver", "fork"), ("spawn", None)])
def test_workers_are_forked_unless_the_program_says_otherwise(monkeypatch, chosen, way):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: chosen)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "fork", "spawn"])
    assert _way_to_start() == way


def test_workers_are_forked_while_other_loops_read_and_skip(numbers, packed):
    """Threads are alive, and what they lock is held, when workers start."""
    other = iter(cordee.dataset(packed, batch=8, decode={"txt": int}, threads=2))
    next(other)
    ds = cordee.dataset(packed, batch=8, seed=2)
    given = labels([next(iter(ds))])
    given += labels(ds.loader(workers=2))
    assert given == labels(cordee.dataset(packed, batch=8, seed=2))
    skipping = cordee.dataset(numbers(100, damaged={70}), batch=8, transform=fails_at_seventy, corrupt="skip")
    assert sum(len(part) for part in labels(skipping.loader(workers=2))) == 99
    assert len(next(other)["label"]) == 8


def test_a_fork_waits_until_no_thread_holds_what_its_child_needs():
    held, codes = threading.Event(), []

    def forks():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if _skipping.acquire(timeout=20) else 1)
        codes.append(os.waitpid(pid, 0)[1])

    with _skipping:
        thread = threading.Thread(target=forks)
        thread.start()
        held.wait(0.1)
    thread.join()
    assert codes == [0]


def test_a_spawned_worker_that_dies_at_its_end_is_not_missed(packed, monkeypatch):
    ended = _MultiProcessingDataLoaderIter._shutdown_workers

    def shut_down(items):
        monkeypatch.undo()
        ended(items)
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Aborted.")

    ds = cordee.dataset(packed, batch=8, seed=2)
    loop = iter(ds.loader(workers=1))
    next(loop)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_shutdown_workers", shut_down)
    loop.close()
    assert _MultiProcessingDataLoaderIter._shutdown_workers is ended
    assert ds.position == 8


def test_ranks_and_workers_change_at_every_restart_and_no_sample_is_repeated_or_missed(numbers):
    """Real worker processes; the state counts what the loops were given, not what workers had made ahead."""
    whole = [label for part in labels(cordee.dataset(numbers(219), batch=16, seed=3)) for label in part]
    given: list[int] = []
    state: dict[str, Any] | None = None
    for ranks, workers, steps in [(1, 2, 3), (2, 1, 2), (4, 0, 3), (2, 4, 100)]:
        sets = [cordee.dataset(numbers(219), batch=16, seed=3, rank=rank, world=ranks) for rank in range(ranks)]
        for ds in sets if state else []:
            ds.load_state_dict(state)
        loops = [iter(ds.loader(workers=workers)) for ds in sets]
        for _ in range(steps):
            parts = [next(loop, None) for loop in loops]
            if parts[0] is None:
                break
            given += [label for part in parts for label in part["label"].tolist()]
        states = [ds.state_dict() for ds in sets]
        assert all(other == states[0] for other in states)
        state = json.loads(json.dumps(states[0]))
        for loop in loops:
            loop.close()
    assert given == whole


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_what_workers_make_is_the_same_union_for_any_ranks_and_workers(numbers, ranks, workers):
    """What each worker process runs, in this one: every rank's every worker, put together as a DataLoader does."""
    ds = cordee.dataset(numbers(219), batch=16, seed=3)
    expected = labels(ds)
    cut = EpochCut(0, 219, 16, ranks)
    union = []
    rests = [Rest(numbers(219), ds.order(), ds.work_with(None), cut, rank) for rank in range(ranks)]
    made = [[rest.batches(worker, workers) for worker in range(workers)] for rest in rests]
    for number in range(cut.batches):
        union.append([label for rank in made for label in labels([next(rank[number % workers])])[0]])
    assert union == expected
    assert all(next(batches, None) is None for rank in made for batches in rank)


def test_errors_of_workers_come_with_the_samples_key(numbers):
    ds = cordee.dataset(numbers(100), batch=10, shuffle=False, decode=fails_at_seventy)
    given = []
    with pytest.raises(DataError, match="not a picture") as caught:
        for batch in ds.loader(workers=2):
            given += batch["label"].tolist()
    assert given == list(range(70))
    assert caught.value.given == "numbers/70"
    assert ds.position == 70


def test_a_worker_that_is_killed_ends_the_loop_with_an_error(numbers):
    ds = cordee.dataset(numbers(1000), batch=10, transform=dies_at_five_hundred)
    with pytest.raises((RuntimeError, DataError), match="worker"):
        list(ds.loader(workers=1))
    assert ds.position % 10 == 0


def test_settings_that_would_change_the_order_are_refused(numbers):
    ds = cordee.dataset(numbers(10), batch=2)
    with pytest.raises(UsageError, match="batch_size"):
        ds.loader(workers=2, batch_size=4)
    with pytest.raises(UsageError, match="without workers"):
        ds.loader(prefetch_factor=4)


def test_an_iterable_set_goes_into_a_loader_of_ones_own(numbers):
    expected = labels(cordee.dataset(numbers(50), batch=8, seed=1))
    ds = cordee.dataset(numbers(50), batch=8, seed=1)
    assert labels(DataLoader(ds.iterable(), batch_size=None)) == expected
    assert (ds.epoch, ds.position) == (1, 0)
    assert len(ds.iterable()) == 7


def test_a_loader_that_would_batch_the_batches_is_refused(numbers):
    ds = cordee.dataset(numbers(50), batch=8)
    with pytest.raises(UsageError, match="batches of batches"):
        next(iter(DataLoader(ds.iterable(), batch_size=4)))


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.usefixtures("real")
def test_an_iterable_set_in_workers_of_ones_own_counts_by_advance(packed, context):
    expected = labels(cordee.dataset(packed, batch=8, seed=1))
    ds = cordee.dataset(packed, batch=8, seed=1)
    given = []
    for batch in DataLoader(ds.iterable(), batch_size=None, num_workers=2, multiprocessing_context=context):
        given += labels([batch])
        ds.advance()
        if len(given) == 3:
            break
    assert (ds.epoch, ds.position) == (0, 24)
    for batch in DataLoader(ds.iterable(), batch_size=None):
        given += labels([batch])
    assert given == expected


def test_a_map_style_set_gives_samples_by_number(numbers):
    ds = cordee.dataset(numbers(50, corrupt={3}), batch=8, decode=double)
    samples = ds.map()
    assert len(samples) == 50
    assert samples[7]["twice"] == 14
    assert samples[-1]["label"] == 49
    assert [sample["label"] for sample in samples.__getitems__([1, 3, 5])] == [1, 5]
    with pytest.raises(IndexError):
        samples[50]
    with pytest.raises(CorruptDataError):
        samples[3]


def test_a_sampler_gives_the_exact_order_and_goes_on(numbers):
    expected = labels(cordee.dataset(numbers(50), batch=8, seed=1))
    ds = cordee.dataset(numbers(50), batch=8, seed=1)
    given = []
    for batch in DataLoader(ds.map(), batch_sampler=ds.sampler()):
        given += labels([batch])
        ds.advance()
        if len(given) == 3:
            break
    other = cordee.dataset(numbers(50), batch=8, seed=1)
    other.load_state_dict(ds.state_dict())
    sampler = other.sampler()
    assert len(sampler) == 4
    for batch in DataLoader(other.map(), batch_sampler=sampler):
        given += labels([batch])
        other.advance()
    assert given == expected
    assert other.epoch == 1


def test_a_sampler_whose_loop_does_not_advance_says_so(numbers):
    sampler = cordee.dataset(numbers(50), batch=8, seed=1).sampler()
    list(sampler)
    with pytest.warns(UserWarning, match="advance"):
        list(sampler)


def test_shares_are_computed_only_when_asked_for():
    began = time.perf_counter()
    shares = RankShares(EpochCut(0, 10**12, 256, 8), 3)
    assert len(shares) == 10**12 // 256
    assert shares[10**9] == (256 * 10**9 + 96, 256 * 10**9 + 128)
    assert time.perf_counter() - began < 5


def test_a_state_of_a_thousand_million_samples_is_restored_at_once(numbers):
    ds = cordee.dataset(numbers(10**9), batch=256, seed=1)
    ds.load_state_dict({**ds.state_dict(), "epoch": 3, "position": 987_654_321})
    began = time.process_time()
    batch = next(iter(ds))
    assert time.process_time() - began < 5
    assert len(set(batch["label"].tolist())) == 256
