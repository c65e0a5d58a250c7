"""Findings about a hang in words: what hangs, who is to blame, where in the script, and what to do next."""

from __future__ import annotations

from typing import Any

from cordee.core.draw.clean import ranges
from cordee.core.units import format_duration, format_size

_NEXT = {
    "cpu-stall": "look at its Python stack: data loader, checkpoint, file system, or a loop that never reaches the call",
    "gpu-stall": "look at its GPU: a kernel that does not end, or a stream that waits for another one",
    "missing-rank": "look for a branch that skips the call on this rank",
    "wrong-collective": "look for a branch that only some ranks take, or a call that was left out before",
    "size": "look at what decides the tensor's size on this rank: last batch, uneven split, other settings",
    "dtype": "look at what decides the type on this rank: autocast, loaded weights, other settings",
    "order": "let all ranks call the groups in the same order",
    "coalesced": "let all ranks put the same calls into the batch",
    "all-to-all": "let the split sizes that ranks send and expect agree",
    "p2p": "compare the sends and receives of both ranks: number, order, size",
    "unknown": "get the dumps that are missing, and Python stacks of the suspects",
}


def said_of(ranks: list[int]) -> str:
    """Return ranks as a sentence begins: `rank 3`, `ranks 1-3, 7`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {_some(ranks)}"


def _some(ranks: list[int]) -> str:
    text = ranges(ranks[:64])
    return text if len(ranks) <= 64 else f"{text} and {len(ranks) - 64} more"


def sentence(finding: dict[str, Any]) -> str:
    """Return one sentence: who did what in which group, and what the others wait for."""
    ranks, suspects = finding["ranks"], finding["suspects"]
    place = f"in process group {finding['process_group']}"
    if finding["sequence"] is not None:
        call = f"{finding['call']} " if finding["call"] else ""
        place = f"{call}{finding['sequence']} {place}"
    who = said_of(ranks) if ranks else ""
    one = len(ranks) == 1
    others = f"{finding['arrived']} of {finding['members']} ranks wait"
    match finding["kind"]:
        case "cpu-stall":
            text = f"{who} {'has' if one else 'have'} not called {place}, and wait{'s' if one else ''} in no other; {others}"
            if finding["sequence"] is None:
                text = f"{who} {'has' if one else 'have'} not come to a transfer {place}"
        case "missing-rank":
            text = f"{who} did not call {place}; {others}"
        case "gpu-stall":
            text = f"{who} called {place}, and {'its GPU has' if one else 'their GPUs have'} not started it; the others' have"
        case "wrong-collective" | "size" | "dtype" | "coalesced":
            text = _mismatch(finding, who, place)
        case "order":
            text = f"{who} and the others call {place} in different order"
            if not ranks:
                text = f"{said_of(suspects)} wait for each other {place}"
        case "all-to-all":
            text = f"{who or 'some rank'} called {place} with other split sizes than the others expect"
        case "p2p":
            text = f"{who or 'one of ' + said_of(suspects)} broke a transfer {place}"
        case _:
            text = f"{place} does not end, and the cause is not known"
            if suspects:
                text += f"; suspected: {said_of(suspects)}"
    return f"{text}; {finding['why']}" if finding["why"] else text


def _mismatch(finding: dict[str, Any], who: str, place: str) -> str:
    called = finding["called"]
    if not finding["ranks"]:
        each = ", ".join(f"rank {rank} {call}" for rank, call in called.items())
        return f"ranks call different things at {place}: {each}"
    what = called[str(finding["ranks"][0])]
    return f"{who} called {what}, the others {finding['should']}, at {place}"


def next_of(finding: dict[str, Any]) -> str:
    """Return what to do about a finding."""
    return _NEXT[finding["kind"]]


def lines(document: dict[str, Any]) -> list[str]:
    """Return a whole document as the terminal shows it."""
    world = f" of {document['world']} ranks" if document["world"] else ""
    waiting = document["waiting"]
    text = [
        f"{document['dumps']} dumps{world}; {waiting} {'ranks wait' if waiting != 1 else 'rank waits'} in a call that has not ended"
    ]
    if not document["dumps"]:
        text = ["no dump could be read, so nothing can be said"]
    elif not document["findings"]:
        text.append("no hang is seen: whatever was called has ended")
    for finding in document["findings"]:
        text += ["", f"{finding['kind']}: {finding['text']}"]
        text += [f"  {name + ':':<10}{finding[key]}" for name, key in _SHOWN if finding[key]]
        text += [f"  {'on:':<10}{_placed(place)}" for place in finding.get("places", [])[:8]]
        text.append(f"  {'next:':<10}{finding['next']}")
    text += [""] * bool(document["notes"] or document["refused"] or document["missing_ranks"])
    if document["missing_ranks"]:
        text.append(f"no dump of {said_of(document['missing_ranks'])}")
    text += [f"not read: {refused['path']}: {refused['why']}" for refused in document["refused"]]
    return text + list(document["notes"])


def traffic_lines(traffic: dict[str, Any] | None) -> list[str]:
    """Return who sent how much to whom and who waited for whom as the terminal shows it: sums, and the most of each dimension."""
    if traffic is None or not traffic["calls"]:
        return [] if traffic is None else ["", "no call has ended, so nobody is known to have sent anything"]
    stretch = format_duration(traffic["last"] - traffic["first"])
    newest = f", the newest {traffic['newest']} of each rank" if traffic["newest"] else ""
    by = {"rank": "by rank", "node": "by node", "nodes": "by nodes in a row", "ranks": "by ranks in a row"}[
        traffic["by"]
    ]
    text = [
        "",
        f"communication in {stretch}, {by}: {traffic['calls']} calls{newest}; bytes as rings and chains would send them",
    ]
    labels = [cell["label"] for cell in traffic["cells"]]
    for one in traffic["dimensions"]:
        sizes = sorted({one["least_ranks"], one["most_ranks"]})
        of = f"{one['groups']} of {'-'.join(map(str, sizes))} ranks"
        text.append(
            f"  {one['name']}: {of}, {one['calls']} calls, {format_size(int(one['bytes']))}, waits of {one['wait_s']:.3g} s in sum"
        )
        if one["sent"]:
            sender, receiver, amount = max(one["sent"], key=lambda cell: cell[2])
            text.append(
                f"    most sent:   {format_size(int(amount))} from {labels[int(sender)]} to {labels[int(receiver)]}"
            )
        for index, waited, count in _most_waited_for(one["waited"]):
            text.append(f"    waited for:  {labels[index]}, {waited:.3g} s in sum by {count} others")
    text += [f"  not counted: {count} {what}" for what, count in traffic["uncounted"].items()]
    if traffic["missing"]:
        text.append(f"  of {traffic['missing']} ranks without a dump only what others received from them is counted")
    if traffic["clocks"]:
        text.append(
            f"  clocks taken to be apart, and set right by when calls ended: {said_of(sorted(map(int, traffic['clocks'])))}"
        )
    return text


def _most_waited_for(waited: list[list[float]]) -> list[tuple[int, float, int]]:
    """Return the three cells that others waited for most: place, seconds, and how many waited."""
    sums: dict[int, tuple[float, int]] = {}
    for waiting, last, seconds in waited:
        if waiting != last:
            total, count = sums.get(int(last), (0.0, 0))
            sums[int(last)] = total + seconds, count + 1
    most = sorted(sums.items(), key=lambda one: -one[1][0])[:3]
    return [(index, total, count) for index, (total, count) in most]


_SHOWN = (("where", "where"), ("expected", "expected"), ("last call", "last"))


def _placed(place: dict[str, Any]) -> str:
    mesh = " ".join(f"{name}={index}" for name, index in place["mesh"].items())
    parts = [f"rank {place['rank']}", f"node {place['node']}" if place["node"] else "", mesh, *place["hardware"]]
    return ", ".join(part for part in parts if part)
