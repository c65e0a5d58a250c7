"""What loading costs, as the run is told."""

from __future__ import annotations

import gc
import weakref

import pytest

import cordee
from cordee.client import rank as client_rank
from cordee.systems.data.node.read import progress as telling
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.limits import write_limits
from cordee.systems.data.node.read.progress import summed
from cordee.wire.channel import ChannelReader, ChannelWriter, create_channel
from cordee.wire.facts import DataPositionFact


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return a function that gives the events told so far."""
    path = tmp_path / "1-0.channel"
    create_channel(path)
    writer = ChannelWriter(path)
    monkeypatch.setattr(client_rank, "writer", writer)
    monkeypatch.setattr(client_rank, "opened", True)
    monkeypatch.setenv("CORDEE_CHANNEL", str(path))
    monkeypatch.setattr(telling, "_tellers", weakref.WeakValueDictionary())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reader = ChannelReader(path)
    events = []

    def read():
        events.extend(reader.read()[0])
        return [values for _, _, _, values in events]

    def positions():
        read()
        return [fact for _, fact in reader.told() if isinstance(fact, DataPositionFact)]

    read.positions = positions
    yield read
    writer.close()
    reader.close()


def test_totals_are_told_at_the_end_of_an_epoch_and_when_the_state_is_asked_for(numbers, told):
    ds = cordee.dataset(numbers(100), batch=30)
    list(ds)
    ds.state_dict()
    last = told()[-1]
    assert {
        name.removeprefix("cordee/data/numbers/"): value for name, value in last.items() if "seconds" not in name
    } == {
        "batches": 4,
        "samples": 100,
        "bytes": 800,
        "requests": 2,
        "opens": 0,
        "skipped": 0,
        "dropped": 0,
        "position": 100,
        "epoch": 1,
        "requests_le/256": 1,
        "requests_le/1024": 1,
    }
    assert last["cordee/data/numbers/wait_seconds"] > 0
    assert told.positions()[-1] == DataPositionFact(
        "numbers", 1, 100, 100, begin=0, position=100, saved=100, saved_given=100
    )


def test_positions_count_over_all_epochs_and_begin_is_where_a_restart_went_on(numbers, told):
    ds = cordee.dataset(numbers(100), batch=10)
    ds.load_state_dict({**ds.state_dict(), "epoch": 2, "position": 30})
    loop = iter(ds)
    next(loop)
    next(loop)
    loop.close()
    last = told()[-1]
    assert [last[f"cordee/data/numbers/{name}"] for name in ("position", "epoch")] == [250, 2]
    assert told.positions()[-1].begin == 230
    ds.load_state_dict({**ds.state_dict(), "epoch": 5, "position": 0})
    next(iter(ds))
    assert told.positions()[-1].begin == 500


def test_a_telling_says_what_was_given_since_a_position_was_loaded_and_when_one_was_saved(numbers, told):
    ds = cordee.dataset(numbers(100), batch=10, threads=0)
    loop = iter(ds)
    next(loop)
    start = ds.state_dict()
    next(loop)
    loop.close()

    def last():
        fact = told.positions()[-1]
        return [fact.turn, fact.begin, fact.position, fact.given, fact.saved, fact.saved_given]

    assert last() == [1, 0, 20, 20, 10, 10]
    ds.load_state_dict(start)
    assert last() == [2, None, 10, 0, None, None]
    ds.load_state_dict(start)
    list(ds)
    assert last() == [2, 10, 100, 90, None, None]


def test_a_position_that_is_loaded_before_the_first_batch_begins_no_turn(numbers, told):
    ds = cordee.dataset(numbers(100), batch=10, threads=0)
    ds.load_state_dict({**ds.state_dict(), "position": 30})
    list(ds)
    fact = told.positions()[-1]
    assert (fact.turn, fact.begin, fact.given) == (1, 30, 70)


def test_samples_that_are_dropped_are_told(numbers, told):
    list(cordee.dataset(numbers(23), batch=10, last="drop"))
    assert told()[-1]["cordee/data/numbers/dropped"] == 3


def test_the_limit_that_was_measured_is_told(packed, told):
    ds = cordee.dataset(packed, batch=50)
    write_limits(ds.source.identity, packed, {"warm": 2e9}, 1.0)
    del ds
    list(cordee.dataset(packed, batch=50))
    assert told()[-1]["cordee/data/packed/limit_bytes_per_second"] == 2e9


def test_what_worker_processes_read_is_told(numbers, told):
    list(cordee.dataset(numbers(100), batch=30).loader(workers=1))
    assert told()[-1]["cordee/data/numbers/bytes"] == 800


def test_it_is_told_about_once_a_second_and_not_at_every_batch(numbers, told):
    list(cordee.dataset(numbers(5000), batch=1, threads=0))
    assert len(told()) <= 20


def test_two_data_sets_of_one_name_are_told_of_apart(numbers, told):
    training, other = cordee.dataset(numbers(10), batch=5), cordee.dataset(numbers(10), batch=5)
    list(training)
    list(other)
    assert [name for name in told()[-1] if name.endswith("position")] == ["cordee/data/numbers.2/position"]
    del training, other
    gc.collect()
    list(cordee.dataset(numbers(10), batch=5))
    assert "cordee/data/numbers/position" in told()[-1]


def test_a_name_with_slashes_is_one_name(numbers, told):
    list(cordee.dataset(numbers(10, "a/b"), batch=5))
    assert "cordee/data/a_b/position" in told()[-1]


def test_outside_a_run_nothing_is_told(numbers, monkeypatch):
    ds = cordee.dataset(numbers(10), batch=5)
    assert not ds._teller.active
    list(ds)


def test_counts_are_added_up():
    one, other = ReadCounts(), ReadCounts()
    one.request(5)
    other.request(5)
    other.skipped = 2
    total = summed([one, other])
    assert (total.requests, total.bytes, total.skipped, total.sizes[3]) == (2, 10, 2, 2)
    assert one.sizes[3] == 1
