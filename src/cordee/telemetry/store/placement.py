"""Where ranks stand in the training's parallelism, from what they or their commands said, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordee.core.findings import Finding

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

# Experts have a numbering of their own over the ranks that the others number already.
_BESIDE = ("ep",)
_MOST_SHOWN = 8
_NEXT = "call cordee.layout in every rank with all dimensions, each (index, size), once the groups are made"

Place = dict[str, Any]


def placement(run: Run) -> dict[int, Place]:
    """Return the place of each rank that told one: `{place: {dp: 1}, sizes: {dp: 4}, source, attempt, node}`, by rank.

    Only the newest attempt in which any rank told its place counts: older ones may have had other groups. `source` is
    `call`, `mesh`, `megatron` or `settings`; sizes that were not told are not there.
    """
    newest: dict[int, Place] = {}
    for node, about in run.facts("rank").items():
        for device, facts in about["devices"].items():
            told = _told(node, facts)
            if told is not None and device.isdigit():
                before = newest.get(int(device))
                if before is None or before["attempt"] < told["attempt"]:
                    newest[int(device)] = told
    attempt = max((told["attempt"] for told in newest.values()), default=0)
    return {rank: newest[rank] for rank in sorted(newest) if newest[rank]["attempt"] == attempt}


def sizes_of(places: Mapping[int, Place]) -> dict[str, int]:
    """Return how many groups each dimension has: as told, else one more than the greatest index seen."""
    found: dict[str, int] = {}
    for told in places.values():
        for name, index in told["place"].items():
            found[name] = max(found.get(name, 0), told["sizes"].get(name, index + 1))
    return found


def placement_findings(places: Mapping[int, Place], world_size: int) -> list[Finding]:
    """Return what is wrong with places: none of it ever stops a training, but pictures sorted by it would mislead.

    Args:
        places: of `placement`.
        world_size: how many ranks there are; 0: not known.
    """
    if not places:
        return []
    found = _refused(places)
    known = {rank: told for rank, told in places.items() if told["place"]}
    found += _beyond(known) + _unequal(known)
    if not found and known:
        found += _numbers(known, world_size)
    if known and world_size > len(known):
        absent = [rank for rank in range(world_size) if rank not in known]
        text = f"{len(absent)} of {world_size} ranks told no place: {_listed(absent)}"
        found.append(_finding("place-missing", text, severity="info", evidence={"ranks": absent[:_MOST_SHOWN]}))
    return found


def _told(node: str, facts: Mapping[str, Any]) -> Place | None:
    place, sizes, attempt = facts.get("place"), facts.get("sizes"), facts.get("place_attempt")
    if not isinstance(place, dict) or not isinstance(sizes, dict) or not isinstance(attempt, int):
        return None
    if not all(isinstance(number, int) for number in (*place.values(), *sizes.values())):
        return None
    return {
        "place": place,
        "sizes": sizes,
        "source": str(facts.get("place_source", "call")),
        "attempt": attempt,
        "node": node,
        "refused": str(facts.get("place_refused", "")),
    }


def _refused(places: Mapping[int, Place]) -> list[Finding]:
    reasons: dict[str, list[int]] = {}
    for rank, told in places.items():
        if told["refused"]:
            reasons.setdefault(told["refused"], []).append(rank)
    return [
        _finding("place-refused", f"the place of {_ranks(ranks)} is not known: {reason}", evidence={"ranks": ranks[:8]})
        for reason, ranks in reasons.items()
    ]


def _beyond(places: Mapping[int, Place]) -> list[Finding]:
    found = []
    for rank, told in places.items():
        for name, index in told["place"].items():
            size = told["sizes"].get(name)
            if index < 0 or (size is not None and index >= size):
                allowed = f"0 to {size - 1}" if size is not None else "0 or more"
                text = f"rank {rank} says that it is {name} {index}, of {'?' if size is None else size}"
                found.append(_finding("place-beyond", text, given=index, allowed=allowed, evidence={"ranks": [rank]}))
    return found[:_MOST_SHOWN]


def _unequal(places: Mapping[int, Place]) -> list[Finding]:
    """Return what ranks disagree about: dimensions, or the size of one."""
    shapes: dict[str, list[int]] = {}
    for rank, told in places.items():
        words = " x ".join(f"{name} {told['sizes'].get(name, '?')}" for name in sorted(told["place"]))
        shapes.setdefault(words, []).append(rank)
    if len(shapes) == 1:
        return []
    groups = sorted(shapes.items(), key=lambda item: -len(item[1]))[:_MOST_SHOWN]
    text = "ranks disagree about the parallelism: " + "; ".join(f"{words}: {_ranks(ranks)}" for words, ranks in groups)
    evidence = {"ranks": groups[-1][1][:_MOST_SHOWN]}
    return [_finding("place-disagreement", text, evidence=evidence)]


def _numbers(places: Mapping[int, Place], world_size: int) -> list[Finding]:
    """Return whether sizes multiply to the world, and whether two ranks claim one place where they do."""
    sizes = sizes_of(places)
    told = all(set(one["sizes"]) >= set(one["place"]) for one in places.values())
    world = world_size or len(places)
    plain = [name for name in sizes if name not in _BESIDE]
    numbering = next(
        (names for names in (plain, list(sizes)) if math.prod(sizes[name] for name in names) == world), None
    )
    words = " x ".join(f"{name} {sizes[name]}" for name in plain)
    product = math.prod(sizes[name] for name in plain)
    if numbering is None:
        if not told:
            return []
        partial = plain and product < world and world % product == 0
        text = f"{words} = {product}, but there are {world} ranks"
        text += ": a dimension was not told" if partial else ""
        severity = "info" if partial else "warn"
        return [_finding("place-world", text, severity=severity, given=product, allowed=world)]
    claimed: dict[tuple[int, ...], list[int]] = {}
    for rank, one in places.items():
        claimed.setdefault(tuple(one["place"].get(name, 0) for name in numbering), []).append(rank)
    twice = {where: ranks for where, ranks in claimed.items() if len(ranks) > 1}
    found = []
    for where, ranks in list(twice.items())[:_MOST_SHOWN]:
        at = " ".join(f"{name} {index}" for name, index in zip(numbering, where, strict=True))
        text = f"{_ranks(ranks)} say that they are at one place, {at}"
        found.append(_finding("place-twice", text, evidence={"ranks": ranks[:_MOST_SHOWN]}))
    return found


def _finding(rule: str, text: str, *, severity: str = "warn", **more: Any) -> Finding:
    return Finding(text, severity, rule, next=_NEXT, **more)


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_SHOWN]))
    return shown + (f" and {len(ranks) - _MOST_SHOWN} more" if len(ranks) > _MOST_SHOWN else "")
