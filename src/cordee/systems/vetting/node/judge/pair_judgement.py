"""From the meetings of a pair test to results: who is slow, who reaches nobody, who flaps, and when nobody is to blame."""

from __future__ import annotations

from collections import Counter
from typing import Any, Optional

from cordee.core.units import format_size
from cordee.systems.vetting.node.checks import Result
from cordee.systems.vetting.node.judge.pair_links import LinkFaults, find_links
from cordee.systems.vetting.node.judge.pairs import Measurement, PairOutcome, PairTest
from cordee.systems.vetting.node.judge.peers import ALONE, BUSY_WORDS, LEAST_PEERS
from cordee.systems.vetting.node.judge.unknowns import BUSY

_CHECK = "pair.bandwidth"
_MOST_PARTNERS = 4
# A node whose best result is below this x the reference is off by more than noise and other traffic explain.
_FAR_RATIO = 0.5
_BUSY_PARTNERS = "not held against this node: all whom it measured with are busy (host.load)"
_LATE = "it is there, but did not answer in time"


def judge(test: PairTest) -> PairOutcome:
    """Return what a pair test has found so far."""
    reference = test.reference()
    value = reference["value"] if reference is not None else 0.0
    links = find_links(test, value) if reference is not None else LinkFaults([], [], {})
    cut_off = _cut_off(test)
    slow = _slow(test, reference)
    held = {node: found for node, found in slow.items() if not test.in_doubt(node)}
    off, mild = _plain(test, held, cut_off, value)
    confused = _confusion(test, off, links, value)
    blame = not confused
    slow.update({node: (threshold, False) for node, (threshold, _) in held.items() if node in mild})
    results = {}
    for node in test.nodes:
        result = _result(test, node, reference, slow, cut_off, links, blame)
        result.name, result.required = test.policy.name, test.policy.required
        results[node] = result.document()
    pairs = [
        {"round": one.round, "nodes": list(one.nodes), "bytes_per_s": one.bytes_per_s, "reason": one.reason}
        for one in test.measured
    ]
    confused += [
        {
            "check": test.policy.name,
            "nodes": [],
            "text": f"pairs were drawn without switch {switch}: {why}",
            "abort": False,
        }
        for switch, why in test.malformed_switches.items()
    ]
    return PairOutcome(results, pairs, links.links, confused)


def _slow(test: PairTest, reference: Optional[dict[str, Any]]) -> dict[str, tuple[float, bool]]:
    """Return for each slow node its threshold, and whether there is enough to blame it."""
    if reference is None:
        return {}
    policy = test.policy
    scores = {node: score for node in test.nodes if node not in test.out and (score := test.score(node)) is not None}
    base = policy.ratio * test.baseline["value"] if test.baseline else 0.0
    own = policy.min_bytes_per_s or 0.0
    found = {}
    for node, score in scores.items():
        threshold = max(policy.ratio * reference["value"], own)
        if score < threshold:
            found[node] = (threshold, len(scores) >= LEAST_PEERS or score < max(base, own))
    return found


def _cut_off(test: PairTest) -> dict[str, list[Measurement]]:
    """Return the nodes that exchanged data with nobody, though one they should have met did with others."""
    found = {}
    for node in test.nodes:
        meetings = [one for one in test.of_node(node) if not one.late]
        if node in test.out or not meetings or test.score(node) is not None:
            continue
        if any(test.score(one.partner(node)) is not None for one in meetings):
            found[node] = meetings
    return found


def _plain(
    test: PairTest, held: dict[str, tuple[float, bool]], cut_off: dict[str, list[Measurement]], reference: float
) -> tuple[list[str], set[str]]:
    """Return the nodes that are off, and those that are only warned of: where so many are off that nobody could be blamed,
    but few of them lie far below all others, it is these few, and the rest may be noise."""
    off = [*held, *cut_off]
    far = [node for node in held if (test.score(node) or 0.0) < _FAR_RATIO * reference] + [*cut_off]
    if _too_many(test, off) and far and not _too_many(test, far):
        return far, set(held) - set(far)
    return off, set()


def _too_many(test: PairTest, off: list[str]) -> bool:
    present = [node for node in test.nodes if node not in test.out]
    return len(off) >= 2 and len(off) > test.policy.confusion_ratio * len(present)


def _confusion(test: PairTest, off: list[str], links: LinkFaults, reference: float) -> list[dict[str, Any]]:
    """Return why nobody can be blamed, if so."""
    policy, found = test.policy, []
    present = [node for node in test.nodes if node not in test.out]
    if _too_many(test, off):
        text = (
            f"{len(off)} of {len(present)} nodes are slow or cut off, held against {format_size(reference)}/s; "
            "so many point to the network or to the baseline"
        )
        found.append({"check": policy.name, "nodes": sorted(off), "text": text, "abort": policy.required})
    met = {frozenset(one.nodes) for one in test.measured}
    if len(links.lone) >= 2 and len(links.lone) > policy.confusion_ratio * len(met):
        text = (
            f"{len(links.lone)} of {len(met)} pairs stay slow though their nodes are well with others, first "
            f"{' and '.join(links.lone[0])}; so many point to the network"
        )
        nodes = sorted({node for pair in links.lone for node in pair})
        found.append({"check": policy.name, "nodes": nodes, "text": text, "abort": policy.required})
    return found


def _result(
    test: PairTest,
    node: str,
    reference: Optional[dict[str, Any]],
    slow: dict[str, tuple[float, bool]],
    cut_off: dict[str, list[Measurement]],
    links: LinkFaults,
    blame: bool,
) -> Result:
    score = test.score(node)
    if len(test.nodes) == 1:
        return Result(_CHECK, "skip", evidence=ALONE)
    if node in test.out:
        out = test.out[node]
        return Result(_CHECK, "unknown", evidence=out.evidence, cause=out.cause, facts=_facts(test, node))
    if node in cut_off:
        status = "fail" if blame else "warn"
        return Result(
            _CHECK, status, value=0.0, unit="bytes/s", evidence=_failures(node, cut_off[node]), facts=_facts(test, node)
        )
    if score is None or reference is None:
        late = next((one for one in test.of_node(node) if node in one.late), None)
        evidence, cause = (f"{_LATE} ({late.reason})", "timeout") if late else (_nothing(test, node), "error")
        return Result(_CHECK, "unknown", evidence=evidence, cause=cause, facts=_facts(test, node))
    threshold = max(test.policy.ratio * reference["value"], test.policy.min_bytes_per_s or 0.0)
    result = Result(
        _CHECK,
        "pass",
        value=score,
        unit="bytes/s",
        threshold=threshold,
        reference=reference,
        evidence=_rates(test, node, score),
        facts=_facts(test, node),
    )
    if node in slow:
        result.status = "fail" if slow[node][1] and blame else "warn"
        result.evidence += f"; below {format_size(threshold)}/s: {_held_against(test, reference)}"
        if test.in_doubt(node):
            result.status, result.cause = "unknown", BUSY
            result.evidence += f"; {BUSY_WORDS}" if node in test.busy else f"; {_BUSY_PARTNERS}"
        elif not blame:
            result.evidence += "; not held against this node: too many are"
    elif node in links.of_node:
        result.status = "warn"
        result.evidence += f"; {links.of_node[node]}"
        result.facts["links"] = [links.of_node[node]]
    else:
        _note_flapping(test, node, result, {*slow, *cut_off})
    return result


def _note_flapping(test: PairTest, node: str, result: Result, off: set[str]) -> None:
    """Warn when a node's results with partners that are well lie far apart."""
    met = [
        (one.bytes_per_s, one.partner(node))
        for one in test.of_node(node)
        if one.bytes_per_s is not None and one.partner(node) not in off
    ]
    if len(met) >= 2 and min(met)[0] < test.policy.flapping_ratio * max(met)[0]:
        result.status = "warn"
        result.evidence += f"; flapping: {format_size(min(met)[0])}/s once, with {min(met)[1]}"


def _held_against(test: PairTest, reference: dict[str, Any]) -> str:
    value = f"{format_size(reference['value'])}/s"
    if test.policy.min_bytes_per_s and test.policy.min_bytes_per_s > test.policy.ratio * reference["value"]:
        return "what the protocol asks for"
    if reference["kind"] == "fleet":
        return f"{test.policy.ratio:g} x {value}, the fleet's baseline"
    return f"{test.policy.ratio:g} x {value}, the 75th percentile of {reference['n']} nodes"


def _rates(test: PairTest, node: str, score: float) -> str:
    """Return the best of a node's results and with whom; failed meetings are told in the facts."""
    best = next(one for one in test.of_node(node) if one.bytes_per_s == score)
    partners = sorted({one.partner(node) for one in test.of_node(node) if one.bytes_per_s is not None})
    return f"{format_size(score)}/s at best, with {best.partner(node)}; met {_names(partners)}"


def _failures(node: str, meetings: list[Measurement]) -> str:
    partners = list(dict.fromkeys(one.partner(node) for one in meetings))
    reason = Counter(one.reason for one in meetings if one.reason).most_common(1)
    why = reason[0][0] if reason else "no data"
    return f"{node} exchanged no data with any of {_names(partners)}, who are well with others: {why}"


def _nothing(test: PairTest, node: str) -> str:
    meetings = test.of_node(node)
    if not meetings:
        return "it had no partner to measure with"
    if test.reference() is None:
        first = next((one for one in test.measured if one.reason), None)
        return "no pair of nodes could be measured" + (
            f" ({' and '.join(first.nodes)}: {first.reason})" if first else ""
        )
    return _failures(node, meetings).partition(", who")[0] + f": {meetings[-1].reason or 'no data'}"


def _facts(test: PairTest, node: str) -> dict[str, Any]:
    partners = [
        {"node": one.partner(node), "round": one.round, "bytes_per_s": one.bytes_per_s, "reason": one.reason}
        for one in test.of_node(node)
    ]
    return {"partners": partners}


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_PARTNERS
    return ", ".join(names[:_MOST_PARTNERS]) + (f" and {more} more" if more > 0 else "")
