"""Rules that count over runs: the same node, switch or job in the findings of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from cordee.core.findings import Finding
from cordee.systems.rules.node.judge import RulePlace, as_finding, holds
from cordee.systems.rules.run_findings import CountedFinding, CountedRun

_MOST_RUNS = 200
_NAMED = 5


class InRun(NamedTuple):
    """One run that counts: its id, the finding that is meant, when, and the nodes that it names."""

    run: str
    finding: str
    text: str
    at: float
    nodes: tuple[str, ...]


class CountedPlace(NamedTuple):
    """A node, switch or job that the findings of several runs name.

    Attributes:
        rule: that counted.
        kind: `node`, `switch` or `job`.
        name: of it.
        cluster: where it is.
        runs: those that count, the oldest first.
    """

    rule: Mapping[str, Any]
    kind: str
    name: str
    cluster: str
    runs: tuple[InRun, ...]

    @property
    def nodes(self) -> list[str]:
        """The nodes that those findings name and the place holds."""
        if self.kind == "node":
            return [self.name]
        return sorted({node for run in self.runs for node in run.nodes})

    def finding(self) -> Finding:
        """Return it as a finding that names the runs."""
        names = ", ".join(f"{run.run} ({run.finding})" for run in self.runs[-_NAMED:])
        more = f" and {len(self.runs) - _NAMED} more before" if len(self.runs) > _NAMED else ""
        below = f" ({', '.join(self.nodes[:8])})" if self.kind == "switch" else ""
        text = f"{self.rule['text'].rstrip('.')}: {self.kind} {self.name}{below}: {names}{more}"
        facts = {"kind": self.kind, "name": self.name, "cluster": self.cluster, "at": self.runs[-1].at}
        return as_finding(self.rule, text, self.nodes, [], **facts, runs=[run.run for run in self.runs[-_MOST_RUNS:]])


class RunCounter:
    """Counts runs by the places that their findings name; what it remembers grows with these, not with the runs.

    Args:
        rules: as a plan holds them; those that do not count over runs are passed over.
        leaf_of: returns the switch of each node of a cluster, asked once for each.
    """

    def __init__(self, rules: Iterable[Mapping[str, Any]], leaf_of: Callable[[str], Mapping[str, str]]) -> None:
        self._rules = [rule for rule in rules if "runs" in rule["when"]]
        self._leaf_of = cache(leaf_of)
        self._runs: dict[tuple[str, str, str], dict[str, InRun]] = {}

    def take(self, run: CountedRun) -> None:
        """Count one run."""
        for rule in self._rules:
            for finding in run.findings:
                if self._fits(rule["when"], finding):
                    for cluster, name, nodes in self._places(rule["when"]["same"], run, finding):
                        runs = self._runs.setdefault((rule["id"], cluster, name), {})
                        before = runs.pop(run.run, None)
                        together = tuple(sorted({*nodes, *(before.nodes if before else ())}))
                        runs[run.run] = InRun(run.run, finding.rule, finding.text, finding.at, together)
                        if len(runs) > _MOST_RUNS:
                            runs.pop(min(runs, key=lambda name: runs[name].at))

    def found(self) -> list[CountedPlace]:
        """Return the places that enough runs name, each once for a cause: a switch where none of its nodes alone explains it."""
        found = []
        for rule in self._rules:
            for (of, cluster, name), runs in self._runs.items():
                if of != rule["id"]:
                    continue
                near = _near(
                    sorted(runs.values(), key=lambda run: run.at), rule["when"]["runs"], rule["when"]["within"]
                )
                place = CountedPlace(rule, rule["when"]["same"], name, cluster, near)
                if near and (place.kind != "switch" or _several_nodes(near, rule["when"]["runs"])):
                    found.append(place)
        return sorted(found, key=lambda place: -place.runs[-1].at)

    def _places(self, same: str, run: CountedRun, finding: CountedFinding) -> list[tuple[str, str, tuple[str, ...]]]:
        if same == "job":
            return [(run.cluster, run.job, finding.nodes)]
        if not run.machines:
            return []  # the nodes of a machine by itself are names, which all its runs have
        if same == "node":
            return [(run.cluster, node, (node,)) for node in finding.nodes]
        below: dict[str, list[str]] = {}
        for node in finding.nodes:
            leaf = self._leaf_of(run.cluster).get(node)
            if leaf is not None:
                below.setdefault(leaf, []).append(node)
        return [(run.cluster, leaf, tuple(nodes)) for leaf, nodes in below.items()]

    @staticmethod
    def _fits(when: Mapping[str, Any], finding: CountedFinding) -> bool:
        about = {
            "event": "finding",
            "finding": finding.rule,
            "severity": finding.severity,
            "place": RulePlace(finding.nodes),
            "text": finding.text,
        }
        return holds({key: value for key, value in when.items() if key != "rank"}, about)


def _near(runs: Sequence[InRun], least: int, within_s: float) -> tuple[InRun, ...]:
    """Return the newest runs that are no further apart than this, nothing where they are too few."""
    for last in range(len(runs) - 1, least - 2, -1):
        near = [run for run in runs[: last + 1] if runs[last].at - run.at <= within_s]
        if len(near) >= least:
            return tuple(near)
    return ()


def _several_nodes(runs: Sequence[InRun], least: int) -> bool:
    nodes = [node for run in runs for node in set(run.nodes)]
    return len(set(nodes)) > 1 and max(map(nodes.count, set(nodes))) < least
