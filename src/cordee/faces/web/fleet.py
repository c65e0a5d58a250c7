"""All nodes of the site as one table: what runs on them, what ran, what vettings and the scheduler say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from cordee.faces.web.cluster_status import RunsSite
from cordee.faces.web.runs.summaries import Summary

_MOST_RUNS_OF_A_NODE = 20
_GOING = ("queued", "running")


def fleet_document(summaries: Sequence[Summary], site: RunsSite) -> dict[str, Any]:
    """Return nodes, runs that go on, other jobs, what the findings of several runs name, and what is missing.

    Args:
        summaries: of all runs, the newest first.
    """
    slurm, verdicts, again = site.slurm.get(), site.verdicts.get(), site.again.get()
    ran: dict[str, list[dict[str, Any]]] = {}
    for summary in summaries:
        for node in summary.node_names:
            row = {"id": summary.id, "state": summary.state, "start": summary.started_at, "end": summary.ended_at}
            ran.setdefault(node, []).append(row)
    nodes = []
    for name in sorted({*ran, *slurm.value["nodes"], *verdicts.value}, key=lambda name: (len(name), name)):
        told = slurm.value["nodes"].get(name, {})
        here = ran.get(name, [])
        used = any(run["state"] == "running" for run in here)
        nodes.append(
            {
                "node": name,
                "state": told.get("state") or ("in use" if used else "seen"),
                "partition": told.get("partition"),
                "reason": told.get("reason"),
                "runs": here[:_MOST_RUNS_OF_A_NODE],
                "verdicts": verdicts.value.get(name, {}),
            }
        )
    going = [
        {
            key: getattr(summary, key)
            for key in ("id", "name", "state", "started_at", "submitted_at", "nodes", "job", "step", "total")
        }
        | {"node_names": list(summary.node_names)}
        for summary in summaries
        if summary.state in _GOING
    ]
    missing = []
    if slurm.why:
        missing.append(
            {
                "what": "other jobs and the state of idle nodes",
                "why": slurm.why,
                "next": "run `cordee serve` where Slurm's commands are",
            }
        )
    if verdicts.why:
        next_step = "set [vetting] history in the cluster's profile, or CORDEE_HISTORY"
        missing.append({"what": "what vettings said of the nodes", "why": verdicts.why, "next": next_step})
    if again.why:
        next_step = "`cordee rules check` says what is wrong with the site's rules"
        missing.append({"what": "what is in the findings of several runs", "why": again.why, "next": next_step})
    return {
        "nodes": nodes,
        "runs": going,
        "jobs": slurm.value["jobs"],
        "again": again.value,
        "missing": missing,
        "now": time.time(),
    }
