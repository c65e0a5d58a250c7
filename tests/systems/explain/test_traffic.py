"""Who sent how much to whom and who waited for whom, from dumps: bytes by assumed algorithm, dimensions, waits, what is not known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee as command
from cordee.systems.explain.flight.traffic import MOST_CELLS, Traffic, cells_of
from cordee.systems.explain.flight.volumes import bytes_of, volume_of
from support.flight.dumps import PG, BatchCall, FlightEngine, GroupCall, MadeDumps, PeerCall, Program
from support.flight.faults import three_dimensional

NS = 1_000_000_000
WORLD = PG("0", "default_pg", (0, 1, 2, 3))


def carried(program: Program, world: int = 4, **groups: PG) -> MadeDumps:
    """The dumps of ranks that all do the same."""
    named = {"world": WORLD._replace(ranks=tuple(range(world))), **groups}
    return FlightEngine(named, {rank: list(program) for rank in range(world)}).run()


def told(
    made: MadeDumps,
    *,
    without: Iterable[int] = (),
    places: Mapping[int, Mapping[str, int]] | None = None,
    nodes: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    there = sorted(set(made.entries) - set(without))
    traffic = Traffic(len(made.entries), there, places or {}, nodes or {}, {})
    for rank in there:
        traffic.add(rank, made.dump(rank))
    return traffic.document()


def only(document: dict[str, Any]) -> dict[str, Any]:
    (dimension,) = document["dimensions"]
    return dict(dimension)


def test_an_all_reduce_goes_round_a_ring():
    found = only(told(carried([GroupCall("world", "all_reduce", ((250,),), ((250,),), "Float")])))
    assert (found["name"], found["calls"], found["groups"]) == ("all ranks", 4, 1)
    assert found["sent"] == [[0, 1, 1500], [1, 2, 1500], [2, 3, 1500], [3, 0, 1500]]
    assert found["bytes"] == 6000


@pytest.mark.parametrize(
    ("op", "inputs", "size", "sent", "each"),
    [
        ("_all_gather_base", (100,), 4, 300, ()),
        ("_reduce_scatter_base", (400,), 4, 300, ()),
        ("broadcast", (400,), 4, 300, ()),
        ("all_to_all", (10, 20, 30, 40), 4, 0, (10, 20, 30, 40)),
        ("all_to_all_single", (400,), 4, 0, (100, 100, 100, 100)),
        ("scatter", (), 4, 0, (0, 0, 0, 0)),
        ("all_reduce", (400,), 1, 0, ()),
    ],
)
def test_each_collective_has_an_algorithm(op, inputs, size, sent, each):
    assert volume_of(op, inputs, size) == (sent, each)


def test_who_receives_a_gather_is_in_no_dump_of_who_sends():
    assert volume_of("gather", (400,), 4) is None
    made = carried([GroupCall("world", "all_reduce")])
    for (entry,) in made.entries.values():
        entry["profiling_name"] = "nccl:gather"
    document = told(made)
    assert (document["calls"], document["uncounted"]) == (0, {"gather: its dump does not say who sends what": 4})


def test_types_have_their_bytes_and_others_are_not_guessed():
    assert bytes_of([[2, 3], []], ["BFloat16", "Double"]) == (12, 8)
    assert bytes_of([[5], [5]], ["Float8_e4m3fn"]) == (5, 5)
    assert bytes_of([[5]], ["QInt8"]) is bytes_of([[5]], []) is None
    document = told(carried([GroupCall("world", "all_reduce", dtype="Opaque")]))
    assert (document["calls"], sum(document["uncounted"].values())) == (0, 4)


def test_a_transfer_is_counted_once_by_either_of_its_ranks():
    programs: dict[int, Program] = {
        0: [PeerCall("world", "send", 1, (100,), "Half")],
        1: [PeerCall("world", "recv", 0, (100,), "Half")],
    }
    made = FlightEngine({"world": WORLD._replace(ranks=(0, 1))}, programs).run()
    for missing in ((), (0,), (1,)):
        found = only(told(made, without=missing))
        assert (found["name"], found["sent"], found["bytes"]) == ("transfers", [[0, 1, 200]], 200)


def test_parts_of_a_batch_have_ended_when_the_batch_has():
    parts = (GroupCall("world", "all_reduce", ((10,),), ((10,),)), GroupCall("world", "all_reduce", ((30,),), ((30,),)))
    made = carried([BatchCall("world", parts)])
    for entries in made.entries.values():
        for entry in entries:
            entry["state"] = "completed" if entry["profiling_name"].endswith("coalesced") else "scheduled"
    assert only(told(made))["bytes"] == 4 * 1.5 * 160


def test_calls_that_have_not_ended_have_moved_nothing_that_is_known():
    programs: dict[int, Program] = {rank: [GroupCall("world", "all_reduce")] for rank in range(4)}
    programs[2] = []
    document = told(FlightEngine({"world": WORLD}, programs).run())
    assert (document["calls"], document["first"]) == (0, None)
    assert document["uncounted"] == {"calls that have not ended": 3}


def test_dimensions_are_those_in_which_ranks_of_a_group_differ():
    training = three_dimensional(2, 2, 4, 2)
    made = FlightEngine(training.groups, training.programs).run()
    places = {rank: {"tp": rank % 4, "dp": rank // 4 % 2, "pp": rank // 8} for rank in range(16)}
    named = {one["name"]: one for one in told(made, places=places)["dimensions"]}
    assert set(named) == {"tp", "dp", "pp", "all ranks"}
    assert (named["tp"]["groups"], named["tp"]["least_ranks"], named["tp"]["most_ranks"]) == (4, 4, 4)
    assert all(sender // 4 == receiver // 4 for sender, receiver, _ in named["tp"]["sent"])
    assert all(abs(sender - receiver) == 4 for sender, receiver, _ in named["dp"]["sent"])
    assert all(abs(sender - receiver) == 8 for sender, receiver, _ in named["pp"]["sent"])
    assert {one["name"] for one in told(made)["dimensions"]} == {"tensor", "data", "pipeline", "all ranks"}


def test_experts_have_a_numbering_of_their_own():
    places = {rank: {"dp": rank, "ep": rank % 2, "tp": 0} for rank in range(4)}
    group = [GroupCall("pair", "all_reduce")]
    for desc, name in (("mesh_dp", "dp"), ("expert_parallel", "ep")):
        programs: dict[int, Program] = {0: group, 1: group, 2: [], 3: []}
        made = FlightEngine({"pair": PG("7", desc, (0, 1))}, programs).run()
        assert only(told(made, places=places))["name"] == name


def waiting(made: MadeDumps, late: int, by_s: float, clocks: Mapping[int, float] | None = None) -> MadeDumps:
    """The same, where a rank makes every call so much later, calls end on all ranks at once, and clocks are ahead by so much."""
    for rank, entries in made.entries.items():
        ahead = int((clocks or {}).get(rank, 0.0) * NS)
        for number, entry in enumerate(entries):
            called = 1_795_000_000 * NS + number * NS
            entry["time_created_ns"] = called + ahead + (int(by_s * NS) if rank == late else 0)
            entry["time_discovered_completed_ns"] = called + ahead + NS // 2
    return made


def test_all_wait_for_the_last():
    made = waiting(carried([GroupCall("world", "all_reduce")] * 5), 2, 0.03)
    found = only(told(made))
    assert found["waited"] == [[0, 2, 0.15], [1, 2, 0.15], [3, 2, 0.15]]
    assert found["wait_s"] == pytest.approx(0.45)


def test_clocks_that_are_apart_are_set_right_by_when_calls_ended():
    made = waiting(carried([GroupCall("world", "all_reduce")] * 5), 2, 0.03, {1: 7.5, 3: -2.0})
    document = told(made)
    assert only(document)["waited"] == [[0, 2, 0.15], [1, 2, 0.15], [3, 2, 0.15]]
    assert document["clocks"] == {"1": 7.5, "3": -2.0}


def test_a_rank_whose_clock_is_a_minute_apart_has_no_waits():
    made = waiting(carried([GroupCall("world", "all_reduce")] * 5), 2, 0.03)
    traffic = Traffic(4, range(4), {}, {}, {}, apart=[2])
    for rank in range(4):
        traffic.add(rank, made.dump(rank))
    document = traffic.document()
    assert (only(document)["waited"], document["without_waits"]) == ([], [2])


def test_of_a_rank_without_a_dump_what_others_received_is_known_and_no_more():
    document = told(carried([GroupCall("world", "all_reduce", ((250,),), ((250,),))]), without=[1, 2])
    assert only(document)["sent"] == [[0, 1, 1500], [2, 3, 1500], [3, 0, 1500]]
    assert (document["missing"], [cell["missing"] for cell in document["cells"]]) == (2, [0, 1, 1, 0])


def test_many_ranks_are_added_up_by_node_or_in_a_row():
    assert [cell.label for cell in cells_of(3, {})[1]] == ["rank 0", "rank 1", "rank 2"]
    by, cells = cells_of(1024, {rank: f"nid{rank // 8:03d}" for rank in range(1024)})
    assert (by, len(cells), cells[1].label, cells[1].ranks[0]) == ("node", 128, "nid001", 8)
    by, cells = cells_of(10_752, {rank: f"nid{rank // 4:04d}" for rank in range(10_752)})
    assert (by, len(cells), cells[1].label) == ("nodes", 245, "nid0011 to nid0021")
    by, cells = cells_of(10_752, {rank: f"nid{rank // 4:04d}" for rank in range(10_000)})
    assert (by, len(cells), cells[0].label) == ("ranks", MOST_CELLS, "ranks 0-41")
    assert sum(len(cell.ranks) for cell in cells) == 10_752


def test_what_is_added_up_by_node_is_as_much_as_by_rank():
    made = carried([GroupCall("world", "all_reduce", ((600,),), ((600,),))], world=600)
    found = told(made, nodes={rank: f"n{rank // 4}" for rank in range(600)})
    assert (found["by"], len(found["cells"]), found["cells"][0]["ranks"]) == ("node", 150, "0-3")
    assert only(found)["bytes"] == pytest.approx(600 * 2 * 599 / 600 * 2400)
    assert only(found)["sent"][0] == [0, 0, round(3 * 2 * 599 / 600 * 2400)]


def test_entries_that_make_no_sense_are_counted_as_such():
    made = carried([GroupCall("world", "all_reduce")] * 2)
    good = made.entries[0][0]
    made.entries[0] += [
        {},
        {**good, "process_group": 3},
        {**good, "time_created_ns": float("nan")},
        {**good, "input_sizes": [["x"]]},
        {**good, "profiling_name": "nccl:send 0->99", "p2p_seq_id": 1},
        "text",
    ]
    document = told(made)
    assert document["uncounted"] == {"entries that could not be understood": 6}
    assert document["calls"] == 8


def test_the_command_prints_sums_and_json_has_the_matrices(tmp_path):
    waiting(carried([GroupCall("world", "all_reduce", ((250,),), ((250,),))] * 3), 2, 0.03).write(tmp_path)
    text = CliRunner().invoke(command, ["flight", str(tmp_path), "--matrix"])
    assert text.exit_code == 0, text.output
    assert "all ranks: 1 of 4 ranks, 12 calls, 18 kB, waits of 0.27 s in sum" in text.stdout
    assert "waited for:  rank 2, 0.27 s in sum by 3 others" in text.stdout
    document = json.loads(CliRunner().invoke(command, ["flight", str(tmp_path), "--matrix", "--json"]).stdout)
    assert document["findings"] == []
    assert document["traffic"]["dimensions"][0]["sent"][0] == [0, 1, 4500]
    assert "traffic" not in json.loads(CliRunner().invoke(command, ["flight", str(tmp_path), "--json"]).stdout)


def test_a_folder_without_a_readable_dump_has_no_matrix(tmp_path):
    Path(tmp_path / "rank-0.pkl").write_bytes(b"nothing")
    document = json.loads(CliRunner().invoke(command, ["flight", str(tmp_path), "--matrix", "--json"]).stdout)
    assert (document["traffic"], document["dumps"]) == (None, 0)
