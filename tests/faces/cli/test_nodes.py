"""`cordee nodes`, as people and scripts call it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.judge.record import write

Call = Callable[..., subprocess.CompletedProcess[str]]
RULE = {"id": "pair.slow", "kind": "soft", "scope": "node", "action": "exclude"}


def vetting(node: str, job: str, status: str = "fail", **more: Any) -> dict[str, Any]:
    bad = {"check": "pair.bandwidth", "status": status, "value": 11e9, "unit": "bytes/s", "evidence": "slow", **more}
    if status == "fail":
        bad["rule"] = RULE
    nodes = [
        {"node": node, "verdict": "bad" if status == "fail" else "healthy", "results": [bad]},
        {"node": "p1", "verdict": "healthy", "results": []},
        {"node": "p2", "verdict": "healthy", "results": []},
    ]
    at = time.time() - 100 + int(job)
    return {"job": job, "at": at, "protocol": "training", "verdict": "exclude", "user": "ada", "nodes": nodes}


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history in which n1 was slow in two jobs and n2 in one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "history"
    monkeypatch.setenv("CORDEE_HISTORY", str(folder))
    for document in (vetting("n1", "1"), vetting("n2", "2"), vetting("n1", "3"), vetting("n3", "4", "pass")):
        write(document, {"folder": str(folder)})
    return folder


@pytest.fixture
def call(history: Path) -> Call:
    """Runs `cordee nodes`."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "cordee.faces.cli", "nodes", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    return call


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_history_is_listed(call):
    said = call("history").stdout.splitlines()
    assert len(said) == 4
    assert "not well: n1" in said[0]
    vettings = document(call("history", "--json"))["vettings"]
    assert [row["wanting"] for row in vettings] == [["n1"], ["n2"], ["n1"], []]


def test_the_history_of_a_node_is_shown(call):
    said = call("history", "n1").stdout
    assert said.count("pair.bandwidth 1.1e+10 bytes/s fail [pair.slow]: slow") == 2
    (row,) = document(call("history", "n3", "--check", "pair.bandwidth", "--json"))["vettings"]
    assert row["results"][0]["value"] == 11e9


def test_offenders_are_ranked_with_their_evidence(call):
    said = call("offenders").stdout.splitlines()
    assert said[1].split()[:4] == ["n1", "soft", "yes", "2"]
    assert next(line for line in said if line.startswith("n2")).split()[2] == "no"
    assert any("pair.slow (1 of 2 jobs)" in line for line in said)
    assert [each["node"] for each in document(call("offenders", "--json"))["offenders"]] == ["n1", "n2"]


def test_what_a_terminal_would_act_on_is_not_shown(call, history):
    write(vetting("n9", "9", evidence="\x1b[2Jgone\nn1 is fine"), {"folder": str(history)})
    for words in (("offenders",), ("history", "n9")):
        said = call(*words).stdout
        assert "\x1b" not in said
        assert "gone n1 is fine" in said


def test_results_are_exported(call, tmp_path):
    assert call("export").stdout.startswith("at,cluster,job,")
    assert len(call("export", "--format", "jsonl").stdout.splitlines()) == 4
    target = str(tmp_path / "rows.csv")
    assert document(call("export", "-o", target, "--json"))["rows"] == 4
    assert call("export", "--json").returncode == 2


def test_old_vettings_are_pruned_only_when_that_is_meant(call, history):
    write({**vetting("n1", "0"), "at": "2020-01-01T00:00:00Z"}, {"folder": str(history)})
    assert "would remove 1 vettings" in call("prune", "--keep", "90d").stdout
    assert (history / "2020-01-01").exists()
    assert len(document(call("prune", "--keep", "90d", "--yes", "--json"))["files"]) == 1
    assert not (history / "2020-01-01").exists()
    assert call("prune", "--keep", "1h").returncode == 2


def test_a_baseline_is_what_a_profile_takes(call, history, tmp_path):
    from cordee.systems.vetting.protocol.site import read_baseline

    for number in range(4):
        write(vetting(f"m{number}", str(number), "pass", value=20e9 + number), {"folder": str(history)})
    done = call("baseline", "--json")
    (tmp_path / "baseline.json").write_text(done.stdout)
    assert read_baseline(tmp_path / "baseline.json")["pair.bandwidth"] == {"value": 20e9 + 2, "n": 5}


def test_a_sites_rules_are_put_on_trial(call, tmp_path):
    assert len(document(call("rules", "--json"))["rules"]) > 70
    example = "{check: gpu.temperature, status: fail, evidence: hot}"
    rule = (
        "version: 1\nrules:\n- id: mine\n  text: Mine.\n  when: {check: gpu.temperature, status: warn}\n  scope: node\n"
        f"  action: none\n  kind: soft\n  source: here\n  example: {example}\n  counterexample: {example}\n"
    )
    (tmp_path / "mine.yaml").write_text(rule)
    done = call("rules", str(tmp_path / "mine.yaml"))
    assert done.returncode == 1
    assert "mine does not match its example" in done.stderr
    (tmp_path / "mine.yaml").write_text(rule.replace("status: warn}", "status: fail}"))
    assert "mine matches its counterexample" in call("rules", str(tmp_path / "mine.yaml")).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("history", "--since", "soon"), "--since is not a duration"),
        (("act", "--watch", "--interval", "0s"), "--interval is too short"),
        (("collect", "--folder", "x", "--tokens", "/none"), "the tokens cannot be read"),
        (("offenders", "--on", "nowhere"), "there is no cluster nowhere"),
    ],
)
def test_what_is_wrong_is_said(call, words, said):
    done = call(*words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_history_that_nobody_named_is_asked_for(call, monkeypatch):
    monkeypatch.delenv("CORDEE_HISTORY")
    done = call("history", "--json")
    assert done.returncode == 2
    assert "--history DIR|URL" in json.loads(done.stdout)["error"]["next"]
