"""What Prometheus endpoints answer becomes points, and points become what is recorded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.telemetry.node.metrics import points
from cordee.telemetry.node.metrics.points import COUNTER, GAUGE, HISTOGRAM, Point, PointSeries, labelled
from cordee.telemetry.node.metrics.prometheus import read_exposition

TEXT = r"""
# HELP steps_total Steps.
# TYPE steps_total counter
steps_total{stage="1"} 100 1795295183000
# TYPE queue gauge
queue{model="a \"b\" \\ {c}",host="n"} 3.5
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.1"} 1
wait_seconds_bucket{le="+Inf"} 4
wait_seconds_sum 2
wait_seconds_count 4
# TYPE call_seconds summary
call_seconds{quantile="0.5"} 0.2
call_seconds{quantile="0.99"} NaN
call_seconds_sum 10
call_seconds_count 5
plain_total 7
untyped 1e3
build_info{version="1"} 1
"""


def kept(text: str, *patterns: str) -> dict[str, tuple[str, float]]:
    points = read_exposition(text, 1.0, patterns).points
    return {labelled(point.name, point.labels): (point.kind, point.value) for point in points}


def test_every_kind_of_metric_is_read():
    assert kept(TEXT) == {
        'steps_total{stage="1"}': (COUNTER, 100.0),
        r'queue{host="n",model="a \"b\" \\ {c}"}': (GAUGE, 3.5),
        "wait_seconds": (HISTOGRAM, 2.0),
        'call_seconds{quantile="0.5"}': (GAUGE, 0.2),
        "call_seconds": (HISTOGRAM, 10.0),
        "plain_total": (COUNTER, 7.0),
        "untyped": (GAUGE, 1000.0),
    }


def test_openmetrics_is_read_with_its_exemplars_and_without_times_of_creation():
    text = """# TYPE steps counter
# UNIT steps things
steps_total{a="b"} 17.0 # {trace_id="x}y"} 0.67
steps_created{a="b"} 1795295183.0
# TYPE wait histogram
wait_bucket{le="+Inf"} 2 # {trace_id="x"} 0.67
wait_count 2
wait_sum 3
# EOF"""
    assert kept(text) == {'steps_total{a="b"}': (COUNTER, 17.0), "wait": (HISTOGRAM, 3.0)}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("queue",), ["queue"]),
        (("wait_*",), ["wait_seconds"]),
        (("steps*", "untyped"), ["steps_total", "untyped"]),
        (("x",), []),
    ],
)
def test_only_the_names_that_are_asked_for_are_kept(patterns, names):
    assert [name.partition("{")[0] for name in kept(TEXT, *patterns)] == names


def test_what_is_no_line_is_counted_and_passed_over():
    found = read_exposition("<html>\nok 1\nno value\nbroken{a= 1\nname{} twelve\n{} 3\n\x00\n", 1.0)
    assert [point.name for point in found.points] == ["ok"]
    assert found.unreadable == 6


def test_more_series_than_are_kept_are_counted():
    found = read_exposition("".join(f'x{{i="{number}"}} 1\n' for number in range(700)), 1.0)
    assert (len(found.points), found.left_out) == (500, 200)


@pytest.mark.parametrize(
    "hostile", ["x{" * 200_000, 'x{a="' + "\\" * 400_000, "x" * 1_000_000, 'x{a="b",' * 100_000 + " 1"]
)
def test_hostile_lines_take_no_time(hostile):
    began = time.process_time()
    assert read_exposition(hostile, 1.0).points == []
    assert time.process_time() - began < 5


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_any_text_is_read_or_passed_over(text):
    read_exposition(text, 1.0)


def test_a_counter_is_recorded_as_its_rate_and_a_new_beginning_says_nothing():
    series = PointSeries()
    values = [
        series.take([Point("steps_total", (("a", "b"),), COUNTER, moment, value)])
        for moment, value in [(0.0, 100.0), (2.0, 110.0), (4.0, 5.0), (5.0, 6.0)]
    ]
    assert [[tuple(one) for one in found] for found in values] == [
        [],
        [('steps_per_second{a="b"}', 5.0, "1/s")],
        [],
        [('steps_per_second{a="b"}', 1.0, "1/s")],
    ]


def test_a_histogram_is_recorded_as_the_mean_of_what_was_new_and_its_rate():
    series = PointSeries()
    assert series.take([Point("wait", (), HISTOGRAM, 0.0, 10.0, 5)]) == []
    found = series.take([Point("wait", (), HISTOGRAM, 2.0, 16.0, 8)])
    assert [tuple(one) for one in found] == [("wait_mean", 2.0, ""), ("wait_count_per_second", 1.5, "1/s")]
    quiet = series.take([Point("wait", (), HISTOGRAM, 4.0, 16.0, 8)])
    assert [tuple(one) for one in quiet] == [("wait_count_per_second", 0.0, "1/s")], "no observation has no mean"


def test_labels_in_names_are_bounded():
    name = labelled("x", [(f"l{number}", "v" * 1000) for number in range(100)])
    assert len(name) < 700
    assert name.count("=") == 8


def test_series_beyond_the_most_wait_until_others_have_ended(monkeypatch):
    monkeypatch.setattr(points, "_MOST_SERIES", 2)
    series = PointSeries()
    for moment, name in [(1000.0, "a"), (1000.0, "b"), (1000.0, "c"), (1030.0, "c"), (1500.0, "b")]:
        series.take([Point(name, (), COUNTER, moment, 1.0)])
    series.take([Point("c", (), COUNTER, 1700.0, 1.0)])
    assert [one.value for one in series.take([Point("c", (), COUNTER, 1701.0, 4.0)])] == [3.0]
    assert [one.value for one in series.take([Point("b", (), COUNTER, 1702.0, 1.0)])] == [0.0], "b is still known"
