"""torch has two Flight Recorders: what both hold becomes one dump, and one word on how far each group is."""

from __future__ import annotations

import pickle
import types

import pytest

from cordee.client import recorders


def recorded(library, names, *, started=True):
    """Return a dump of a recorder with one call of each group."""
    entries = [
        {"process_group": (name, "a group"), "profiling_name": f"{library}:all_reduce", "collective_seq_id": 1}
        for name in names
        if started
    ]
    return {
        "version": "2.10",
        "entries": entries,
        "pg_config": {name: {"name": name, "desc": "a group", "ranks": "[0, 1]"} for name in names},
        "pg_status": {name: {"last_enqueued_collective": 1, "last_completed_collective": 0} for name in names},
    }


def dumping(dump):
    return lambda **_: pickle.dumps(dump)


@pytest.fixture
def torch_with(monkeypatch):
    def replace(**dumps):
        calls = {name: dumping(dump) for name, dump in dumps.items()}
        own = types.SimpleNamespace(_distributed_c10d=types.SimpleNamespace(**calls))
        monkeypatch.setitem(recorders.sys.modules, "torch", types.ModuleType("torch"))
        monkeypatch.setitem(recorders.sys.modules, "torch._C", own)

    return replace


def test_what_nccl_records_is_not_missed_where_the_other_recorder_has_nothing(torch_with):
    torch_with(
        _dump_nccl_trace=recorded("nccl", ["0"]), _dump_fr_trace={"entries": [], "pg_config": {}, "pg_status": {}}
    )
    assert pickle.loads(recorders.dump())["entries"][0]["profiling_name"] == "nccl:all_reduce"
    assert recorders.group_status() == {"0": {"last_enqueued_collective": 1, "last_completed_collective": 0}}


def test_a_group_that_both_record_is_told_twice(torch_with):
    torch_with(_dump_nccl_trace=recorded("nccl", ["0", "2"]), _dump_fr_trace=recorded("gloo", ["0", "1"]))
    dump = pickle.loads(recorders.dump())
    calls = [(entry["process_group"][0], entry["profiling_name"][:4]) for entry in dump["entries"]]
    assert calls == [("0", "nccl"), ("2", "nccl"), ("0 beside NCCL", "gloo"), ("1", "gloo")]
    names = {"0", "2", "0 beside NCCL", "1"}
    assert set(dump["pg_config"]) == set(dump["pg_status"]) == set(recorders.group_status()) == names
    assert dump["pg_config"]["0 beside NCCL"]["name"] == "0 beside NCCL"


def test_where_nothing_was_recorded_there_is_no_dump(torch_with):
    torch_with(_dump_fr_trace=recorded("gloo", ["0"], started=False))
    assert recorders.dump() == b""
