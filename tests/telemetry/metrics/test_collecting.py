"""What is read and received becomes events of ranks; the agent's side tells the ranks where to send."""

from __future__ import annotations

import json
import time

import pytest

from cordee.telemetry.node.blocklog import BESIDE_CHANNEL, EVENTS, FACTS, decode_json, iter_records
from cordee.telemetry.node.metrics import streams
from cordee.telemetry.node.metrics.__main__ import Collector
from cordee.telemetry.node.metrics.otlp import Batch
from cordee.telemetry.node.metrics.points import COUNTER, GAUGE, Point, Recorded
from cordee.telemetry.node.metrics.streams import Streams


def decoded(records: bytes, kind: int) -> list[dict]:
    return [decode_json(body) for of_kind, body in iter_records(records) if of_kind == kind]


def test_values_become_events_whose_offsets_rise_and_are_in_no_channel():
    found = Streams("n", clock=lambda: 1000.0)
    for moment in (1.0, 2.0):
        found.add("otlp", 3, 1, moment, [Recorded("a", moment, "s")])
    records = found.records()
    (events,) = decoded(records, EVENTS)
    assert (events["rank"], events["attempt"], events["dropped"]) == (3, 1, 0)
    offsets = [offset for offset, *_ in events["events"]]
    assert BESIDE_CHANNEL < offsets[0] < offsets[1] < 1 << 53, "readers keep offsets in doubles"
    assert [event[1:] for event in events["events"]] == [[1.0, None, {"a": 1.0}], [2.0, None, {"a": 2.0}]]
    (facts,) = decoded(records, FACTS)
    assert (facts["group"], facts["devices"]) == ("logged", {"a": {"sources": ["otlp"], "unit": "s"}})
    assert found.records() == b""


def test_offsets_rise_over_restarts_of_the_child():
    first, second = Streams("n", clock=lambda: 1000.0), Streams("n", clock=lambda: 1000.5)
    offsets = []
    for found in (first, second):
        found.add("otlp", 0, 1, 1.0, [Recorded("a", 1.0)])
        offsets.append(decoded(found.records(), EVENTS)[0]["events"][0][0])
    assert offsets[0] < offsets[1]


def test_values_that_nobody_takes_away_are_counted_as_dropped(monkeypatch):
    monkeypatch.setattr(streams, "_MOST_WAITING", 2)
    found = Streams("n")
    for _ in range(5):
        found.add("otlp", 0, 1, 1.0, [Recorded("a", 1.0)])
    (events,) = decoded(found.records(), EVENTS)
    assert (len(events["events"]), events["dropped"]) == (2, 3)


@pytest.fixture
def collector(tmp_path):
    def make(**ranks: int) -> Collector:
        path = tmp_path / "ranks.json"
        path.write_text(
            json.dumps({number: {"pid": 1, "attempt": attempt, "local_rank": 0} for number, attempt in ranks.items()})
        )
        found = Collector({"node": "n", "ranks": str(path), "scrape": []})
        found.turn()
        return found

    return make


def received(collector: Collector, *batches: Batch) -> list[tuple]:
    collector.received(batches)
    return [
        (one["rank"], one["attempt"], event[3]) for one in decoded(collector.turn(), EVENTS) for event in one["events"]
    ]


def gauge(value: float, moment: float = 0.0) -> Point:
    return Point("x", (), GAUGE, moment, value)


def test_a_sender_is_the_rank_that_its_resource_names(collector):
    found = collector(**{"3": 2, "4": 2})
    assert received(found, Batch({"cordee.rank": "4"}, [gauge(1.0)])) == [(4, 2, {"x": 1.0})]


@pytest.mark.parametrize("resource", [{}, {"cordee.rank": "9"}, {"cordee.rank": "x"}, {"cordee.rank": "9" * 5000}])
def test_a_sender_that_could_be_anyone_is_nobody_and_it_is_said(collector, resource):
    found = collector(**{"3": 2, "4": 2})
    found.received([Batch(resource, [gauge(1.0)])])
    records = found.turn()
    assert decoded(records, EVENTS) == []
    assert "no rank of this node can be told for" in decoded(records, FACTS)[0]["remarks"][0]


def test_where_one_rank_runs_a_sender_without_a_name_is_that(collector):
    assert received(collector(**{"3": 1}), Batch({}, [gauge(1.0)])) == [(3, 1, {"x": 1.0})]


def test_two_processes_of_a_rank_have_rates_of_their_own(collector):
    found, now = collector(**{"0": 1}), time.time()
    first = [
        Batch({"pid": pid}, [Point("n_total", (), COUNTER, now, value)]) for pid, value in (("1", 100.0), ("2", 900.0))
    ]
    assert received(found, *first) == []
    later = [
        Batch({"pid": pid}, [Point("n_total", (), COUNTER, now + 1, value)])
        for pid, value in (("1", 101.0), ("2", 902.0))
    ]
    assert [values["n_per_second"] for _, _, values in received(found, *later)] == pytest.approx([1.0, 2.0], rel=1e-3)


def test_a_time_that_cannot_be_is_the_time_of_arrival(collector):
    found, before = collector(**{"0": 1}), time.time()
    found.received([Batch({}, [gauge(1.0, 0.0), gauge(2.0, 1e18)]), Batch({}, [gauge(3.0, before - 5)])])
    (events,) = decoded(found.turn(), EVENTS)
    times = [moment for _, moment, *_ in events["events"]]
    assert before <= times[0] <= time.time()
    assert times[1] == before - 5


def test_names_of_any_length_and_kind_are_kept_apart_and_bounded():
    found = Streams("n")
    names = ["x" * 100_000 + end for end in "ab"] + ["<script>alert(1)</script>", "tab\tnul\0"]
    found.add("otlp", 0, 1, 1.0, [Recorded(name, float(at)) for at, name in enumerate(names)])
    ((_, _, _, values),) = decoded(found.records(), EVENTS)[0]["events"]
    assert list(values.values()) == [0.0, 1.0, 2.0, 3.0]
    assert max(map(len, values)) < 220


def test_facts_are_told_once(monkeypatch):
    found = Streams("n")
    for expected in (1, 0):
        found.add("otlp", 0, 1, 1.0, [Recorded("a", 1.0, "s")])
        assert len(decoded(found.records(), FACTS)) == expected
