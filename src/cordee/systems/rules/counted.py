"""The findings of rules that count over runs, for one run that goes on: `python -m cordee.systems.rules.counted RUN`.

It prints `{"findings": [...]}`: what is new since the run's journal. The supervisor starts it when a finding names a node; it is
a process of its own, since there may be thousands of runs to read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cordee.backends.network.sources import find_network
from cordee.core.draw.clean import one_line
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder
from cordee.runs.journal_follower import JournalFollower
from cordee.systems.rules.catalogue import BUILT_IN, resolved_rules
from cordee.systems.rules.node.judge import MARK
from cordee.systems.rules.run_counter import RunCounter
from cordee.systems.rules.run_findings import counted_run, counted_runs


def counter_of(rules: Iterable[Mapping[str, Any]]) -> RunCounter:
    """Return what counts runs by these rules, with the switches of each cluster whose network somebody describes."""
    return RunCounter(rules, _leaves)


def _leaves(cluster: str) -> Mapping[str, str]:
    try:
        network = find_network(cluster).network
    except CordeeError as error:
        print(f"the switches of cluster {cluster} are not known: {one_line(error.text)}", file=sys.stderr)
        return {}
    return network.leaf_of if network is not None else {}


def counted_findings(folder: RunFolder) -> list[Finding]:
    """Return what rules that count over runs say that concerns this run and is not in its journal.

    Raises:
        CordeeError: its journal cannot be read.
    """
    try:
        part = read_json(folder.plan, folder.root)["steps"][0]["systems"].get("rules") or {}
        own = [rule for rule in part["rules"] if "runs" in rule["when"]] if part else []
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        own = []
    told = {(place.get("kind"), place.get("name"), rule) for rule, place in _told(folder)}
    of_this = counted_run(folder)
    counter = counter_of([*own, *resolved_rules([BUILT_IN], built_in=False)])
    for run in counted_runs([folder.root.parent]):
        if run.cluster == of_this.cluster and run.run != folder.id:
            counter.take(run)
    counter.take(of_this)
    return [
        place.finding()
        for place in counter.found()
        if any(run.run == folder.id for run in place.runs) and (place.kind, place.name, place.rule["id"]) not in told
    ]


def _told(folder: RunFolder) -> Iterable[tuple[str, dict[str, Any]]]:
    for event in JournalFollower(folder, keep=False).stream():
        finding = event.get("finding")
        evidence = finding.get("evidence") if isinstance(finding, dict) else None
        if isinstance(evidence, dict) and MARK in evidence and "runs" in evidence:
            yield str(evidence[MARK]), evidence


def main() -> int:
    """Print the findings."""
    findings = counted_findings(RunFolder(Path(sys.argv[1])))
    print(json.dumps({"findings": [finding.document() for finding in findings]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
