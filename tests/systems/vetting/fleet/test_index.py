"""The history is read though torn, and its index is derived, shared and small."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.errors import UsageError
from cordee.systems.vetting.fleet.baseline import fleet_baseline
from cordee.systems.vetting.fleet.history import history_files, parse_vetting, read_vetting
from cordee.systems.vetting.fleet.index import FleetIndex
from cordee.systems.vetting.fleet.retention import COLUMNS, as_csv, as_json_lines, export_rows, old_files, remove_files
from cordee.systems.vetting.fleet.views import list_vettings, node_history
from cordee.systems.vetting.node.judge.history import encode, lines_of

from .conftest import broken, clean, result, slow, vetting

DAY = 86400


def test_a_torn_line_costs_only_its_node(folder, remember):
    remember(slow("n1", "1"))
    (path,) = history_files(folder)
    path.write_bytes(path.read_bytes()[:-40])
    found = read_vetting(path)
    assert [node["node"] for node in found.nodes] == ["n1", "p1"]
    assert found.torn == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\n", b'{"schema": "cordee.history/9"}\n', b"\xff\xfe", b"null",
                                     b'{"schema":"cordee.history/1","id":"x","at":1,"verdict":"abort"}'])  # fmt: skip
def test_a_foreign_file_is_no_vetting(folder, remember, content):
    remember(slow("n1", "1"))
    (path,) = history_files(folder)
    (path.parent / "foreign.jsonl").write_bytes(content)
    index = FleetIndex(folder)
    assert index.refresh() == 2
    assert len(list_vettings(index, 0)) == 1


@settings(max_examples=200)
@given(data=st.data())
def test_a_damaged_file_is_read_in_part_or_refused(data):
    content = bytearray(encode(lines_of(slow("n1", "1"))))
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content)))
        content[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        found = parse_vetting(bytes(content))
    except ValueError:
        return
    assert found.header["schema"] == "cordee.history/1"


def test_an_index_takes_in_only_what_is_new(folder, remember):
    index = FleetIndex(folder)
    assert index.refresh() == 0
    remember(slow("n1", "1"), slow("n1", "2"))
    assert index.refresh() == 2
    assert index.refresh() == 0
    remember(broken("n2", "3"))
    assert index.refresh() == 1
    assert [row["wanting"] for row in list_vettings(index, 0)] == [["n1"], ["n1"], ["n2"]]


def test_a_file_that_is_gone_is_forgotten(folder, remember):
    remember(slow("n1", "1"), slow("n1", "2"))
    index = FleetIndex(folder)
    index.refresh()
    next(history_files(folder)).unlink()
    index.refresh()
    assert len(list_vettings(index, 0)) == 1
    assert len(node_history(index, "n1", 0)) == 1


def test_a_vetting_that_lies_there_twice_counts_once(folder, remember):
    remember(slow("n1", "1"))
    (path,) = history_files(folder)
    (path.parent / "copy.jsonl").write_bytes(path.read_bytes())
    index = FleetIndex(folder)
    index.refresh()
    assert len(list_vettings(index, 0)) == 1
    path.unlink()
    index.refresh()
    assert len(node_history(index, "n1", 0)) == 1


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000])
def test_an_index_that_is_damaged_or_old_is_made_anew(folder, remember, damage):
    remember(slow("n1", "1"))
    index = FleetIndex(folder)
    index.refresh()
    index.path.write_bytes(damage)
    for suffix in ("-wal", "-shm"):
        (index.path.parent / (index.path.name + suffix)).unlink(missing_ok=True)
    index.refresh()
    assert len(list_vettings(index, 0)) == 1


def test_several_processes_may_refresh_at_once(folder, remember):
    remember(*[slow(f"n{number}", str(number)) for number in range(40)])
    program = (
        "import sys; from cordee.systems.vetting.fleet.index import FleetIndex; from cordee.systems.vetting.fleet.views import list_vettings\n"
        f"index = FleetIndex({str(folder)!r}); index.refresh(); print(len(list_vettings(index, 0)))"
    )
    children = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [child.communicate()[0].strip() for child in children] == ["40"] * 3


def test_the_history_of_a_node_shows_what_was_not_well_or_one_checks_values(folder, remember):
    remember(clean("n1", "1", checks=("gpu.gemm",), days_ago=0.1), slow("n1", "2"))
    index = FleetIndex(folder)
    index.refresh()
    assert [[each["rule"] for each in row["results"]] for row in node_history(index, "n1", 0)] == [[], ["pair.slow"]]
    (row,) = node_history(index, "n1", 0, ["gpu.gemm"])
    assert row["results"][0]["value"] == 22e9
    assert node_history(index, "n1", time.time() + 1) == []
    assert node_history(index, "none", 0) == []


def test_old_vettings_are_found_and_removed(folder, remember):
    remember(slow("n1", "1", days_ago=100), slow("n1", "2", days_ago=91), slow("n1", "3", days_ago=89), slow("n1", "4"))
    old = old_files(folder, 90 * DAY)
    assert len(old) == 2
    remove_files(old)
    index = FleetIndex(folder)
    index.refresh()
    assert [row["job"] for row in list_vettings(index, 0)] == ["3", "4"]
    assert len(list(folder.iterdir())) == 2


def test_results_are_exported_as_rows(folder, remember):
    bad = vetting("=cmd()", days_ago=0.1, nodes={"n1": ("bad", [result("host.memory", "fail", '=SUM("x"),\n2')])})
    remember(bad, slow("n2", "2"))
    index = FleetIndex(folder)
    index.refresh()
    rows = list(csv.DictReader(io.StringIO("".join(as_csv(export_rows(index, 0))))))
    assert list(rows[0]) == list(COLUMNS)
    assert (rows[0]["job"], rows[0]["evidence"], rows[0]["rule"]) == ("'=cmd()", '\'=SUM("x"),\n2', "memory.low")
    lines = [json.loads(line) for line in as_json_lines(export_rows(index, 0))]
    assert len(lines) == len(rows) == 4
    assert lines[0]["job"] == "=cmd()"


def gemm(node, value, model="H100", job="1"):
    low = [{"kind": "low", "of": "value", "ratio": 0.93}]
    nodes = {node: ("healthy", [result("gpu.gemm", value=value, unit="TFLOP/s", compare=low, facts={"model": model})])}
    return vetting(job, nodes=nodes)


def test_the_baseline_is_the_75th_percentile_of_nodes(folder, remember):
    remember(*[gemm(f"n{number}", 100.0 + number) for number in range(5)], *[gemm("n0", 100.0)] * 20)
    index = FleetIndex(folder)
    index.refresh()
    found, left_out = fleet_baseline(index, 0)
    assert found["gpu.gemm"] == {"value": 103.0, "n": 5, "median": 102.0, "unit": "TFLOP/s", "model": "H100"}
    assert left_out == []


def test_a_baseline_never_mixes_gpu_models_or_rests_on_few_nodes(folder, remember):
    remember(
        *[gemm(f"n{number}", 100.0) for number in range(5)], *[gemm(f"a{number}", 50.0, "A100") for number in range(3)]
    )
    index = FleetIndex(folder)
    index.refresh()
    found, left_out = fleet_baseline(index, 0)
    assert found == {}
    assert "choose one with --model" in left_out[0]
    assert fleet_baseline(index, 0, "H100")[0]["gpu.gemm"]["value"] == 100.0
    assert "3 of at least 4 nodes" in fleet_baseline(index, 0, "A100")[1][0]
    with pytest.raises(UsageError, match="no result is of this GPU model"):
        fleet_baseline(index, 0, "B200")
