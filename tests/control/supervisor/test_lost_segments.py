"""When a segment ended that nobody was left to write the end of, as the next allocation's supervisor reads it."""

from __future__ import annotations

import os

import pytest

from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.segments import state_at_start
from cordee.core.units import parse_utc
from cordee.runs.checkpoint import CheckpointFinder
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.signs import last_sign

T0 = 1_790_000_000.0


class NextAllocation(Allocation):
    """Job 7 after it was requeued, whose batch script began 100 s after the run was submitted."""

    chains = True
    allocation = {"job": "7", "requeues": 1}

    def identity(self):
        return {**super().identity(), **self.allocation, "began": T0 + 100}


class NoCheckpoints(CheckpointFinder):
    def newest(self):
        return None


@pytest.fixture
def folder(tmp_path):
    found = RunFolder(tmp_path)
    for place in (found.journal, found.logs, found.telemetry):
        place.mkdir()
    return found


@pytest.fixture
def journal(folder):
    """A run whose first segment trains from 10 s on: `journal(seconds, event)` adds what its supervisor wrote later."""
    now = [T0]
    client = JournalWriter(folder.journal, "client", 0, wall=lambda: T0)
    client.append("submitted", name="t")
    writer = JournalWriter(folder.journal, "supervisor-1", 1, wall=lambda: now[0])

    def write(seconds, event, **fields):
        now[0] = T0 + seconds
        writer.append(event, **fields)
        os.utime(writer.path, (now[0], now[0]))

    write(10, "supervisor_started", epoch=1, segment=1, job="7", requeues=0)
    return write


def wrote(path, seconds):
    path.touch()
    os.utime(path, (T0 + seconds, T0 + seconds))


def end_of_first(folder):
    """Return when the next supervisor finds the first segment to have ended, in seconds since the run was submitted."""
    state = state_at_start(
        JournalWriter(folder.journal, "supervisor-2", 2), folder, NextAllocation(folder, {}), NoCheckpoints()
    )
    ended = read_journal(folder.journal)[-1]
    assert (ended["event"], ended["reason"]) == ("segment_ended", "lost")
    assert state.segment_states[0].ended_at == parse_utc(ended["seen"])
    return state.segment_states[0].ended_at - T0


def test_the_last_line_of_output_is_the_last_sign_of_life(folder, journal):
    journal(20, "progress", step=3)
    wrote(folder.logs / "n1-1.log", 31)
    wrote(folder.telemetry / "1.blocks", 30)
    assert end_of_first(folder) == 31


def test_what_a_left_over_supervisor_wrote_while_the_next_one_started_is_no_sign_of_life(folder, journal):
    journal(20, "progress", step=3)
    journal(102, "progress", step=90)
    assert end_of_first(folder) == 20


def test_output_and_samples_of_a_left_over_agent_are_none_either(folder, journal):
    journal(20, "progress", step=3)
    wrote(folder.logs / "n1-1.log", 101)
    wrote(folder.telemetry / "1.blocks", 130)
    assert end_of_first(folder) == 20


def test_a_segment_whose_signs_are_all_of_a_clock_that_is_ahead_ended_before_the_next_one_began(folder, journal):
    wrote(folder.logs / "n1-1.log", 500)
    assert last_sign(folder, T0 + 5) == T0 + 5


def test_lines_of_a_journal_that_cannot_be_read_do_not_hide_the_others(folder, journal):
    journal(20, "progress", step=3)
    with open(folder.journal / "supervisor-1.jsonl", "ab") as file:
        file.write(b'{"time": 7}\n["a"]\n\xff\n' + b"[" * 100_000 + b"\n" + b'{"torn')
    assert last_sign(folder, T0 + 100) == T0 + 20
