"""The fleet page beside a real Slurm: this run's nodes, idle ones, drained ones, and what else waits or runs."""

from __future__ import annotations

import pytest

from cordee.faces.web.cluster_status import RunsSite
from cordee.faces.web.fleet import fleet_document
from cordee.faces.web.runs.summaries import summarise


@pytest.mark.gate
def test_the_fleet_has_this_run_what_else_there_is_and_why_a_node_is_drained(job, start, slurm, training):
    run = start(job(training.run, "[need]\nnodes = 1"))
    state = run.wait(lambda state: state.step is not None)
    (mine,) = (node.node for node in state.nodes)
    drained = next(name for name in slurm.node_names if name != mine)
    slurm.drain(drained, "fans are | loud")
    other = slurm.command("sbatch", "--hold", "--parsable", "--job-name=a | b", "--wrap=true").strip()

    fleet = fleet_document([summarise(run.folder)], RunsSite())
    nodes = {node["node"]: node for node in fleet["nodes"]}
    assert set(nodes) == set(slurm.node_names)
    assert [entry["id"] for entry in nodes[mine]["runs"]] == [run.folder.id]
    assert "drain" in nodes[drained]["state"]
    assert nodes[drained]["reason"].startswith("fans are | loud")
    assert {node["partition"] for node in fleet["nodes"]} != {None}
    jobs = {entry["job"]: entry for entry in fleet["jobs"]}
    assert (jobs[other]["name"], jobs[other]["state"], jobs[other]["nodes"]) == ("a | b", "pending", [])
    assert (jobs[run.job]["nodes"], jobs[run.job]["run"]) == ([mine], run.folder.id)
    assert [entry["job"] for entry in fleet["runs"]] == [run.job]
    assert not any("Slurm" in missing["next"] for missing in fleet["missing"])

    slurm.command("scancel", other)
    training.may_end()
    run.wait_end()
