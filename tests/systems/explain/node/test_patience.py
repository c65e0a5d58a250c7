"""How long a hang is waited for: as long as ever on an idle machine, and longer, within bounds, where ranks wait for processors."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path

import pytest

from cordee.client.pulse import WakeUp
from cordee.systems.explain.node.collect import HangEvidence
from cordee.systems.explain.node.patience import MOST_S, crowded, patience_s, times_longer
from cordee.testing.patience import wait_until
from cordee.wire.pulse import DUMP, SUFFIX, WAKE, PulseReader, PulseWriter

ORDER = {"idle_s": 8.0, "deadline_s": 8.0, "most_s": 11.0, "late": False, "node": "n", "attempt": 1, "ranks": []}


@pytest.mark.parametrize(
    ("crowd", "pressure", "times"),
    [(0.2, 0.0, 1.0), (1.0, 1.0, 1.0), (4.0, 0.0, 1.0), (4.0, 1.0, 4.0), (4.0, None, 4.0), (500.0, 1.0, 8.0)],
)
def test_patience_grows_with_who_waits_for_each_core_and_how_much(crowd: float, pressure: float | None, times: float):
    assert crowded(crowd, pressure) == times


def test_nothing_is_waited_for_longer_than_a_minute():
    assert [patience_s(8.0, times) for times in (1.0, 4.0, 8.0)] == [8.0, 32.0, MOST_S]
    assert patience_s(90.0, 8.0) == 90.0  # of so many ranks that an idle machine needs as long


def test_the_kernel_says_how_crowded_a_machine_is(tmp_path: Path):
    (tmp_path / "pressure").mkdir()
    (tmp_path / "loadavg").write_text(f"{4.0 * (os.cpu_count() or 1)} 1 1 9/100 7")
    assert times_longer(proc=str(tmp_path)) == 4.0
    (tmp_path / "pressure/cpu").write_text("some avg10=50.00 avg60=1.00 avg300=1.00 total=1\nfull avg10=0.00 total=1")
    assert times_longer(proc=str(tmp_path)) == 2.0


def test_the_time_to_collect_begins_when_the_process_runs_and_ends_before_it_is_killed():
    now = time.monotonic()
    started_late = HangEvidence({**ORDER, "asked_at": now - 3.0}, io.BytesIO())
    assert started_late._until - now == pytest.approx(7.0, abs=0.5)
    killed_soon = HangEvidence({**ORDER, "asked_at": now - 9.0}, io.BytesIO())
    assert killed_soon._until - now == pytest.approx(1.0, abs=0.5)


def test_who_asks_for_a_dump_wakes_the_rank(tmp_path: Path):
    writer = PulseWriter(str(tmp_path), "1", False)
    wake = WakeUp(writer.path[: -len(SUFFIX)] + WAKE)
    assert not wake.is_set()
    PulseReader(writer.path).ask(1)
    assert wake.wait(0.0)
    wake.clear()
    assert not wake.is_set()
    wake.set()
    assert wake.is_set()


def test_a_rank_that_cannot_be_woken_is_asked_all_the_same(tmp_path: Path):
    writer = PulseWriter(str(tmp_path), "1", False)
    Path(writer.path[: -len(SUFFIX)] + WAKE).write_text("no FIFO")
    wake = WakeUp(writer.path[: -len(SUFFIX)] + WAKE)
    PulseReader(writer.path).ask(1)
    assert writer.asked == 1
    wake.set()
    assert wake.is_set()


def test_a_dump_is_told_after_the_last_word_where_that_is_wanted_and_a_silent_rank_gets_no_more_patience(
    tmp_path: Path,
):
    writer = PulseWriter(str(tmp_path), "1", False)
    out = io.BytesIO()
    about = {"rank": 0, "pid": os.getpid(), "pulse": writer.path, "asked": 5, "why": "silent"}
    order = {**ORDER, "idle_s": 1.0, "deadline_s": 60.0, "most_s": 60.0, "late": True, "ranks": [about]}
    order |= {"asked_at": time.monotonic(), "began_at": 0.0, "places": []}
    collecting = threading.Thread(target=HangEvidence(order, out).run)
    collecting.start()
    wait_until(lambda: b'["", false' in out.getvalue(), 30.0)
    Path(writer.path[: -len(SUFFIX)] + DUMP).write_bytes(b"dump")
    writer.dumped(5)
    collecting.join()
    last_word, _, late = out.getvalue().partition(b'["", false')[2].partition(b"\n")
    assert b"no Flight Recorder dump" in last_word
    assert late == b'["rank-0.flight", true, "", 4]\ndump'
