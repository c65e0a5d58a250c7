"""Vetting in the job, on the disposable Slurm: bad nodes are left out, and the centre learns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
NEED = "[need]\nnodes = 3\nspare_nodes = 1\n\n[vet]\nprotocol = 'protocol.yaml'\n"
# Four nodes of a small machine share its cores: healthy ones may differ by a third, the slow one runs a quarter of the time.
PAIRS = """
name: pairs
evals:
- name: pairs
  type: pair.bandwidth
  min_ratio: 0.55
  seconds: 1
"""


def test_a_slow_node_is_left_out_and_the_job_trains_on_the_others(job, start, slurm, tmp_path: Path) -> None:
    folder = job("python train.py 20 0.02", NEED)
    (folder / "protocol.yaml").write_text(f"{PAIRS}history: {tmp_path / 'history'}\n")
    with slurm.slow("n4", 0.25):
        run = start(folder)
        state = run.wait_end(150)
    assert state.state == "finished", state.text
    assert run.events("nodes_chosen")[-1]["nodes"] == ["n1", "n2", "n3"]
    assert run.events("nodes_chosen")[-1]["excluded"] == ["n4"]
    (bad,) = (node for node in state.nodes if node.role == "excluded")
    (result,) = (result for result in bad.results if result["check"] == "pair.bandwidth")
    assert (bad.verdict, result["status"], result["rule"]["scope"]) == ("bad", "fail", "node")
    (kept,) = (tmp_path / "history").rglob("*.jsonl")
    assert json.loads(kept.read_text().splitlines()[0])["exclude"] == ["n4"]
