"""The command `cordee flight`: what it prints of folders and of runs, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cordee.core.findings import Finding
from cordee.faces.cli import cordee as command
from cordee.runs.journal import client_journal
from support.flight.dumps import CpuStall, FlightEngine, MadeDumps, changed
from support.flight.faults import ddp
from support.made.runs import MadeRun, write_run


def hanging(rank: int) -> MadeDumps:
    training = ddp(8, 8)
    return FlightEngine(training.groups, changed(training.programs, rank, 20, CpuStall(), cut=0)).run()


def flight(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["flight", *arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run on two nodes whose second attempt hangs; the first one's dumps are there, too."""
    folder = write_run(tmp_path_factory.mktemp("runs"), MadeRun(8, 60))
    hanging(1).write(folder.root / "flight" / "attempt-0")
    hanging(6).write(folder.root / "flight" / "attempt-1", without=[2])
    finding = Finding("GPU 2 fell off the bus", "error", "hardware-xid", evidence={"node": "nid000001"})
    client_journal(folder.journal).append("finding", finding=finding.document())
    return folder.root


def test_a_culprit_is_exit_code_1_and_the_document_has_what_design_promises(tmp_path):
    hanging(3).write(tmp_path, form="nccl_trace_rank_{}")
    result = flight(str(tmp_path), "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["schema"] == "cordee.flight/1"
    assert document["missing_ranks"] == []
    (finding,) = document["findings"]
    assert {"kind", "ranks", "process_group", "sequence", "where", "text"} <= set(finding)
    assert finding["ranks"] == [3]


def test_the_text_says_who_where_and_what_next(tmp_path):
    hanging(3).write(tmp_path)
    text = flight(str(tmp_path)).stdout
    assert "8 dumps of 8 ranks; 7 ranks wait" in text
    assert "cpu-stall: rank 3 has not called all_reduce 18 in process group 0 (default_pg)" in text
    assert "where:    /home/ada/train.py:31 (train_step)" in text
    assert "next:     look at its Python stack" in text


def test_an_unknown_cause_and_no_hang_are_exit_code_0(tmp_path):
    hanging(3).write(tmp_path / "unknown", without=[3])
    result = flight(str(tmp_path / "unknown"))
    assert result.exit_code == 0
    assert "unknown" in result.stdout
    assert "no dump of rank 3" in result.stdout
    training = ddp(4, 4)
    FlightEngine(training.groups, training.programs).run().write(tmp_path / "well")
    result = flight(str(tmp_path / "well"))
    assert result.exit_code == 0
    assert "no hang is seen" in result.stdout


def test_of_a_run_the_newest_attempt_is_judged_with_node_mesh_and_hardware(run):
    result = flight(str(run), "--json")
    document = json.loads(result.stdout)
    (finding,) = document["findings"]
    assert (document["attempt"], finding["ranks"], document["missing_ranks"]) == (1, [6], [2])
    (place,) = finding["places"]
    assert (place["rank"], place["node"]) == (6, "nid000001")
    assert place["mesh"]
    assert place["hardware"] == ["GPU 2 fell off the bus"]
    text = flight(str(run)).stdout
    assert "on:       rank 6, node nid000001" in text
    assert "GPU 2 fell off the bus" in text


def test_another_attempt_is_judged_when_it_is_asked_for(run):
    assert json.loads(flight(str(run), "--json", "--attempt", "0").stdout)["findings"][0]["ranks"] == [1]
    assert json.loads(flight(str(run / "flight" / "attempt-0"), "--json").stdout)["findings"][0]["ranks"] == [1]
    result = flight(str(run), "--attempt", "7")
    assert result.exit_code != 0
    assert "no dumps of this attempt" in str(result.exception)


@pytest.mark.parametrize("names", [[], ["notes.txt", "README"]])
def test_a_folder_without_dumps_is_a_usage_error_that_says_where_dumps_lie(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("nothing")
    error = flight(str(tmp_path)).exception
    assert error is not None
    assert getattr(error, "exit_code", None) == 2
    assert "TORCH_FR_DUMP_TEMP_FILE" in str(error)


def test_a_folder_in_which_nothing_can_be_read_says_so(tmp_path):
    (tmp_path / "rank-0.pkl").write_bytes(b"")
    result = flight(str(tmp_path), "--json")
    document = json.loads(result.stdout)
    assert document["refused"][0]["why"] == "it is empty"
    assert document["missing_ranks"] == [0]
    assert result.exit_code == 2
    assert "nothing can be said" in flight(str(tmp_path)).stdout


def test_names_and_lines_of_dumps_reach_no_terminal_unclean(tmp_path):
    made = hanging(3)
    for entries in made.entries.values():
        for entry in entries:
            entry["frames"][1]["filename"] = "\x1b[2J/train.py"
    made.write(tmp_path)
    assert "\x1b" not in flight(str(tmp_path)).stdout
