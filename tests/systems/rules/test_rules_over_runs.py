"""Rules on runs that are there: replayed one by one, and counted over all of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee as main
from cordee.runs.journal import JournalWriter
from cordee.systems.rules import run_findings
from cordee.systems.rules.catalogue import BUILT_IN, resolved_rules
from cordee.systems.rules.counted import counted_findings
from cordee.systems.rules.views import places_again
from support.made.runs import MadeRun, write_run

DAY_S = 86400.0


@pytest.fixture
def builtin() -> list:
    return resolved_rules([BUILT_IN], built_in=False)


def again(tmp_path, rules) -> list[tuple[str, str, list[str]]]:
    places = places_again([tmp_path / "runs"], rules)
    return [(one["kind"], one["name"], [run["run"][-12:-6] for run in one["runs"]]) for one in places]


def test_a_node_in_the_findings_of_three_runs_is_found_with_these_runs(tmp_path, make_run, builtin):
    for number, rule in enumerate(("hardware-xid", "hang-gil", "straggler-host"), start=1):
        make_run(number, (rule, ["n1"]), (rule, ["n2"] if number == 1 else ["n3"]))
    make_run(4, ("code-changed", ["n3"]), ("hang-gil", ["n0", "n1", "n2", "n3"]))
    assert again(tmp_path, builtin) == [("node", "n1", ["000001", "000002", "000003"])]


def test_runs_that_are_too_far_apart_or_of_one_machine_do_not_count(tmp_path, make_run, builtin):
    for number in range(1, 4):
        make_run(number, ("hardware-xid", ["n1"]), at=number * 20 * DAY_S)
        make_run(number + 10, ("hardware-xid", ["local-0"]), backend="local", name="desk")
    assert again(tmp_path, builtin) == []


def test_a_switch_is_found_where_none_of_its_nodes_alone_explains_it(tmp_path, make_run, builtin, monkeypatch):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "alps.toml").write_text('[switches]\nleaf1 = "n[0-3]"\nleaf2 = "n[4-7]"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    for number, node in enumerate(("n1", "n2", "n1"), start=1):
        make_run(number, ("hardware-fabric", [node]))
    assert again(tmp_path, builtin) == [("switch", "leaf1", ["000001", "000002", "000003"])]
    make_run(4, ("hardware-fabric", ["n1"]))
    assert {(kind, name) for kind, name, _ in again(tmp_path, builtin)} == {("node", "n1")}


def test_a_run_that_has_not_changed_is_not_read_again(tmp_path, make_run, builtin, monkeypatch):
    folders = [make_run(number, ("hardware-xid", ["n1"])) for number in range(1, 4)]
    before = again(tmp_path, builtin)
    read = []
    original = run_findings._read
    monkeypatch.setattr(run_findings, "_read", lambda folder: read.append(folder.id) or original(folder))
    assert again(tmp_path, builtin) == before
    assert read == []
    JournalWriter(folders[0].journal, "supervisor-2", 2).append("supervisor_started", segment=1)
    again(tmp_path, builtin)
    assert read == [folders[0].id]


@pytest.mark.parametrize("damage", ["", "[]", '{"schema": "cordee.run-findings/1", "runs": {"a": 3}}'])
def test_a_damaged_cache_is_made_anew(tmp_path, make_run, builtin, damage):
    for number in range(1, 4):
        make_run(number, ("hardware-xid", ["n1"]))
    run_findings.kept_file(tmp_path / "runs").write_text(damage)
    assert len(again(tmp_path, builtin)) == 1


def test_what_counts_over_runs_is_told_in_the_run_that_goes_on_once(tmp_path, make_run):
    first = make_run(1, ("hardware-xid", ["n1"]))
    make_run(2, ("hardware-xid", ["n1"]))
    folder = make_run(3, ("hardware-xid", ["n1"]))
    (finding,) = counted_findings(folder)
    assert (finding.rule, finding.severity, finding.place()["nodes"]) == ("node-again", "warn", ["n1"])
    assert first.id in finding.text
    JournalWriter(folder.journal, "supervisor-2", 2).append("finding", finding=finding.document())
    assert counted_findings(folder) == []


def test_the_command_says_which_rule_holds_in_which_run_and_over_runs(tmp_path, make_run, rules_file):
    for number in range(1, 4):
        make_run(number, ("hardware-xid", ["n1"]))
    path = rules_file({}, {"id": "bad-gpu", "when": "{finding: site-xid, runs: 3}", "action": "drain"})
    path.write_text(
        path.read_text().replace("example: {finding: hardware-xid", "example: {runs: 3, finding: site-xid", 2)
    )
    path.write_text(
        path.read_text().replace("example: {runs: 3, finding: site-xid", "example: {finding: hardware-xid", 1)
    )
    arguments = ["rules", "run", str(path), "--all", "--runs", str(tmp_path / "runs"), "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert document["judged"] == 3
    assert [(run["held"][0]["rule"], run["held"][0]["nodes"]) for run in document["runs"]] == [("site-xid", ["n1"])] * 3
    assert {(place["rule"], place["name"]) for place in document["places"]} == {("bad-gpu", "n1"), ("node-again", "n1")}
    told = CliRunner().invoke(main, arguments[:-1])
    assert "4 rules on 3 runs: 3 places in runs, 2 over runs" in told.output


def test_rules_run_lists_the_places(tmp_path, make_run):
    for number in range(1, 4):
        make_run(number, ("hardware-xid", ["n1"]))
    done = CliRunner().invoke(main, ["rules", "run", "--all", "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    assert "node n1: 3 runs  [node-again: ticket]" in done.output


def test_a_run_that_cannot_be_read_is_named_and_stops_nothing(tmp_path, make_run, rules_file):
    make_run(1, ("hardware-xid", ["n1"]))
    broken = make_run(2, ("hardware-xid", ["n1"]))
    (broken.journal / "supervisor-1.jsonl").unlink()
    (broken.journal / "supervisor-1.jsonl").symlink_to("/etc/passwd")
    arguments = ["rules", "run", str(rules_file({})), "--all", "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "not judged: cannot read the journal" in done.output


@pytest.mark.parametrize("seal", [True, False])
def test_windows_of_metrics_hold_where_they_did_whether_samples_are_sealed_or_not(tmp_path, rules_file, seal):
    folder = write_run(tmp_path / "runs", MadeRun(gpus=4, per_node=2, seconds=130), seal=seal)
    when = "{metric: memory_rss_bytes, above: 0, over: 20s, rank: 1}"
    examples = {"example": "{metric: memory_rss_bytes, value: 1, rank: 1}", "counterexample": OTHER_RANK}
    path = rules_file({"when": when, **examples})
    done = CliRunner().invoke(main, ["rules", "run", str(path), str(folder.root), "--json"])
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    assert [one["ranks"] for one in run["held"]] == [[1]]
    assert 5 <= run["held"][0]["times"] <= 8


OTHER_RANK = "{metric: memory_rss_bytes, value: 1, rank: 2}"


def test_a_metric_that_was_not_measured_is_unknown_and_not_well(tmp_path, make_run, rules_file):
    folder = make_run(1)
    examples = {"example": "{metric: loss, value: 9}", "counterexample": "{metric: loss, value: 1}"}
    path = rules_file({"when": "{metric: loss, above: 5}", **examples})
    done = CliRunner().invoke(main, ["rules", "run", str(path), str(folder.root)])
    assert "not judged: site-xid: loss was not measured" in done.output
