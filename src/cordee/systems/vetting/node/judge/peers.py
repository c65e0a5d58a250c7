"""Results held against those of the other nodes: who is off, and when it is the reference that must be wrong.

With at least `LEAST_PEERS` values, or with the fleet's baseline, a node that is off is blamed; with two or three values
the deviation is a warning. When more than the confusion ratio of the values are off, at least two, nobody is blamed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NamedTuple, Optional

from cordee.core.stats import median, quantile
from cordee.core.units import format_size
from cordee.systems.vetting.node.judge.unknowns import BUSY, RAN

LEAST_PEERS = 4
ALONE = "nobody to compare with"
BUSY_WORDS = "not held against this node: its host is busy (host.load), so that a low value says nothing of it"
_PERCENTILE = 0.75
_SEVERITY = {"unknown": -1, "pass": 0, "warn": 1, "fail": 2}

Sheets = dict[str, list[dict[str, Any]]]


class ComparedValue(NamedTuple):
    """One value of a comparison: whose it is, and the `Comparison` of its result."""

    node: str
    result: dict[str, Any]
    value: Any
    rule: dict[str, Any]


class Off(NamedTuple):
    """A value that is off: why in words, what it was held against, and whether that is enough to blame the node."""

    entry: ComparedValue
    words: str
    reference: Optional[dict[str, Any]]
    blame: bool


class PeerJudgement(NamedTuple):
    """What one comparison found; `lost` says why there is no telling who is off."""

    off: list[Off]
    lost: str = ""


def compare(
    sheets: Sheets, baseline: dict[str, Any], confusion_ratio: float, busy: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Hold all results against their peers: changes those that are off, and returns where nobody could be blamed.

    Args:
        sheets: the results of every node that answered; they get `threshold` and `reference`, and those that are off a
            worse `status` and words in their `evidence`.
        baseline: `{"value", "n"}` of the fleet for a check, by its name in the protocol or its own.
        confusion_ratio: share of the nodes of a comparison above which the reference is taken to be wrong.
        busy: nodes that something else uses: what they measure too low is unknown.

    Returns:
        `{"check", "nodes", "text", "abort"}` for each; `abort`: the check is required and would have failed nodes.
    """
    bases = _Baselines(baseline, sheets)
    confused = []
    for (name, kind, of, _), entries in _comparisons(sheets).items():
        if len(entries) == 1 and not (kind == "low" and bases.of(entries[0].result)):
            _say_once(entries[0].result, ALONE)
            continue
        if kind == "low":
            judgement = _excused(_low(entries, bases.of(entries[0].result) if of == "value" else None), busy)
        elif kind == "high":
            judgement = _high(entries)
        else:
            judgement = _same(entries)
        found = _settle(name, entries, judgement, confusion_ratio)
        if found is not None:
            confused.append(found)
    return confused


def amount(value: Any, unit: Optional[str]) -> str:
    """Return a value with its unit as people read it."""
    if not _is_number(value):
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if unit in ("bytes", "B"):
        return format_size(value)
    if unit in ("bytes/s", "B/s", "bytes_per_s"):
        return f"{format_size(value)}/s"
    return f"{value:.4g} {unit}" if unit else f"{value:.6g}"


class _Baselines:
    """The fleet's baseline of a result; none where one check is asked twice, since it would not be clear for which."""

    def __init__(self, baseline: dict[str, Any], sheets: Sheets) -> None:
        self._baseline = baseline
        names: dict[str, set[str]] = {}
        if baseline:
            for results in sheets.values():
                for result in results:
                    names.setdefault(result["check"], set()).add(_name(result))
        self._twice = {check for check, asked in names.items() if len(asked) > 1}

    def of(self, result: dict[str, Any]) -> Optional[dict[str, Any]]:
        found = self._baseline.get(_name(result))
        if found is None and result["check"] not in self._twice:
            found = self._baseline.get(result["check"])
        return found if found and _is_number(found.get("value")) else None


def _comparisons(sheets: Sheets) -> dict[tuple[str, str, str, Any], list[ComparedValue]]:
    """Return what is to be compared with each other, by name of the check, kind, subject and GPU model."""
    groups: dict[tuple[str, str, str, Any], list[ComparedValue]] = {}
    for node, results in sheets.items():
        for result in results:
            if not result.get("compare") or result["status"] not in RAN:
                continue
            model = _model(result)
            for rule in result["compare"]:
                entry = _entry(node, result, rule)
                if entry is not None:
                    of = rule.get("of") or "value"
                    key = (_name(result), rule["kind"], of, None if "model" in of else model)
                    groups.setdefault(key, []).append(entry)
    return groups


def _entry(node: str, result: dict[str, Any], rule: dict[str, Any]) -> Optional[ComparedValue]:
    """Return what there is to compare, or None: no value, or a rule without its number."""
    of = rule.get("of") or "value"
    value = result.get("value") if of == "value" else result["facts"].get(of)
    needs = {"low": "ratio", "high": "margin"}.get(rule["kind"])
    if value is None or (needs and not (_is_number(value) and _is_number(rule.get(needs)))):
        return None
    return ComparedValue(node, result, value, rule)


def _model(result: dict[str, Any]) -> Any:
    """Return the GPU model that a result is about, or the models; None when it names none."""
    facts = result["facts"]
    if facts.get("model") is not None:
        return str(facts["model"])
    devices = facts.get("devices")
    if not isinstance(devices, list):
        return None
    models = {str(device["model"]) for device in devices if isinstance(device, dict) and device.get("model")}
    return tuple(sorted(models)) or None


def _low(entries: list[ComparedValue], base: Optional[dict[str, Any]]) -> PeerJudgement:
    usual = quantile([entry.value for entry in entries], _PERCENTILE)
    peers = {"kind": "peer", "value": usual, "n": len(entries)}
    reference, whose = peers, f"the 75th percentile of {len(entries)} nodes"
    if base is not None and base["value"] >= usual:
        reference, whose = {"kind": "fleet", "value": base["value"], "n": base.get("n")}, "the fleet's baseline"
    off = []
    for entry in entries:
        ratio = entry.rule["ratio"]
        limit = ratio * reference["value"]
        own = entry.result.get("threshold")
        _note(entry, limit, reference, own is None or limit > own)
        if entry.value >= limit:
            continue
        blame = len(entries) >= LEAST_PEERS or (base is not None and entry.value < ratio * base["value"])
        unit = entry.result.get("unit") if _about_value(entry) else None
        held = amount(reference["value"], unit)
        words = f"{_subject(entry)}{amount(entry.value, unit)} is below {ratio:g} x {held}, {whose}"
        off.append(Off(entry, words, reference, blame))
    return PeerJudgement(off)


def _excused(judgement: PeerJudgement, busy: frozenset[str]) -> PeerJudgement:
    """Make what busy nodes measured too low unknown, and return what is left; a failure that they have already stays."""
    for one in judgement.off:
        result = one.entry.result
        if one.entry.node in busy and result["status"] != "fail":
            result["status"], result["cause"] = "unknown", BUSY
            _say_once(result, f"{one.words}; {BUSY_WORDS}")
    return judgement._replace(off=[one for one in judgement.off if one.entry.node not in busy])


def _high(entries: list[ComparedValue]) -> PeerJudgement:
    middle = median(entry.value for entry in entries)
    reference = {"kind": "peer", "value": middle, "n": len(entries)}
    off = []
    for entry in entries:
        margin = entry.rule["margin"]
        limit = middle + margin
        own = entry.result.get("threshold")
        _note(entry, limit, reference, own is None or limit < own)
        if entry.value > limit:
            unit = entry.result.get("unit") if _about_value(entry) else None
            held = f"{amount(middle, unit)}, the median of {len(entries)} nodes"
            words = f"{_subject(entry)}{amount(entry.value, unit)} is more than {margin:g} above {held}"
            off.append(Off(entry, words, reference, len(entries) >= LEAST_PEERS))
    return PeerJudgement(off)


def _same(entries: list[ComparedValue]) -> PeerJudgement:
    keys = [json.dumps(entry.value, sort_keys=True, default=str) for entry in entries]
    counts = Counter(keys)
    if len(counts) == 1:
        return PeerJudgement([])
    most = max(counts.values())
    modes = sorted(key for key, count in counts.items() if count == most)
    shown = {key: amount(entry.value, None)[:200] for key, entry in zip(keys, entries)}
    if len(modes) > 1 or 2 * most < len(entries):
        few = ", ".join(
            f"{shown[key]} on {counts[key]}" for key in sorted(counts, key=lambda key: (-counts[key], key))[:4]
        )
        text = f"{len(counts)} values on {len(entries)} nodes and no majority: {few}"
        said = [f"{_subject(entry)}{shown[key]} here; {text}" for key, entry in zip(keys, entries)]
        return PeerJudgement([Off(entry, words, None, True) for entry, words in zip(entries, said)], text)
    usual = next(entry.value for key, entry in zip(keys, entries) if key == modes[0])
    reference = {"kind": "peer", "value": usual, "n": most}
    blame = len(entries) >= LEAST_PEERS
    off = []
    for key, entry in zip(keys, entries):
        if key != modes[0]:
            words = f"{_subject(entry)}{shown[key]} here, {shown[modes[0]]} on {most} of {len(entries)} nodes"
            off.append(Off(entry, words, reference, blame))
    return PeerJudgement(off)


def _settle(
    name: str, entries: list[ComparedValue], judgement: PeerJudgement, ratio: float
) -> Optional[dict[str, Any]]:
    """Blame those who are off, or nobody: then return why."""
    off = judgement.off
    blamed = [one for one in off if one.blame]
    too_many = len(blamed) >= 2 and len(blamed) > ratio * len(entries)
    for one in off:
        status = one.entry.rule.get("status") or "fail"
        _worsen(one, status if one.blame and not too_many else "warn")
        if too_many and not judgement.lost:
            words = f"not held against this node: {len(blamed)} of {len(entries)} nodes are off"
            _say_once(one.entry.result, words)
    if not too_many:
        return None
    text = judgement.lost or (
        f"{len(blamed)} of {len(entries)} nodes are off, first {blamed[0].entry.node}: {blamed[0].words}; "
        "so many point to the reference or to what they share, not to a node"
    )
    hard = any((one.entry.rule.get("status") or "fail") == "fail" and _is_required(one) for one in blamed)
    abort = hard and not (judgement.lost and len(entries) < LEAST_PEERS)
    return {"check": name, "nodes": [one.entry.node for one in blamed], "text": text, "abort": abort}


def _worsen(one: Off, status: str) -> None:
    result = one.entry.result
    if _SEVERITY[status] > _SEVERITY[result["status"]]:
        result["status"], result["cause"] = status, None
        if one.reference is not None:
            result["reference"] = one.reference
    _say_once(result, one.words)


def _note(entry: ComparedValue, limit: float, reference: dict[str, Any], stricter: bool) -> None:
    """Say what the value was held against, unless its own threshold is the stricter one or has been missed already."""
    if _about_value(entry) and stricter and entry.result["status"] != "fail":
        entry.result["threshold"] = limit
        entry.result["reference"] = reference


def _say_once(result: dict[str, Any], words: str) -> None:
    evidence = result.get("evidence") or ""
    if words not in evidence:
        result["evidence"] = f"{evidence}; {words}" if evidence else words


def _subject(entry: ComparedValue) -> str:
    return "" if _about_value(entry) else f"{entry.rule['of']}: "


def _about_value(entry: ComparedValue) -> bool:
    return (entry.rule.get("of") or "value") == "value"


def _name(result: dict[str, Any]) -> str:
    return str(result.get("name") or result["check"])


def _is_required(one: Off) -> bool:
    return bool(one.entry.result.get("required", True))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
