"""A job with a protocol: in the plan as the node side gets it, in what `check` shows, and in the run's folder."""

from __future__ import annotations

import json
from pathlib import Path

from cordee.job.plan.render import render_plan
from cordee.job.submit.prepare import create_run, prepare

from ....job.plan.conftest import HEAD, Make

PROTOCOL = """\
# what we look at
name: ours
deadline: 90s
history: kept
evals:
- {name: memory, type: host.memory, min_bytes: 1GB}
- {name: load, type: host.load, required: false}
- {name: network, type: pair.bandwidth}
"""


def _job(folder: Path) -> None:
    (folder / "p.yaml").write_text(PROTOCOL)


def test_the_plan_holds_the_resolved_protocol(make: Make, tmp_path: Path) -> None:
    _job(tmp_path / "job")
    loaded, plan, findings = make(HEAD + '[vet]\nprotocol = "p.yaml"\n')
    assert findings == []
    assert loaded.read["vetting"] is not None
    held = plan.document()["steps"][0]["vet"]["protocol"]  # type: ignore[index]
    assert held == loaded.read["vetting"].resolved()
    assert json.loads(json.dumps(held, allow_nan=False)) == held
    assert (held["schema"], held["name"], held["deadline_s"]) == ("cordee.protocol/1", "ours", 90.0)


def test_check_shows_what_would_be_looked_at(make: Make, tmp_path: Path) -> None:
    _job(tmp_path / "job")
    text = render_plan(make(HEAD + '[vet]\nprotocol = "p.yaml"\n')[1], "")
    assert "protocol    ours, within 1 min 30 s\n" in text
    assert "checks      host.memory, host.load (optional), pair.bandwidth\n" in text
    assert f"history     {tmp_path}/job/kept\n" in text


def test_what_is_not_the_same_as_in_vetnode_is_said_by_check(make: Make, tmp_path: Path) -> None:
    kind = "vetnode.evaluations.nccl_pytorch_eval.NcclPytorchEval"
    (tmp_path / "job" / "p.yaml").write_text(f"name: x\nevals:\n- {{name: a, type: {kind}, method: broadcast}}\n")
    findings = make(HEAD + '[vet]\nprotocol = "p.yaml"\n')[2]
    assert {finding.rule for finding in findings} == {"not-the-same"}
    assert all(finding.file == str(tmp_path / "job/p.yaml") and finding.line == 3 for finding in findings)


def test_the_runs_folder_keeps_it_as_given_and_as_resolved(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_text(HEAD + '[vet]\nprotocol = "p.yaml"\n')
    _job(tmp_path)
    prepared = prepare(str(tmp_path), "local", {}, tmp_path / "runs")
    folder = create_run(prepared)
    assert (folder.documents / "protocol.yaml").read_text() == PROTOCOL
    kept = json.loads((folder.documents / "protocol.json").read_text())
    assert kept == json.loads(folder.plan.read_text())["steps"][0]["vet"]["protocol"]


def test_history_without_a_protocol_is_told(make: Make, tmp_path: Path) -> None:
    (finding,) = make(HEAD + "[vet]\nhistory = true\n")[2]
    assert (finding.severity, finding.line) == ("warn", 4)
    assert "there is none" in finding.text
