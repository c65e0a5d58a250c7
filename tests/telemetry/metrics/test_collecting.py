"""What is read becomes events of ranks."""

from __future__ import annotations

from cordee.telemetry.node.blocklog import BESIDE_CHANNEL, EVENTS, FACTS, decode_json, iter_records
from cordee.telemetry.node.metrics import streams
from cordee.telemetry.node.metrics.points import Recorded
from cordee.telemetry.node.metrics.streams import Streams


def decoded(records: bytes, kind: int) -> list[dict]:
    return [decode_json(body) for of_kind, body in iter_records(records) if of_kind == kind]


def test_values_become_events_whose_offsets_rise_and_are_in_no_channel():
    found = Streams("n", clock=lambda: 1000.0)
    for moment in (1.0, 2.0):
        found.add("prometheus", 3, 1, moment, [Recorded("a", moment, "s")])
    records = found.records()
    (events,) = decoded(records, EVENTS)
    assert (events["rank"], events["attempt"], events["dropped"]) == (3, 1, 0)
    offsets = [offset for offset, *_ in events["events"]]
    assert BESIDE_CHANNEL < offsets[0] < offsets[1] < 1 << 53, "readers keep offsets in doubles"
    assert [event[1:] for event in events["events"]] == [[1.0, None, {"a": 1.0}], [2.0, None, {"a": 2.0}]]
    (facts,) = decoded(records, FACTS)
    assert (facts["group"], facts["devices"]) == ("logged", {"a": {"sources": ["prometheus"], "unit": "s"}})
    assert found.records() == b""


def test_offsets_rise_over_restarts_of_the_child():
    first, second = Streams("n", clock=lambda: 1000.0), Streams("n", clock=lambda: 1000.5)
    offsets = []
    for found in (first, second):
        found.add("prometheus", 0, 1, 1.0, [Recorded("a", 1.0)])
        offsets.append(decoded(found.records(), EVENTS)[0]["events"][0][0])
    assert offsets[0] < offsets[1]


def test_values_that_nobody_takes_away_are_counted_as_dropped(monkeypatch):
    monkeypatch.setattr(streams, "_MOST_WAITING", 2)
    found = Streams("n")
    for _ in range(5):
        found.add("prometheus", 0, 1, 1.0, [Recorded("a", 1.0)])
    (events,) = decoded(found.records(), EVENTS)
    assert (len(events["events"]), events["dropped"]) == (2, 3)


def test_names_of_any_length_and_kind_are_kept_apart_and_bounded():
    found = Streams("n")
    names = ["x" * 100_000 + end for end in "ab"] + ["<script>alert(1)</script>", "tab\tnul\0"]
    found.add("prometheus", 0, 1, 1.0, [Recorded(name, float(at)) for at, name in enumerate(names)])
    ((_, _, _, values),) = decoded(found.records(), EVENTS)[0]["events"]
    assert list(values.values()) == [0.0, 1.0, 2.0, 3.0]
    assert max(map(len, values)) < 220


def test_facts_are_told_once(monkeypatch):
    found = Streams("n")
    for expected in (1, 0):
        found.add("prometheus", 0, 1, 1.0, [Recorded("a", 1.0, "s")])
        assert len(decoded(found.records(), FACTS)) == expected
