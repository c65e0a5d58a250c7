"""What a rank's processor time says: work, or the spinning of one that waits for others."""

from __future__ import annotations

import os

import pytest

from cordee.systems.explain.node import pulses
from cordee.systems.explain.node.pulses import RankProcess
from cordee.wire.pulse import GroupProgress, PulseReader, PulseWriter


@pytest.mark.parametrize(
    ("groups", "later_s", "computes"),
    [
        ([], 0.0, True),
        ([GroupProgress("0", 8, 16, 16)], 0.0, True),
        ([GroupProgress("0", 8, 17, 16)], 0.0, False),
        ([GroupProgress("0", 8, 16, 16), GroupProgress("tp", 2, 3, -1)], 0.0, False),
        ([GroupProgress("0", 8, 16, 16)], 3.0, False),
    ],
    ids=["no groups", "between collectives", "in one", "in one of several", "its interpreter does not run"],
)
def test_a_rank_that_waits_in_no_collective_computes_while_its_interpreter_runs(tmp_path, groups, later_s, computes):
    writer = PulseWriter(str(tmp_path), "1", False)
    writer.beat(1, 0, 5, 1, groups)
    process = RankProcess(0, os.getpid(), 1, PulseReader(writer.path), 100.0)
    writer.beat(2, 0, 5, 1, groups)
    process.look(101.0)
    assert process.computes(101.0 + later_s) is computes


@pytest.mark.parametrize(
    ("times", "age_s", "silent"), [(1.0, 4.9, False), (1.0, 5.1, True), (8.0, 7.4, False), (8.0, 7.6, True)]
)
def test_on_a_busy_node_an_interpreter_has_longer_before_it_is_taken_to_be_held(
    tmp_path, monkeypatch, times, age_s, silent
):
    monkeypatch.setattr(pulses, "times_longer", lambda: times)
    writer = PulseWriter(str(tmp_path), "1", False)
    process = RankProcess(0, os.getpid(), 1, PulseReader(writer.path), 100.0)
    assert process.is_silent(100.0 + age_s) is silent
