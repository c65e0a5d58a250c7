"""Real ranks as they were recorded, `recorded/*.jsonl.gz`: benchmarks/slow_ranks.py records and replays them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.runs.slow_ranks import RECORDED, Trace, replay

TRACES = sorted(RECORDED.glob("*.jsonl.gz"))
WITHIN_S = 60.0


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_nobody_is_named_but_the_rank_that_was_slowed(path):
    found = replay(Trace.read(path))
    assert (found.alarms, found.innocent_s) == (0, {})


@pytest.mark.parametrize("path", [path for path in TRACES if path.name.startswith("quota")], ids=name_of)
def test_a_rank_that_its_quota_holds_back_is_found_within_a_minute_with_the_cause(path):
    trace = Trace.read(path)
    found = replay(trace)
    if trace.slowed():
        assert found.first is not None
        assert found.after_s <= WITHIN_S
        assert (found.first.cause.kind, found.first.cause.how) == ("host", "throttled")
    else:
        assert found.first is None


def test_most_quotas_have_held_their_rank_back():
    assert sum(Trace.read(path).slowed() for path in TRACES) >= 12


def test_a_trace_is_read_as_it_was_written(tmp_path):
    trace = Trace.read(TRACES[0])
    trace.write(tmp_path / "again.jsonl.gz")
    assert Trace.read(tmp_path / "again.jsonl.gz") == trace
