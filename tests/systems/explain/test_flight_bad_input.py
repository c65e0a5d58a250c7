"""`cordee flight` on files that are no dumps, cut off or made to do harm: each is named with why, the rest is judged."""

from __future__ import annotations

import json
import os
import pickle
import struct

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from cordee.systems.explain.flight.views import flight_of_folder
from support.flight.dumps import CpuStall, FlightEngine, changed, write_dump
from support.flight.faults import ddp


@pytest.fixture
def folder(tmp_path):
    """Dumps of eight ranks, of which the fourth stands still; what tests put in their place is rank 7's."""
    training = ddp(8, 8)
    FlightEngine(training.groups, changed(training.programs, 3, 20, CpuStall(), cut=0)).run().write(tmp_path)
    return tmp_path


def judged_with(folder, data: bytes):
    (folder / "rank-7.pkl").write_bytes(data)
    flight = analyse(find_dumps(folder))
    assert [finding["ranks"] for finding in flight.findings] == [[3]]
    return flight


class Reduce:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def canaries(path) -> dict[str, bytes]:
    """Return pickles that would make a file, each in another way."""
    command = f"touch {path}"
    return {
        "reduce": pickle.dumps(Reduce(os.system, (command,))),
        "inside a dump": pickle.dumps({"entries": [Reduce(os.system, (command,))], "pg_config": {}}, protocol=4),
        "protocol 0": b"cos\nsystem\n(S'" + command.encode() + b"'\ntR.",
        "instance": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "object": b"(cos\nsystem\nS'" + command.encode() + b"'\no.",
        "builtins": pickle.dumps(Reduce(eval, (f"open({str(path)!r}, 'w')",))),
        "extension": b"\x80\x02\x82\x01(S'" + command.encode() + b"'\ntR.",
        "build": b"\x80\x02cos\nenviron\n}S'X'\nS'1'\nsb.",
        "persistent": b"Pos.system\n.",
    }


@pytest.mark.parametrize("way", list(canaries("")))
def test_nothing_in_a_pickle_is_executed(folder, tmp_path_factory, way):
    canary = tmp_path_factory.mktemp("canary") / "ran"
    flight = judged_with(folder, canaries(canary)[way])
    assert not canary.exists()
    assert len(flight.refused) == 1
    assert flight.missing == [7]


BOMBS = {
    "memo": b"\x80\x02N" + b"r" + struct.pack("<I", 2**31 - 1) + b".",
    "bytes": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "lists": b"\x80\x02(" + b"]" * 40_000_000 + b"t.",
    "depth": b"(" * 1_000_000 + b"t" * 1_000_000 + b".",
    "nested": b"\x80\x02" + b"]" + b"".join(b"q\x00(h\x00h\x00l" for _ in range(60)) + b".",
    "number": b"\x80\x02\x8b" + struct.pack("<i", 1 << 20) + b"\x7f" * (1 << 20) + b".",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_and_the_rest_is_judged(folder, bomb):
    assert len(judged_with(folder, BOMBS[bomb]).refused) == 1


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01", "cannot be read"),
        (b'{"entries": [', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"{" * 100_000, "cannot be read"),
        (pickle.dumps([1, 2]), "no Flight Recorder dump"),
        (pickle.dumps({"entries": 5}), "no Flight Recorder dump"),
        (pickle.dumps({"state_dict": {}}), "no Flight Recorder dump"),
    ],
)
def test_what_is_no_dump_is_named_with_the_reason(folder, what, why):
    (refused,) = judged_with(folder, what).refused
    assert refused["path"].endswith("rank-7.pkl")
    assert why in refused["why"]


def test_a_dump_that_is_cut_off_anywhere_is_refused(folder):
    whole = (folder / "rank-7.pkl").read_bytes()
    for length in range(1, len(whole), len(whole) // 40):
        assert len(judged_with(folder, whole[:length]).refused) == 1


def test_a_file_over_the_limit_is_not_read(folder):
    with (folder / "rank-7.pkl").open("wb") as file:
        file.truncate(1 << 33)
    assert len(analyse(find_dumps(folder)).refused) == 1


def test_entries_that_make_no_sense_are_counted_and_the_others_used(folder):
    dump = pickle.loads((folder / "rank-7.pkl").read_bytes())
    good = dump["entries"]
    odd = [
        None,
        7,
        {},
        {**good[0], "collective_seq_id": float("nan")},
        {**good[0], "input_sizes": [[float("nan")]]},
        {**good[0], "input_sizes": [[-1]]},
        {**good[0], "input_sizes": 3},
        {**good[0], "process_group": ["0", ["default_pg"]]},
        {**good[0], "profiling_name": "what is this"},
        {**good[0], "profiling_name": "nccl:send"},
        {**good[0], "time_created_ns": "now"},
        {**good[0], "collective_seq_id": 1 << 80},
    ]
    flight = judged_with(folder, pickle.dumps({**dump, "entries": [good[0], *odd, *good[1:]]}))
    assert flight.refused == []
    assert any(f"{len(odd)} entries could not be understood" in note for note in flight.notes)


def test_a_json_dump_with_nan_is_read_and_the_entry_left_out(folder):
    dump = pickle.loads((folder / "rank-7.pkl").read_bytes())
    dump["entries"][0]["collective_seq_id"] = float("nan")
    (folder / "rank-7.pkl").unlink()
    write_dump(folder / "rank-7.json", dump)
    assert "NaN" in (folder / "rank-7.json").read_text()
    flight = analyse(find_dumps(folder))
    assert [finding["ranks"] for finding in flight.findings] == [[3]]
    json.dumps(flight.document(), allow_nan=False)


def test_a_config_that_makes_no_sense_does_not_end_it(folder):
    dump = pickle.loads((folder / "rank-7.pkl").read_bytes())
    config = {
        0: None,
        "1": {"name": 4, "ranks": "[0]"},
        "2": {"name": "x", "ranks": ["0"]},
        "3": {"name": "y", "ranks": "?"},
    }
    judged_with(folder, pickle.dumps({**dump, "pg_config": {**dump["pg_config"], **config}}))


def test_a_second_form_is_taken_where_the_first_cannot_be_read(folder):
    dump = pickle.loads((folder / "rank-3.pkl").read_bytes())
    write_dump(folder / "rank-3.json", dump)
    (folder / "rank-3.pkl").write_bytes(b"\x80\x02")
    flight = analyse(find_dumps(folder))
    assert [finding["ranks"] for finding in flight.findings] == [[3]]


def matrix_of(folder):
    _, document = flight_of_folder(folder, None, matrix=True)
    return document["traffic"]


@pytest.mark.parametrize("way", ["reduce", "inside a dump", "protocol 0", "build"])
def test_the_matrix_executes_nothing_and_counts_a_hostile_dump_as_missing(folder, tmp_path_factory, way):
    canary = tmp_path_factory.mktemp("canary") / "ran"
    (folder / "rank-7.pkl").write_bytes(canaries(canary)[way])
    traffic = matrix_of(folder)
    assert not canary.exists()
    assert (traffic["missing"], traffic["cells"][7]["missing"]) == (1, 1)
    (dimension,) = traffic["dimensions"]
    # What rank 7 sends is known from rank 0, which received as much.
    assert {(sender, receiver) for sender, receiver, _ in dimension["sent"]} == {(at, (at + 1) % 8) for at in range(8)}


def test_numbers_that_are_none_are_counted_and_stay_out_of_the_matrix(folder):
    dump = pickle.loads((folder / "rank-7.pkl").read_bytes())
    dump["entries"][-1]["time_created_ns"] = float("nan")
    dump["entries"][-2]["input_sizes"] = [[float("inf")]]
    (folder / "rank-7.pkl").unlink()
    write_dump(folder / "rank-7.json", dump)
    traffic = matrix_of(folder)
    assert traffic["uncounted"]["entries that could not be understood"] >= 1
    json.dumps(traffic, allow_nan=False)


def test_sizes_beyond_all_bounds_do_not_get_into_the_matrix(folder):
    dump = pickle.loads((folder / "rank-7.pkl").read_bytes())
    for entry in dump["entries"]:
        entry["input_sizes"] = [[1 << 61, 1 << 61, 1 << 61]]
    dump["entries"][0]["input_sizes"] = [[-4]]
    write_dump(folder / "rank-7.pkl", dump)
    traffic = matrix_of(folder)
    ended = sum(entry["state"] == "completed" for entry in dump["entries"])
    assert traffic["uncounted"]["entries that could not be understood"] == ended
    json.dumps(traffic, allow_nan=False)


def test_dumps_of_two_runs_mixed_are_not_added_up(folder):
    training = ddp(4, 4)
    made = FlightEngine(training.groups, training.programs).run()
    write_dump(folder / "rank-2.pkl", made.dump(2))
    traffic = matrix_of(folder)
    assert (traffic["ranks"], traffic["missing"], traffic["cells"][2]["missing"]) == (8, 1, 1)
    assert len(traffic["dimensions"]) == 1


def test_rings_that_were_overwritten_meet_by_number(folder):
    whole = matrix_of(folder)["dimensions"][0]
    dump = pickle.loads((folder / "rank-5.pkl").read_bytes())
    dump["entries"] = dump["entries"][6:]
    write_dump(folder / "rank-5.pkl", dump)
    cut = matrix_of(folder)["dimensions"][0]
    assert cut["calls"] == whole["calls"] - 6
    assert {(one, other): amount for one, other, amount in cut["sent"] if one != 5} == {
        (one, other): amount for one, other, amount in whole["sent"] if one != 5
    }
