"""The vetting in a report: nodes by checks, reasons, what could not be tested, and what pairs of nodes measured."""

from __future__ import annotations

from typing import Any, NamedTuple

from cordee.core.draw.charts import framed, text_of
from cordee.core.hostlist import fold_nodes
from cordee.core.units import natural
from cordee.runs.state import RunState
from cordee.systems.vetting.node.judge.table import columns, line, name_of, reasons
from cordee.systems.vetting.report.heatmap import MOST_NODES, STATUSES, Cell, HeatRow, heatmap, legend

_MOST_REASONS = 60
_MOST_NODES_NAMED = 80
_WIDTH, _LABELS, _HEIGHT, _TOP, _BOTTOM = 1120, 190, 150, 10, 24
_VERDICTS = {"healthy": "pass", "suspect": "warn", "bad": "fail", "unknown": "unknown"}
_OUTCOMES = {"continue": "all nodes take part", "exclude": "some nodes are left out", "abort": "no node takes part"}
_KEYS = {"check": "", "name": "", "status": "unknown", "evidence": "", "rule": None, "value": None, "threshold": None}


class ReasonLine(NamedTuple):
    """One line of the table of reasons."""

    nodes: str
    check: str
    status: str
    evidence: str
    rule: str
    next: str


class VettingView(NamedTuple):
    """What the page shows of a vetting; pictures are safe to put into a page.

    Attributes:
        verdict, outcome, reason: of the allocation, empty when only nodes were judged.
        excluded: the nodes left out, folded.
        heat, key: nodes by checks, and what its marks mean.
        hidden: how many healthy nodes the picture leaves out.
        against: what speaks against nodes.
        more: how many more reasons there are.
        remarks: what could not be tested here, who is not blamed, which links are slow.
        pairs: what pairs of nodes measured, empty when none did.
    """

    verdict: str
    outcome: str
    reason: str
    excluded: str
    heat: str
    key: str
    hidden: int
    against: list[ReasonLine]
    more: int
    remarks: list[str]
    pairs: str


def document_of(state: RunState) -> dict[str, Any] | None:
    """Return the newest allocation document of a run with the results of its nodes; None when nothing was vetted."""
    nodes = [
        {"node": node.node, "verdict": node.verdict, "results": [_plain(result) for result in node.results]}
        for node in sorted(state.nodes, key=lambda node: natural(node.node))
        if node.results or node.verdict != "unknown"
    ]
    if not nodes and not state.vetting:
        return None
    empty: dict[str, Any] = {"verdict": "", "reason": "", "exclude": [], "unavailable": [], "confused": []}
    return {**empty, "links": [], "pairs": [], **(state.vetting or {}), "nodes": nodes}


def vetting_view(state: RunState) -> VettingView | None:
    """Return what the page shows, None when nothing was vetted."""
    document = document_of(state)
    if document is None:
        return None
    shown, hidden = _shown(document)
    names, found = [node["node"] for node in shown], reasons(document)
    rows = [HeatRow("verdict", [Cell(_VERDICTS.get(node["verdict"], "unknown"), node["verdict"]) for node in shown])]
    by_name = [
        {name_of(result): Cell(result["status"], result["evidence"]) for result in node["results"]} for node in shown
    ]
    rows += [HeatRow(name, [cells.get(name) for cells in by_name]) for name in columns(document)]
    return VettingView(
        verdict=document["verdict"],
        outcome=_OUTCOMES.get(document["verdict"], ""),
        reason=document["reason"],
        excluded=fold_nodes(document["exclude"]),
        heat=heatmap("nodes by checks", names, rows, document["exclude"]),
        key=legend(rows, [name for name in document["exclude"] if name in set(names)]),
        hidden=hidden,
        against=[
            ReasonLine(
                fold_nodes(reason.nodes[:_MOST_NODES_NAMED])
                + (
                    f" and {len(reason.nodes) - _MOST_NODES_NAMED} more"
                    if len(reason.nodes) > _MOST_NODES_NAMED
                    else ""
                ),
                reason.check,
                reason.status,
                reason.evidence,
                str(reason.rule.get("id") or ""),
                str((reason.rule.get("recovery") or [""])[0]),
            )
            for reason in found[:_MOST_REASONS]
        ],
        more=max(0, len(found) - _MOST_REASONS),
        remarks=remarks(document),
        pairs=pair_strip(document["pairs"], [node["node"] for node in document["nodes"]], _pair_threshold(document)),
    )


def remarks(document: dict[str, Any]) -> list[str]:
    """Return what is said of the allocation beyond single nodes."""
    found = [
        f"{entry['check']} could not be tested on {fold_nodes(entry['nodes'])}: {entry['reason']}"
        for entry in document["unavailable"]
    ]
    found += [f"Nobody is blamed: {entry['text']}" for entry in document["confused"]]
    return [line(text) for text in [*found, *(f"Link: {entry['text']}" for entry in document["links"])]]


def pair_strip(pairs: list[dict[str, Any]], nodes: list[str], threshold: float | None) -> str:
    """Return every measurement as a dot above each of its two nodes, as SVG; empty when there are none.

    Args:
        pairs: as in the allocation document.
        nodes: in the order of the columns.
        threshold: bytes per second below which a node is slow; None: not known.
    """
    measured = [entry for entry in pairs if entry.get("bytes_per_s")]
    if not measured or not nodes:
        return ""
    top: float = 1.08 * max(threshold or 0.0, *(entry["bytes_per_s"] for entry in measured))
    at = {
        node: _LABELS + (index + 0.5) * min(46.0, (_WIDTH - _LABELS - 8) / len(nodes))
        for index, node in enumerate(nodes)
    }
    end, parts = _LABELS + min(46.0 * len(nodes), _WIDTH - _LABELS - 8), []

    def height(value: float) -> float:
        return float(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM))

    for value, words in ((0.0, "0"), (top / 1.08, f"{top / 1.08 / 1e9:.3g} GB/s")):
        y = height(value)
        parts.append(f'<line class="grid" x1="{_LABELS}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LABELS - 8}" y="{y + 4:.1f}" text-anchor="end">{words}</text>')
    if threshold:
        y, words = height(threshold), f"slow below {threshold / 1e9:.3g} GB/s"
        parts.append(
            f'<line class="mark" x1="{_LABELS}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"><title>{words}</title></line>'
        )
    for entry in measured:
        slow = threshold is not None and entry["bytes_per_s"] < threshold
        tip = text_of(
            f"{' and '.join(entry['nodes'])}, round {entry.get('round')}: {entry['bytes_per_s'] / 1e9:.4g} GB/s"
        )
        for x in (at[node] for node in entry["nodes"] if node in at):
            y = height(entry["bytes_per_s"])
            shape = (
                f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
                if slow
                else f"M{x - 2.5:.1f} {y:.1f}a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0"
            )
            parts.append(f'<path class="{"slow" if slow else "dot"}" d="{shape}"><title>{tip}</title></path>')
    said = f"{len(measured)} measurements; crosses are below the threshold"
    return f'<div class="wide">{framed("bandwidth of pairs of nodes", said, _WIDTH, _HEIGHT, "".join(parts), "time heat")}</div>'


def _pair_threshold(document: dict[str, Any]) -> float | None:
    found = [
        result["threshold"]
        for node in document["nodes"]
        for result in node["results"]
        if result["check"] == "pair.bandwidth" and isinstance(result["threshold"], (int, float))
    ]
    return max(found) if found else None


def _shown(document: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Return the nodes for the picture, and how many healthy ones it leaves out because there are too many."""
    nodes, excluded = document["nodes"], set(document["exclude"])
    if len(nodes) <= MOST_NODES:
        return nodes, 0
    deviating = [node for node in nodes if node["verdict"] != "healthy" or node["node"] in excluded][:MOST_NODES]
    kept = {node["node"] for node in deviating}
    room = MOST_NODES - len(deviating)
    kept |= {node["node"] for node in nodes if node["node"] not in kept and (room := room - 1) >= 0}
    return [node for node in nodes if node["node"] in kept], len(nodes) - len(kept)


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    found = {key: result.get(key, default) for key, default in _KEYS.items()}
    found["status"] = found["status"] if found["status"] in STATUSES else "unknown"
    found["evidence"], found["check"] = str(found["evidence"]), str(found["check"])
    found["rule"] = found["rule"] if isinstance(found["rule"], dict) else {}
    return found
