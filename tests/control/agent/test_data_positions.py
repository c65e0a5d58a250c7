"""From a rank's events to what the journal keeps of its data."""

from __future__ import annotations

import pytest

from cordee.control.agent.ranks.data_positions import DataPositions
from cordee.control.supervisor.telemetry.data_read import DataReadLog
from cordee.runs.journal import JournalWriter, read_journal
from cordee.wire import messages
from cordee.wire.facts import CheckpointFact, DataPositionFact, SourceFact
from cordee.wire.messages import DataSave


def told(name="corpus", turn=1, size=100, given=0, **values):
    return DataPositionFact(name, turn, size, given, **values)


def test_totals_are_kept_by_set_and_other_facts_are_passed_over():
    positions = DataPositions()
    positions.take(1, 3, [SourceFact("loss"), told(position=8, begin=0, given=4)])
    positions.take(1, 3, [told("a/b", position=16, begin=0), told("c" * 300, position=1)])
    assert positions.news() == (
        messages.DataRead(1, 3, "corpus", 1, 100, 0, 8, 4, 0),
        messages.DataRead(1, 3, "a/b", 1, 100, 0, 16, 0, 0),
    )
    assert positions.news() == ()


@pytest.mark.parametrize("number", [-1, 1 << 53, 1 << 4000])
def test_numbers_that_are_no_positions_are_passed_over(number):
    positions = DataPositions()
    positions.take(1, 0, [told(position=number), told(position=3, given=number), CheckpointFact(number)])
    assert positions.news() == ()


def test_names_without_end_take_no_memory_without_end():
    positions = DataPositions()
    positions.take(1, 0, [told(str(number), position=1) for number in range(2000)])
    assert len(positions.news()) == 1000


def test_every_saved_position_is_told_and_then_which_checkpoint_it_is_of():
    positions = DataPositions()
    positions.take(2, 0, [told(position=8, begin=0, given=4)])
    positions.take(2, 0, [told(position=16, begin=0, given=8, saved=16, saved_given=8), CheckpointFact(1)])
    positions.take(2, 0, [told(position=24, begin=0, given=12, saved=24, saved_given=12)])
    (news,) = positions.news()
    assert news.saves == (DataSave(16, given=8), DataSave(16, step=1), DataSave(24, given=12))


def test_each_turn_is_told_by_itself():
    positions = DataPositions()
    positions.take(1, 0, [told(turn=1, position=40, begin=0, given=20), told(turn=2, position=16, given=0)])
    positions.take(1, 0, [told(turn=2, position=32, begin=16, given=8, saved=32, saved_given=8)])
    first, second = positions.news()
    assert (first.turn, first.begin, first.position, first.given) == (1, 0, 40, 20)
    assert (second.turn, second.begin, second.position, second.given) == (2, 16, 32, 8)
    assert second.saves == (DataSave(32, given=8),)


def test_an_agent_that_heard_only_the_last_telling_says_of_it_what_another_would():
    last = told(turn=2, position=250, begin=100, given=50, saved=216, saved_given=39)
    there, late = DataPositions(), DataPositions()
    there.take(1, 0, [told(turn=1, position=40, begin=0, given=40)])
    there.take(1, 0, [told(turn=2, position=216, begin=100, given=39, saved=216, saved_given=39)])
    there.news()
    there.take(1, 0, [last])
    late.take(1, 0, [last])
    (news,) = late.news()
    assert news.saves == (DataSave(216, given=39),)
    assert (news._replace(saves=()),) == there.news()


def journal(tmp_path):
    return JournalWriter(tmp_path, "supervisor-1", 1)


def written(tmp_path):
    keys = ("attempt", "set", "begin", "position", "readers", "given", "saves")
    return [tuple(event[key] for key in keys) for event in read_journal(tmp_path)]


def said(rank, position, saves=(), attempt=1, begin=0, **more):
    return messages.DataRead(attempt, rank, "c", 1, begin=begin, position=position, saves=tuple(saves), **more)


def test_the_journal_is_told_of_begins_and_saves_and_of_the_rest_at_the_end(tmp_path):
    data = DataReadLog(journal(tmp_path))
    data.take([said(0, 8, given=4), said(1, 8, given=4)])
    data.write()
    data.take([said(0, 16, given=8)])
    data.write()
    data.take([said(0, 24, [DataSave(24, given=12)], given=12)])
    data.take([said(1, 24, [DataSave(24, given=12), DataSave(24, step=2)], given=12)])
    data.write()
    data.take([said(0, 32, given=16)])
    data.end(1)
    data.write()
    data.write()
    assert written(tmp_path) == [
        (1, "c", [0], 8, 2, 8, []),
        (1, "c", [0], 24, 2, 24, [{"position": 24, "step": 2, "readers": 2, "given": 24}]),
        (1, "c", [0], 32, 2, 28, []),
    ]


def test_a_save_that_ranks_tell_one_after_another_is_told_again_with_all_of_them(tmp_path):
    data = DataReadLog(journal(tmp_path))
    for rank in (0, 1):
        data.take([said(rank, 8, [DataSave(8, given=4)], given=4)])
        data.write()
    assert [event[-1] for event in written(tmp_path)] == [
        [{"position": 8, "step": None, "readers": 1, "given": 4}],
        [{"position": 8, "step": None, "readers": 2, "given": 8}],
    ]


def test_what_a_rank_does_not_count_is_not_taken_for_nothing(tmp_path):
    data = DataReadLog(journal(tmp_path))
    data.take([said(0, 8, given=4), said(1, None, begin=None)])
    data.write()
    assert written(tmp_path) == [(1, "c", [0], 8, 2, None, [])]
