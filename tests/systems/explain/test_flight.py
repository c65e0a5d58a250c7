"""`cordee flight` on trainings that hang: made ones, carried out as NCCL would, with dumps missing, mixed and shifted."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from cordee.systems.explain.flight.analysis import Flight, analyse
from cordee.systems.explain.flight.files import find_dumps
from support.flight.dumps import (
    PG,
    CpuStall,
    CpuWait,
    FlightEngine,
    GroupCall,
    MadeDumps,
    Program,
    changed,
    write_dump,
)
from support.flight.faults import FAULTS, MadeFault, ddp, make_fault, three_dimensional

SEEDS = range(100, 103)


def judged(folder: Path, world: int = 0) -> Flight:
    return analyse(find_dumps(folder), world)


def named(flight: Flight) -> set[int]:
    return {rank for finding in flight.findings for rank in finding["ranks"]}


def stalled(folder: Path, rank: int = 3, world: int = 8, **engine: int) -> MadeDumps:
    """Write the dumps of a training in which one rank stands still."""
    training = ddp(world, 8)
    made = FlightEngine(training.groups, changed(training.programs, rank, 20, CpuStall(), cut=0), **engine).run()
    made.write(folder)
    return made


def later(made: MadeDumps, by_s: float) -> None:
    for entries in made.entries.values():
        for entry in entries:
            entry["time_created_ns"] += int(by_s * 1e9)


@pytest.mark.parametrize("name", FAULTS)
def test_who_is_to_blame_is_named_and_what_went_wrong(tmp_path, name):
    for seed in SEEDS:
        fault = make_fault(name, seed, ring=2000)
        fault.made.write(tmp_path / str(seed))
        flight = judged(tmp_path / str(seed))
        assert named(flight) == fault.culprits, (seed, flight.findings)
        assert {finding["kind"] for finding in flight.findings} <= set(fault.kinds), (seed, flight.findings)


@pytest.mark.parametrize("name", FAULTS)
def test_nobody_is_blamed_wrongly_where_dumps_are_missing(tmp_path, name):
    for seed in SEEDS:
        fault = make_fault(name, seed)
        dice = random.Random(seed)
        missing = dice.sample(range(fault.world), max(1, int(0.3 * fault.world)))
        fault.made.write(tmp_path / str(seed), without=missing)
        flight = judged(tmp_path / str(seed), fault.world)
        assert named(flight) in (set(), fault.culprits), (seed, missing, flight.findings)
        assert flight.findings
        assert flight.missing == sorted(missing)


def test_a_culprit_without_a_dump_is_among_the_suspects_and_the_cause_is_unknown(tmp_path):
    stalled(tmp_path).write(tmp_path / "some", without=[3])
    (finding,) = judged(tmp_path / "some", 8).findings
    assert (finding["kind"], finding["ranks"], finding["suspects"]) == ("unknown", [], [3])


def test_a_finding_says_group_sequence_number_and_line_of_the_script(tmp_path):
    stalled(tmp_path)
    (finding,) = judged(tmp_path).findings
    assert finding["kind"] == "cpu-stall"
    assert finding["process_group"] == "0 (default_pg)"
    assert finding["where"] == "/home/ada/train.py:31 (train_step)"
    assert finding["last"] == "/home/ada/train.py:44 (train_step)"
    assert finding["arrived"] == 7


def test_rings_that_begin_at_other_sequence_numbers_are_compared_by_number(tmp_path):
    training = ddp(8, 30)
    program = training.programs[5]
    at = max(place for place, step in enumerate(program) if isinstance(step, CpuWait)) - 1
    wrong = GroupCall("world", "broadcast", ((1,),), ((1,),), line=777, root=0)
    programs = changed(training.programs, 5, at, wrong)
    for rank in programs:
        made = FlightEngine(training.groups, programs, ring=11 + 7 * rank).run()
        write_dump(tmp_path / f"nccl_trace_rank_{rank}", made.dump(rank))
    (finding,) = judged(tmp_path).findings
    assert (finding["kind"], finding["ranks"]) == ("wrong-collective", [5])
    assert finding["called"]["5"] == "broadcast of 1 Float"
    assert finding["where"] == "/home/ada/train.py:777 (train_step)"


def test_shapes_of_as_many_elements_agree(tmp_path):
    groups = {"world": PG("0", "default_pg", (0, 1, 2))}
    programs: dict[int, Program] = {
        rank: [GroupCall("world", "all_reduce", (shape,), (shape,)), GroupCall("world", "all_reduce")]
        for rank, shape in enumerate([(4, 2), (8,), (2, 4)])
    }
    programs[1].insert(1, CpuStall())
    FlightEngine(groups, programs).run().write(tmp_path)
    (finding,) = judged(tmp_path).findings
    assert (finding["kind"], finding["ranks"]) == ("cpu-stall", [1])


def test_half_against_half_blames_nobody(tmp_path):
    training = ddp(4, 8)
    programs = training.programs
    for rank in (0, 1):
        programs = changed(programs, rank, 21, GroupCall("world", "broadcast", line=777, root=0))
    FlightEngine(training.groups, {rank: program[18:] for rank, program in programs.items()}).run().write(tmp_path)
    flight = judged(tmp_path)
    assert named(flight) == set()
    assert flight.findings[0]["suspects"] == [0, 1, 2, 3]
    assert flight.bad


def test_groups_of_the_same_kind_settle_what_two_ranks_cannot(tmp_path):
    training = three_dimensional(4, 2, 2, 5)
    at = next(
        place
        for place, step in enumerate(training.programs[5])
        if place > 40 and isinstance(step, GroupCall) and step.group.startswith("t")
    )
    wrong = GroupCall(training.programs[5][at].group, "broadcast", line=777, root=0)  # type: ignore[union-attr]
    FlightEngine(training.groups, changed(training.programs, 5, at, wrong)).run().write(tmp_path)
    (finding,) = judged(tmp_path).findings
    assert (finding["kind"], finding["ranks"], finding["members"]) == ("wrong-collective", [5], 2)


def test_a_training_that_goes_on_has_no_finding(tmp_path):
    training = ddp(4, 8)
    FlightEngine(training.groups, training.programs).run().write(tmp_path)
    flight = judged(tmp_path)
    assert (flight.findings, flight.bad) == ([], False)


def test_a_dump_of_an_earlier_start_is_left_out(tmp_path):
    stalled(tmp_path, world=8)
    early = ddp(8, 3)
    made = FlightEngine(early.groups, changed(early.programs, 6, 4, CpuStall(), cut=0)).run()
    later(made, -3600)
    write_dump(tmp_path / "rank-7.pkl", made.dump(7))
    flight = judged(tmp_path)
    assert named(flight) == {3}
    assert flight.missing == [7]
    assert any("rank 7 is left out" in note for note in flight.notes)


def test_a_dump_of_an_earlier_start_that_ended_at_the_same_call_is_told_by_its_times(tmp_path):
    made = stalled(tmp_path, world=8)
    later(made, -3600)
    write_dump(tmp_path / "rank-3.pkl", made.dump(3))
    os.utime(tmp_path / "rank-3.pkl", (1, 1))
    flight = judged(tmp_path)
    assert named(flight) == set()
    assert flight.findings[0]["suspects"] == [3]


def test_ranks_that_remain_of_a_larger_world_are_left_out(tmp_path):
    stalled(tmp_path, world=8)
    stalled(tmp_path, world=6, rank=2)
    flight = judged(tmp_path)
    assert named(flight) == {2}
    assert (flight.world, flight.missing) == (6, [])


def test_two_runs_half_and_half_blame_nobody(tmp_path):
    training = ddp(8, 30)
    FlightEngine(training.groups, changed(training.programs, 6, 100, CpuStall(), cut=0)).run().write(tmp_path)
    stalled(tmp_path / "other").write(tmp_path, without=range(4))
    assert named(judged(tmp_path)) == set()


def test_a_clock_that_is_apart_blames_nobody_and_is_said(tmp_path):
    made = stalled(tmp_path)
    later(made, 7200)
    write_dump(tmp_path / "rank-5.pkl", made.dump(5))
    flight = judged(tmp_path)
    assert named(flight) == {3}
    assert any("clock of rank 5 is apart by 7200 s" in note for note in flight.notes)
    write_dump(tmp_path / "rank-3.pkl", made.dump(3))
    assert named(judged(tmp_path)) == set()


def test_ranks_that_were_numbered_anew_are_known_by_their_groups(tmp_path):
    training = three_dimensional(2, 2, 2, 5)
    made = FlightEngine(training.groups, changed(training.programs, 6, 40, CpuStall(), cut=0)).run()
    made.write(tmp_path, without=[6, 1])
    write_dump(tmp_path / "rank-1.pkl", made.dump(6))
    write_dump(tmp_path / "rank-6.pkl", made.dump(1))
    flight = judged(tmp_path)
    assert named(flight) == {6}
    assert any("is of rank 6 by its groups" in note for note in flight.notes)


def test_of_several_sets_the_newest_is_taken_and_the_others_are_named(tmp_path):
    stalled(tmp_path / "first", rank=1)
    for path in (tmp_path / "first").iterdir():
        os.utime(path, (1, 1))
    stalled(tmp_path / "second", rank=2)
    flight = judged(tmp_path)
    assert named(flight) == {2}
    assert any("first/rank-*" in note for note in flight.notes)


def test_json_says_the_same_without_lines(tmp_path):
    made = stalled(tmp_path)
    made.write(tmp_path / "json", form="rank-{}.json")
    whole, bare = judged(tmp_path).findings[0], judged(tmp_path / "json").findings[0]
    assert {**bare, "where": "", "last": ""} == {**whole, "where": "", "last": ""}
    assert bare["where"] == ""


def test_the_number_of_entries_does_not_decide_what_is_kept(tmp_path):
    stalled(tmp_path / "short", ring=20)
    stalled(tmp_path / "long", ring=2000)
    assert judged(tmp_path / "short").findings == judged(tmp_path / "long").findings


def test_a_fault_is_drawn_again_from_its_seed():
    def drawn() -> MadeFault:
        return make_fault("order", 5)

    assert json.dumps(drawn().made.entries) == json.dumps(drawn().made.entries)


@pytest.mark.parametrize(
    ("name", "seed", "culprit", "peer"), [("transfer left out", 11, 8, 0), ("transfer size", 11, 15, 11)]
)
def test_who_came_to_a_transfer_unlike_those_that_do_the_same_work_is_named_without_the_dump_of_its_peer(
    tmp_path, name, seed, culprit, peer
):
    fault = make_fault(name, seed)
    fault.made.write(tmp_path, without=[peer])
    (finding,) = analyse(find_dumps(tmp_path)).findings
    assert fault.culprits == {culprit}
    assert (finding["kind"], finding["ranks"]) == ("p2p", [culprit])
    assert f"for rank {peer}, which wrote no dump, and came there another way" in finding["text"]


def test_one_other_rank_is_too_few_to_say_who_goes_another_way(tmp_path):
    make_fault("transfer size", 11).made.write(tmp_path, without=[11, 13, 14])
    (finding,) = analyse(find_dumps(tmp_path)).findings
    assert (finding["kind"], finding["ranks"]) == ("unknown", [])


def test_entries_that_do_not_say_when_they_were_made_do_not_end_the_comparison(tmp_path):
    made = make_fault("transfer size", 11).made
    for rank in (12, 13, 15):
        for entry in made.entries[rank]:
            del entry["time_created_ns"]
    made.write(tmp_path, without=[11])
    flight = analyse(find_dumps(tmp_path))
    assert [finding["ranks"] for finding in flight.findings] in ([], [[]])
    assert any("could not be understood" in note for note in flight.notes)
