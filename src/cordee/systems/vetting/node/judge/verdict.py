"""From results to verdicts: of one node, and of the allocation. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from cordee.core.units import natural
from cordee.systems.vetting.node.checks import unknown_result
from cordee.systems.vetting.node.checks._base import STATUSES
from cordee.systems.vetting.node.judge import sentences
from cordee.systems.vetting.node.judge.peers import Sheets, compare
from cordee.systems.vetting.node.judge.rules import match
from cordee.systems.vetting.node.judge.unknowns import BUSY, RAN, busy_nodes, find_unavailable, is_only_busy, is_silent

if TYPE_CHECKING:
    from cordee.systems.vetting.node.judge.pairs import PairOutcome

Reports = dict[str, Optional[list[dict[str, Any]]]]
_CONFUSION_RATIO = 0.3
_MOST_EXCLUDED_RATIO = 0.5
_COMPARISONS = ("low", "high", "same")
_KEPT_OF_RULES = ("id", "scope", "action", "kind", "recovery", "text", "source")


def verdict(results: list[dict[str, Any]]) -> str:
    """Return what the results say of the node: `bad`, `unknown`, `suspect` or `healthy`.

    A required check that failed makes it bad, unless `confused` says that nobody is to blame; one that could not be
    tested makes it unknown, unless it is `unavailable` at this site because the site does not let us look. A node on which no check ran is
    unknown, and one of which only a busy host keeps us from knowing more. A warning, and whatever else is not a pass, makes it suspect.
    """
    required = [result for result in results if result.get("required", True)]
    if any(result["status"] == "fail" and not result.get("confused") for result in required):
        return "bad"
    if not any(result["status"] in RAN for result in results):
        return "unknown"
    if any(result["status"] == "unknown" and not _is_excused(result) for result in required):
        return "unknown"
    if is_only_busy(results):
        return "unknown"
    statuses = {result["status"] for result in results}
    if not statuses <= set(STATUSES):
        return "unknown"
    return "suspect" if statuses & {"warn", "fail", "unknown"} else "healthy"


def decide(
    protocol: dict[str, Any],
    reports: Reports,
    pairs: Optional[PairOutcome] = None,
    *,
    min_nodes: Optional[int] = None,
) -> dict[str, Any]:
    """Return who takes part, who is left out and why: the allocation document without what only the conductor knows.

    Args:
        protocol: the resolved protocol; `policy`, `baseline`, `rules` and `scopes` count here.
        reports: the result documents of every node; None for a node that never answered.
        pairs: what the pair test found.
        min_nodes: fewest nodes that the job can do with.

    Returns:
        `verdict`, `exclude`, `reason`, `nodes`, `unavailable`, `confused`, `pairs` and `links`. Nodes are in their natural
        order, whatever the order of the reports, which are left as they are.
    """
    given = (protocol.get("policy") or {}).get("confusion_ratio")
    ratio = _CONFUSION_RATIO if given is None else given
    rules = protocol.get("rules") or []
    order = sorted(reports, key=natural)
    sheets = {node: _sheet(node, reports[node], pairs) for node in order}
    answered = {node: sheet for node, sheet in sheets.items() if not is_silent(reports[node])}
    confused = _confused_failures(answered, rules, ratio)
    confused += compare(answered, protocol.get("baseline") or {}, ratio, busy_nodes(answered))
    confused += pairs.confused if pairs is not None else []
    unavailable = find_unavailable(answered, ratio)
    nodes = [{"node": node, "verdict": _verdict(sheets[node]), "results": sheets[node]} for node in order]
    standing = _standing(nodes, set(answered), ratio)
    aborts = _aborts(standing, confused, unavailable, min_nodes, ratio)
    outcome = "abort" if aborts else "exclude" if standing.excluded else "continue"
    links = [_named_link(link, rules) for link in pairs.links] if pairs is not None else []
    for sheet in sheets.values():
        _name_rules(sheet, rules, protocol.get("scopes") or {})
    return {
        "verdict": outcome,
        "exclude": [node["node"] for node in standing.excluded],
        "reason": sentences.reason(outcome, aborts, standing.excluded, nodes, unavailable, links),
        "nodes": nodes,
        "unavailable": unavailable,
        "confused": confused,
        "pairs": list(pairs.pairs) if pairs is not None else [],
        "links": links,
    }


class _Standing(NamedTuple):
    """The nodes of the allocation, by what is to become of them; `idle`: nothing ran there; `silent`: no answer."""

    nodes: list[dict[str, Any]]
    silent: list[dict[str, Any]]
    idle: list[dict[str, Any]]
    excluded: list[dict[str, Any]]


def _standing(nodes: list[dict[str, Any]], answered: set[str], ratio: float) -> _Standing:
    silent = [node for node in nodes if node["node"] not in answered or _fell_silent(node["results"])]
    silent_names = {node["node"] for node in silent}
    idle = [
        node
        for node in nodes
        if node["node"] not in silent_names
        and not any(result["status"] in RAN for result in node["results"])
        and not is_only_busy(node["results"])
    ]
    # When nothing ran on many, that is no fault of each of them: the allocation is not started at all.
    idle_names = {node["node"] for node in idle} if _too_many(idle, nodes, ratio) else set()
    excluded = [
        node
        for node in nodes
        if node["node"] in silent_names
        or node["verdict"] == "bad"
        or (node["verdict"] == "unknown" and node["node"] not in idle_names and not _is_explained(node["results"]))
    ]
    return _Standing(nodes, silent, idle, excluded)


def _aborts(
    standing: _Standing,
    confused: list[dict[str, Any]],
    unavailable: list[dict[str, Any]],
    min_nodes: Optional[int],
    ratio: float,
) -> list[str]:
    """Return why the job must not start, the weightiest first."""
    total, excluded = len(standing.nodes), len(standing.excluded)
    reasons = []
    if _too_many(standing.silent, standing.nodes, ratio):
        reasons.append(sentences.many_silent(standing.silent, total))
    reasons += [sentences.untested(entry, total) for entry in unavailable if entry["abort"]]
    reasons += [sentences.confusion(entry) for entry in confused if entry.get("abort")]
    if _too_many(standing.idle, standing.nodes, ratio) and not reasons:
        reasons.append(sentences.nothing_ran(standing.idle, total))
    left = total - excluded
    if left == 0:
        reasons.append(sentences.none_left(standing.excluded))
    elif min_nodes is not None and left < min_nodes:
        reasons.append(sentences.too_few(left, min_nodes, standing.excluded))
    elif min_nodes is None and excluded > _MOST_EXCLUDED_RATIO * total:
        reasons.append(sentences.most_excluded(standing.excluded, total))
    return reasons


def _verdict(results: list[dict[str, Any]]) -> str:
    """Return a node's verdict; one that stopped answering is unknown even when only what is not required was open."""
    found = verdict(results)
    return "unknown" if found != "bad" and _fell_silent(results) else found


def _confused_failures(sheets: Sheets, rules: list[dict[str, Any]], ratio: float) -> list[dict[str, Any]]:
    """Find the required checks that so many nodes fail alike that it says nothing of a node, and mark those results.

    A failure with evidence of its own counts against its node however many have it: a rule calls it `hard`, or, where no
    rule speaks of it, the kernel logged an XID.
    """
    failed: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for node, results in sheets.items():
        for result in results:
            if result["status"] == "fail" and result.get("required", True) and not result.get("judged"):
                result["rule"] = _rule(rules, result)
                if not _has_own_evidence(result):
                    failed.setdefault(result.get("name") or result["check"], []).append((node, result))
    found = []
    for name, members in failed.items():
        if not _too_many(members, sheets, ratio):
            continue
        first = f"first {members[0][0]}: {members[0][1].get('evidence')}"
        text = f"{len(members)} of {len(sheets)} nodes fail it, {first}; so many point to the threshold or to what they share"
        for _, result in members:
            result["confused"] = True
            result["evidence"] = (
                f"{result.get('evidence')}; not held against this node: {len(members)} of {len(sheets)} fail it"
            )
        found.append({"check": name, "nodes": [node for node, _ in members], "text": text, "abort": True})
    return found


def _has_own_evidence(result: dict[str, Any]) -> bool:
    rule = result["rule"]
    if rule is not None:
        return bool(rule.get("kind") == "hard")
    return bool(result["facts"].get("xids"))


def _sheet(node: str, results: Optional[list[dict[str, Any]]], pairs: Optional[PairOutcome]) -> list[dict[str, Any]]:
    """Return copies of a node's results, the pair test's among them, that may be changed."""
    if results is None:
        return [_sound(unknown_result({"check": "node.answer"}, "the node did not answer", "silent"))]
    sheet = [_sound(result) for result in results]
    found = pairs.results.get(node) if pairs is not None else None
    if found is not None:
        sheet.append({**_sound(found), "judged": True})
    return sheet


def _sound(result: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which only what checks may say is left; people's own checks may have said anything."""
    sound = dict(result)
    if not isinstance(sound.get("facts"), dict):
        sound["facts"] = {}
    compare = sound.get("compare")
    if compare:
        rules = compare if isinstance(compare, list) else []
        sound["compare"] = [rule for rule in rules if isinstance(rule, dict) and rule.get("kind") in _COMPARISONS]
    if sound["status"] not in STATUSES:
        sound["evidence"] = f"the check said {sound['status']!r}, which is no status; {sound.get('evidence') or ''}"
        sound["status"], sound["cause"] = "unknown", "error"
    return sound


def _name_rules(sheet: list[dict[str, Any]], rules: list[dict[str, Any]], scopes: dict[str, str]) -> None:
    """Give each result that is off its rule; whose fault it is says the protocol, where it says that."""
    for result in sheet:
        if result["status"] in ("pass", "skip"):
            result["rule"] = None
        elif result.get("rule") is None:
            result["rule"] = _rule(rules, result)
        scope = scopes.get(result.get("name") or "")
        if scope and result["rule"]:
            result["rule"] = {**result["rule"], "scope": scope}
        result.pop("judged", None)


def _named_link(link: dict[str, Any], rules: list[dict[str, Any]]) -> dict[str, Any]:
    as_result = {"check": "pair.bandwidth", "status": "warn", "evidence": link["text"], "facts": {}}
    return {**link, "rule": _rule(rules, as_result)}


def _rule(rules: list[dict[str, Any]], result: dict[str, Any]) -> Optional[dict[str, Any]]:
    found = match(rules, result)
    return None if found is None else {key: found[key] for key in _KEPT_OF_RULES if key in found}


def _is_excused(result: dict[str, Any]) -> bool:
    """Return whether it is no fault of the node that a check is unknown: closed at this site, or measured on a busy host."""
    return result.get("cause") == BUSY or (bool(result.get("unavailable")) and result.get("cause") == "closed")


def _is_explained(results: list[dict[str, Any]]) -> bool:
    """Return whether something ran, and all that is unknown is so on many nodes for one reason, or because the host was busy."""
    if is_only_busy(results):
        return True
    unknown = [one for one in results if one["status"] == "unknown" and one.get("required", True)]
    ran = any(one["status"] in RAN for one in results)
    return ran and bool(unknown) and all(one.get("unavailable") for one in unknown)


def _fell_silent(results: list[dict[str, Any]]) -> bool:
    return any(one["status"] == "unknown" and one.get("cause") == "silent" for one in results)


def _too_many(some: Any, of: Any, ratio: float) -> bool:
    return len(some) >= 2 and len(some) > ratio * len(of)
