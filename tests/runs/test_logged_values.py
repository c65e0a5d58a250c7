from __future__ import annotations

import math

import numpy as np
import pytest

from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import drop_sealed_parts, seal

T0 = 1_700_000_000.0


def log(known, epoch, events, *, rank=0, attempt=1):
    """Append events (offset, step, values) of one rank."""
    writer = BlockLogWriter(known.telemetry, epoch)
    writer.append(encode_events("n", rank, attempt, 0, [(at, T0 + at, step, values) for at, step, values in events]))
    assert writer.close()


def test_a_series_that_is_followed_while_it_is_sealed_is_the_series(known):
    run = open_run(known.folder.root)
    for start in range(0, known.seconds, 25):
        known.write(1 + start, max(0, start - 5), start + 25)  # the last seconds are there twice
        series = run.series("loss")
        assert series.steps.tolist() == list(range(start + 25))
        assert (series.ranks == 4).all()
        np.testing.assert_allclose(series.mean, 1.5 + 1 / (series.steps + 1))
        assert series.low.tolist() == [1 / (step + 1) for step in range(start + 25)]
        until = seal(known.folder.root)
        if until is not None:
            known.journal.append("sealed", until=until)
            drop_sealed_parts(known.folder.root)
    assert len(open_run(known.folder.root).events("loss")["loss"]) == 4 * known.seconds


def test_a_series_reads_steps_and_not_every_value(known, monkeypatch):
    known.write()
    seal(known.folder.root, final=True)

    def refuse(*_):
        raise AssertionError("all events were read")

    monkeypatch.setattr("cordee.telemetry.store.logged_values.read_events", refuse)
    assert len(open_run(known.folder.root).series("loss").steps) == known.seconds


@pytest.mark.parametrize("sealed", [False, True])
def test_numbers_that_are_none_and_infinities_are_kept(known, sealed):
    events = [
        (0, 0, {"loss": math.nan}),
        (1, 1, {"loss": math.inf}),
        (2, 2, {"loss": -math.inf}),
        (3, 3, {"loss": 1.0}),
    ]
    log(known, 1, events)
    log(known, 2, [(0, 2, {"loss": math.inf})], rank=1)
    if sealed:
        seal(known.folder.root, final=True)
    run = open_run(known.folder.root)
    series = run.series("loss")
    assert math.isnan(series.mean[0])
    assert (series.mean[1], series.low[2], series.high[2], series.mean[3]) == (math.inf, -math.inf, math.inf, 1.0)
    assert run.events("loss")["loss"]["value"][1] == math.inf


@pytest.mark.parametrize("sealed", [False, True])
def test_names_beyond_the_most_are_left_out_and_counted(known, monkeypatch, sealed):
    monkeypatch.setattr("cordee.telemetry.store.series.MOST_RUN_NAMES", 10)
    log(known, 1, [(at, at, {f"name-{at}": 1.0, "loss": 0.5}) for at in range(50)])
    if sealed:
        seal(known.folder.root, final=True)
    run = open_run(known.folder.root)
    assert len(run.logged()) == 10
    assert run.series("loss").steps.tolist() == list(range(50))
    (left_out,) = run.missing()
    assert left_out.what == "41 logged values"


def test_a_part_that_grew_after_it_was_sealed_counts_once(known):
    writer = BlockLogWriter(known.telemetry, 1)
    run = open_run(known.folder.root)
    for at in range(20):
        writer.append(encode_events("n", 0, 1, 0, [(at, T0 + at, at, {"loss": 1.0})]))
        writer.flush()
        if at in (5, 12):
            run.series("loss")
            seal(known.folder.root, final=True)
        assert run.series("loss").ranks.tolist() == [1] * (at + 1)
    writer.close()
