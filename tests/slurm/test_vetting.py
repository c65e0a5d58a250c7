"""Vetting in the job, on the disposable Slurm: bad nodes are left out, and the centre learns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.hosts.preloading import build_faults, faulty

NEED = "[need]\nnodes = 3\nspare_nodes = 1\n\n[vet]\nprotocol = 'protocol.yaml'\n"
PAIRS = """
name: pairs
evals:
- name: pairs
  type: pair.bandwidth
  min_ratio: 0.45
  seconds: 2
  payload: 64KiB
"""
# How often a node may send 64 KiB: speeds that do not depend on what else this machine does.
USUAL_S, SLOW_S = 0.01, 0.1


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever jobs run sends at a set pace: n4 at a tenth of that of the other nodes."""
    pace = faulty(build_faults(tmp_path), send_pause_s=USUAL_S, slow_node="n4", slow_pause_s=SLOW_S)
    for name, value in pace.items():
        monkeypatch.setenv(name, value)


def left_out(start, folder: Path) -> dict[str, Any]:
    """Run the job; return what its vetting says of n4."""
    run = start(folder)
    state = run.wait_end()
    assert state.state == "finished", state.text
    chosen = run.events("nodes_chosen")[-1]
    assert (chosen["nodes"], chosen["excluded"]) == (["n1", "n2", "n3"], ["n4"])
    (bad,) = (node for node in state.nodes if node.role == "excluded")
    (result,) = (result for result in bad.results if result["check"] == "pair.bandwidth")
    assert (bad.verdict, result["status"], result["rule"]["scope"]) == ("bad", "fail", "node")
    return result


def act(history: Path) -> dict[str, Any]:
    """Run `cordee nodes act --yes`."""
    command = [sys.executable, "-m", "cordee.faces.cli", "nodes", "act", "--yes", "--json", "--history", str(history)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_slow_node_is_left_out_and_drained_after_the_second_confirmation(job, start, slurm, paced, tmp_path) -> None:
    """The job asks for 3+1 nodes and trains on the three that are well."""
    history = tmp_path / "history"
    folder = job("python train.py 20 0.02", NEED)
    (folder / "protocol.yaml").write_text(f"{PAIRS}history: {history}\n")
    left_out(start, folder)
    (kept,) = history.rglob("*.jsonl")
    assert json.loads(kept.read_text().splitlines()[0])["exclude"] == ["n4"]
    acted = act(history)
    assert "DRAIN" not in slurm.states()["n4"], acted

    result = left_out(start, folder)
    acted = act(history)
    assert "DRAIN" in slurm.states()["n4"], acted
    assert [node for node, state in slurm.states().items() if "DRAIN" in state] == ["n4"]
    reason = slurm.command("scontrol", "show", "node", "n4").partition("Reason=")[2].splitlines()[0]
    assert "node_problem" in reason
    assert result["rule"]["id"] in reason
