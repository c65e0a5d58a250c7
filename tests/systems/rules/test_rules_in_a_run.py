"""The site's rules are judged in every run: what they say is in the journal while it goes on, once, and replays to the same."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee as main
from cordee.faces.cli.follow import milestones
from cordee.faces.report.run_document import run_document
from cordee.job.submit.prepare import prepare
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

TRAIN = """\
import time, cordee
for step in range(200):
    cordee.log(step=step, loss=9.0)
    time.sleep(0.1)
    if step == 120:
        raise SystemExit(3)
"""
JOB = """\
name = "ruled"
run = "python train.py"
[need]
nodes = 2
[vet]
max_load = 1000.0
modules = []
[restart]
retries = 0
"""


def site(tmp_path, monkeypatch, path):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "local.toml").write_text(f'[rules]\nfiles = ["{path}"]\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(TRAIN)
    (job / "cordee.toml").write_text(JOB)
    return job


@pytest.mark.gate
def test_rules_of_the_site_tell_while_a_run_goes_on_what_a_replay_tells_after_it(tmp_path, monkeypatch, rules_file):
    high = {"id": "loss-high", "when": "{metric: loss, statistic: max, above: 5, over: 2s}", "action": "tell"}
    high |= {"example": "{metric: loss, value: 9}", "counterexample": "{metric: loss, value: 1}"}
    failed = {"id": "rank-failed", "when": "{event: attempt_ended, pattern: 'code.: 3'}", "action": "drain"}
    failed |= {"example": "{event: attempt_ended, text: 'code: 3'}", "counterexample": "{event: ended}"}
    failed["when"] = "{event: attempt_ended, pattern: 'code'}"
    path = rules_file(high, failed)
    job = site(tmp_path, monkeypatch, path)
    with LocalRun(job, tmp_path / "runs", reported=False) as run:
        run.wait(lambda state: any(one.rule == "loss-high" for one in state.findings))
        assert run.state.state == "running"
        shown = CliRunner().invoke(main, ["show", str(run.folder.root)])
        assert "Something is wrong: local-0, local-1, ranks 0, 1: max of loss over 2.0 s is 9, above 5" in shown.output
        watched = CliRunner().invoke(main, ["watch", str(run.folder.root), "--once"])
        assert "warn: Something is wrong: local-0, local-1, ranks 0, 1" in watched.output
        run.wait_end()
        document = run_document(run.folder, run.state)
    said = milestones(run.state)
    assert [text.rpartition("; ")[2] for text in said if text.startswith(("warn: ", "error: "))] == [
        "next: mend it"
    ] * 2
    reported = CliRunner().invoke(main, ["report", str(run.folder.root)])
    assert reported.output.count("    next: mend it") == 2
    found = {one["rule"]: one for one in document["findings"] if (one["evidence"] or {}).get("site_rule")}
    assert {rule: one["severity"] for rule, one in found.items()} == {"loss-high": "warn", "rank-failed": "error"}
    assert (found["loss-high"]["ranks"], found["loss-high"]["next"]) == ([0, 1], "mend it")
    assert len([one for one in document["findings"] if one["rule"] in found]) == 2
    replayed = CliRunner().invoke(main, ["rules", "run", str(path), str(run.folder.root), "--json"])
    (one,) = json.loads(replayed.stdout)["runs"]
    assert {(held["rule"], *held["ranks"]) for held in one["held"]} >= {("loss-high", 0), ("loss-high", 1)}
    assert {held["rule"] for held in one["held"]} == set(found)


def test_a_supervisor_that_follows_another_tells_nothing_twice(tmp_path, monkeypatch, rules_file):
    high = {"id": "loss-high", "when": "{metric: loss, above: 5, over: 2s}", "action": "tell"}
    high |= {"example": "{metric: loss, value: 9}", "counterexample": "{metric: loss, value: 1}"}
    job = site(tmp_path, monkeypatch, rules_file(high))
    with LocalRun(job, tmp_path / "runs", reported=False) as run:
        run.wait(lambda state: any(one.rule == "loss-high" for one in state.findings))
        before = run.state.epoch
        run.kill("supervisor")
        run.wait(lambda state: state.epoch > before)
        run.wait_end()
        told = [one.place()["ranks"] for one in run.state.findings if one.rule == "loss-high"]
    assert sorted(rank for ranks in told for rank in ranks) == [0, 1]


def test_a_site_file_that_is_wrong_stops_nobodys_job(tmp_path, monkeypatch, rules_file):
    path = rules_file({"when": "{finding: x, patern: y}"})
    job = site(tmp_path, monkeypatch, path)
    prepared = prepare(str(job), "local", {}, tmp_path / "runs")
    (finding,) = [one for one in prepared.findings if one.rule == "rules-not-judged"]
    assert (finding.severity, finding.file) == ("warn", str(path))
    assert prepared.plan is not None
    assert "rules" not in prepared.plan.step.systems
