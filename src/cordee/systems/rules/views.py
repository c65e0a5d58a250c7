"""What rules say of all runs, as data: for commands and pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cordee.backends.cluster_here import cluster_here
from cordee.core.units import utc_text
from cordee.job.cluster import read_tables
from cordee.systems.rules.catalogue import resolved_rules, rule_paths
from cordee.systems.rules.counted import counter_of
from cordee.systems.rules.run_counter import CountedPlace
from cordee.systems.rules.run_findings import counted_runs


def site_rules(cluster: str | None, environ: Mapping[str, str] = os.environ) -> list[dict[str, Any]]:
    """Return the rules of a cluster's profile, without a name of the cluster that is meant here, and ours behind them.

    Raises:
        UsageError, DocumentError: there is no such cluster; its profile, or a file of rules, is wrong.
    """
    return resolved_rules(rule_paths(read_tables(cluster_here(cluster, environ), ("rules",), environ).rules.files))


def places_again(parents: Iterable[Path], rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes, switches and jobs in the findings of several runs, as rules count them; what was counted last first."""
    counter = counter_of(rules)
    for run in counted_runs(parents):
        counter.take(run)
    return [place_document(place) for place in counter.found()]


def place_document(place: CountedPlace) -> dict[str, Any]:
    """Return one place with the runs that name it."""
    finding = place.finding()
    return {
        "kind": place.kind,
        "name": place.name,
        "cluster": place.cluster,
        "nodes": place.nodes,
        "rule": finding.rule,
        "severity": finding.severity,
        "text": finding.text,
        "action": place.rule["action"],
        "next": finding.next,
        "runs": [
            {"run": run.run, "finding": run.finding, "text": run.text, "at": utc_text(run.at)} for run in place.runs
        ],
    }
