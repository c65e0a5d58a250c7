"""A protocol in a run: bad nodes are left out, spares take their place, and nobody is blamed for what many have."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

NEED = "[need]\nnodes = {nodes}\nspare_nodes = {spares}\n\n[vet]\nprotocol = 'protocol.yaml'\n"
ON_NODE_1 = '[sh, -c, "test $CORDEE_NODE != local-1 || {}"]'
MEASURED = """[sh, -c, 'case $CORDEE_NODE in local-2) v=50;; *) v=100;; esac; echo "{\\"status\\": \\"pass\\", \\"value\\": $v}"']"""


def protocol(folder: Path, command: str, more: str = "", top: str = "") -> Path:
    text = f"name: ours\n{top}evals:\n- name: question\n  type: command\n  command: {command}\n{more}"
    (folder / "protocol.yaml").write_text(text)
    return folder


def of_node(state, name: str):
    (node,) = (node for node in state.nodes if node.node == name)
    return node


@pytest.mark.gate
def test_a_node_that_fails_is_left_out_and_a_spare_takes_its_place(job, start, tmp_path):
    folder = protocol(
        job(toml=NEED.format(nodes=2, spares=1)), ON_NODE_1.format("exit 1"), top=f"history: {tmp_path / 'history'}\n"
    )
    run = start(folder)
    state = run.wait_end()
    assert state.state == "finished", state.text
    chosen = run.events("nodes_chosen")[-1]
    assert (chosen["nodes"], chosen["excluded"]) == (["local-0", "local-2"], ["local-1"])
    assert of_node(state, "local-1").verdict == "bad"
    assert "question" in of_node(state, "local-1").reason or "command" in of_node(state, "local-1").reason
    assert state.vetting["verdict"] == "exclude"
    (kept,) = (tmp_path / "history").rglob("*.jsonl")
    header = json.loads(kept.read_text().splitlines()[0])
    assert (header["run"], header["exclude"]) == (run.folder.id, ["local-1"])


def test_what_fails_everywhere_ends_the_run_and_blames_nobody(job, start):
    run = start(protocol(job(toml=NEED.format(nodes=2, spares=1)), "[sh, -c, 'echo no licence; exit 1']"))
    state = run.wait_end()
    assert (state.state, state.exit_code, state.reason) == ("failed", 4, "vetting")
    assert "question" in state.text
    assert {node.verdict for node in state.nodes} == {"suspect"}


def test_a_node_that_is_slower_than_its_peers_is_left_out(job, start):
    folder = protocol(job(toml=NEED.format(nodes=3, spares=1)), MEASURED, "  min_ratio: 0.9\n")
    run = start(folder)
    assert run.wait_end().state == "finished"
    assert run.events("nodes_chosen")[-1]["excluded"] == ["local-2"]
    (result,) = (result for result in of_node(run.state, "local-2").results if result["name"] == "question")
    assert (result["reference"]["kind"], result["reference"]["value"], result["threshold"]) == ("peer", 100, 90)


def test_a_check_that_hangs_is_unknown_with_what_it_was_doing(job, start):
    folder = protocol(job(toml=NEED.format(nodes=2, spares=1)), ON_NODE_1.format("sleep 333"), "  deadline: 2s\n")
    run = start(folder)
    assert run.wait_end().state == "finished"
    assert run.events("nodes_chosen")[-1]["excluded"] == ["local-1"]
    (result,) = (result for result in of_node(run.state, "local-1").results if result["name"] == "question")
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert "sleep 333" in json.dumps(result)


@pytest.mark.parametrize("part", ["agent local-1", "supervisor"])
def test_who_dies_in_the_vetting_is_replaced_and_the_node_vetted_again(job, start, tmp_path, part: str):
    mark = tmp_path / "asked-before"
    wait = f"{{ test -e {mark} && exit 0; touch {mark}; sleep 333; }}"
    run = start(protocol(job(toml=NEED.format(nodes=2, spares=0)), ON_NODE_1.format(wait), "  deadline: 60s\n"))
    run.wait(lambda state: mark.exists())
    run.kill(part, signal.SIGKILL)
    state = run.wait_end()
    assert state.state == "finished", state.text
    assert of_node(state, "local-1").verdict in ("healthy", "suspect")
