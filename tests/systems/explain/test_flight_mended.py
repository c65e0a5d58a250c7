"""`cordee flight` on rings with copies of records, uneven all-to-alls, and dumps that lie by host."""

from __future__ import annotations

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from support.flight.dumps import PG, CpuStall, FlightEngine, GroupCall, changed, write_dump
from support.flight.faults import ddp


def twice(made, rank, at, to, **older):
    """Put a copy of a record into a rank's ring."""
    made.entries[rank].insert(to, {**made.entries[rank][at], **older})


@pytest.mark.parametrize("form", ["rank-{}.pkl", "rank-{}.json"])
def test_a_record_that_stands_twice_counts_once_and_is_told(tmp_path, form):
    training = ddp(8, 8)
    made = FlightEngine(training.groups, changed(training.programs, 3, 20, CpuStall(), cut=0)).run()
    twice(made, 1, 9, 10)
    twice(made, 2, -1, 0)
    twice(made, 5, 4, 4, state="scheduled", retired=False)
    twice(made, 6, 7, len(made.entries[6]), state="scheduled", retired=False)
    made.write(tmp_path, form=form)
    flight = analyse(find_dumps(tmp_path))
    assert [(one["kind"], one["ranks"]) for one in flight.findings] == [("cpu-stall", [3])]
    assert any("copies of records" in note and note.endswith("4") for note in flight.notes)


def exchanged(tables, views=None, world=4, without=(), folder=None):
    """Return who is blamed, and who suspected, after exchanges of these tables; `views`: the last one as single ranks see it."""
    programs = {rank: [] for rank in range(world)}
    for number, (table, lists) in enumerate(tables):
        for rank in range(world):
            seen = (views or {}).get(rank, table) if number == len(tables) - 1 else table
            sent, got = seen[rank], [row[rank] for row in seen]
            if not lists:
                sent, got = [sum(sent)], [sum(got)]
            programs[rank].append(
                GroupCall("all", "all_to_all", tuple((one,) for one in sent), tuple((one,) for one in got))
            )
    groups = {"all": PG("0", "default_pg", tuple(range(world)))}
    FlightEngine(groups, programs, broken=[("all", len(tables))]).run().write(folder, without=without)
    (finding,) = analyse(find_dumps(folder)).findings
    return finding["ranks"], finding["suspects"]


def table_of(amount=100, world=4, **other):
    """Return equal amounts, but for `fFtT`: from rank F to rank T."""
    table = [[amount] * world for _ in range(world)]
    for pair, more in other.items():
        table[int(pair[1])][int(pair[3])] += more
    return table


def test_who_exchanges_what_it_always_did_is_not_blamed_and_the_one_that_changed_is(tmp_path):
    usual = table_of(f1t2=40)
    assert exchanged([(usual, False)] * 5, {3: table_of(f1t2=40, f3t0=-20)}, folder=tmp_path / "less") == ([3], [])
    both = table_of(f3t0=-20, f0t3=-20)
    assert exchanged([(table_of(), False)] * 5, {3: both}, folder=tmp_path / "both") == ([3], [])


def test_lists_of_tensors_are_compared_pair_by_pair(tmp_path):
    usual = [(table_of(), True)] * 5
    assert exchanged(usual, {3: table_of(f3t0=-20)}, folder=tmp_path / "changed") == ([3], [])
    first = [(table_of(f1t2=7), True)]
    assert exchanged(first, {3: table_of(f1t2=7, f3t0=-20)}, folder=tmp_path / "pair") == ([], [0, 3])
    moved = {3: table_of(f1t2=7, f3t0=-20, f3t1=20)}
    assert exchanged(first, moved, folder=tmp_path / "sums agree") == ([3], [])


@pytest.mark.parametrize("form", ["nccl_trace_rank_{host}_{rank}", "{host}-{rank}.pkl", "{host}/rank_{rank}"])
def test_dumps_that_say_their_host_are_one_set_and_an_older_start_beside_them_is_not(tmp_path, form):
    training = ddp(8, 8)
    made = FlightEngine(training.groups, changed(training.programs, 2, 20, CpuStall(), cut=0)).run()
    for start, by in (("old-", -7_200_000_000_000), ("", 0)):
        for rank in range(8):
            path = tmp_path / form.format(host=f"{start}node0{rank // 4}", rank=rank)
            path.parent.mkdir(exist_ok=True)
            entries = [{**one, "time_created_ns": one["time_created_ns"] + by} for one in made.entries[rank]]
            write_dump(path, {**made.dump(rank), "entries": entries})
    flight = analyse(find_dumps(tmp_path))
    assert (flight.judged, [one["ranks"] for one in flight.findings]) == (8, [[2]])
    assert sum("4 dumps" in note and "old-" in note for note in flight.notes) == 2
    for path in [*tmp_path.glob("*node00*"), *tmp_path.glob("*node00*/*")]:
        if path.is_file() and "old-" not in str(path):
            path.unlink()
    flight = analyse(find_dumps(tmp_path))  # the older start's other host is no part of it
    assert (flight.judged, flight.bad) == (4, False)
