"""A hang in words: who keeps whom waiting since when, why, where in the script, and what to do next."""

from __future__ import annotations

from typing import Any

from cordee.core.draw.clean import one_line, ranges
from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.systems.explain.hang.evidence import Hang
from cordee.systems.explain.hang.judge import QUIET, UNKNOWN, HangVerdict

_NEXT = {
    "collective": "look for a branch that only some ranks take, or a call that was left out before",
    "size": "look at what decides the tensor's size on this rank: last batch, uneven split, other settings",
    "dtype": "look at what decides the type on this rank: autocast, loaded weights, other settings",
    "order": "let all ranks make the same calls in the same order",
    "p2p": "compare the sends and receives of both ranks: number, order, size",
    "gpu": "look at its GPU: a kernel that does not end, or a stream that waits for another one",
    "stopped": "continue it with `kill -CONT` on its node, or find out who stopped it: a debugger, a scheduler that suspends jobs",
    "gil": "look at the C code that it is in: a library that computes without giving the GIL back, or a loop that never ends",
    "data-loader": "look at its workers and at where they read: a worker that died or stands still, a store that does not answer",
    "checkpoint": "look at the file system that it saves to, and whether all ranks save together",
    "teardown": "look at what is closed at the end: loggers, worker processes, process groups that only some ranks destroy",
    "file-system": "ask who runs that file system; move what the ranks read or write elsewhere, and resume the run",
    "input": "look at who should write there, or take the wait out of the training",
    "busy": "if it is meant (validation, a long save), set [hang] after higher; else look at that line",
    "ended": "let all ranks make the same number of steps: uneven data, or an early return on that rank",
    "missing-rank": "look at that line: what it waits for, or a branch that skips the call on this rank",
    QUIET: "if it is meant, set [hang] enabled = false; else have the script tell its steps (cordee.log), or set [hang] after",
    UNKNOWN: "compare the ranks with `cordee stacks`; look at links and GPUs of their nodes; with NCCL, TORCH_NCCL_ENABLE_TIMING=1 shows whose GPU has not begun",
}
_ENDED = "ended"


def hang_finding(verdict: HangVerdict, hang: Hang) -> Finding:
    """Return a cause of a hang as a finding; its evidence says all that is known of it, as JSON."""
    ranks = list(verdict.ranks or verdict.suspects)
    nodes = sorted({hang.ranks[rank].node for rank in ranks if rank in hang.ranks and hang.ranks[rank].node})
    evidence: dict[str, Any] = {
        "hang": hang.number,
        "attempt": hang.attempt,
        "kind": f"hang-{verdict.kind}",
        "ranks": list(verdict.ranks),
        "suspects": list(verdict.suspects),
        "nodes": nodes,
        "where": verdict.where,
        "waiting": list(verdict.waiting),
        "waiting_at": verdict.at,
        "process_group": verdict.group,
        "sequence": verdict.sequence,
        "since": hang.since,
        "hardware": [line for node in nodes if node in hang.nodes for line in hang.nodes[node].kernel_log[-5:]],
    }
    text = sentence(verdict, hang, nodes)
    severity = "warn" if verdict.kind in (UNKNOWN, QUIET, "busy") else "error"
    return Finding(text, severity, f"hang-{verdict.kind}", next=_NEXT[verdict.kind], evidence=evidence)


def sentence(verdict: HangVerdict, hang: Hang, nodes: list[str]) -> str:
    """Return one sentence, or two: who, where, why, and who waits for them."""
    lasted = format_duration(max(0.0, hang.declared_at - hang.since))
    waits = _others(verdict, hang)
    if verdict.kind == QUIET:
        return f"no rank has done anything for {lasted}{_at(verdict.where)}: {verdict.why}"
    if verdict.kind == UNKNOWN:
        suspected = f"; suspected: {_ranks(verdict.suspects)}" if verdict.suspects else ""
        return f"no rank has gone on for {lasted}{waits and f'; {waits}'}: {verdict.why}{suspected}"
    one = len(verdict.ranks) == 1
    who = f"{_ranks(verdict.ranks)}{_on(nodes)}"
    if verdict.flight is not None:
        there = f"; {_ranks(verdict.ranks)} {'is' if one else 'are'}{_on(nodes)}" if nodes else ""
        return f"no rank has gone on for {lasted}: {verdict.why}{_at(verdict.where)}{there}"
    if verdict.kind == _ENDED:
        return f"{who} {verdict.why}, and {waits or 'the others wait for it'}; no rank has gone on for {lasted}"
    stands = f"{who} {'has' if one else 'have'} not gone on for {lasted}{_at(verdict.where)}"
    if verdict.kind == "busy":
        stands = f"{who} {'has' if one else 'have'} been busy for {lasted} without a step{_at(verdict.where)}"
    why = f": {verdict.why}" if verdict.why else ""
    return f"{stands}{why}{waits and f'; {waits}'}"


def _others(verdict: HangVerdict, hang: Hang) -> str:
    count = len(verdict.waiting)
    if not count:
        return ""
    call = (
        f" in collective {verdict.sequence} of process group {verdict.group or '0'}"
        if verdict.sequence is not None
        else ""
    )
    return f"{count} of {hang.world} ranks wait{call}{_at(verdict.at)}"


def _ranks(ranks: tuple[int, ...]) -> str:
    text = ranges(list(ranks[:64]))
    more = f" and {len(ranks) - 64} more" if len(ranks) > 64 else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {text}{more}"


def _on(nodes: list[str]) -> str:
    return f" on {', '.join(nodes[:4])}{f' and {len(nodes) - 4} more' if len(nodes) > 4 else ''}" if nodes else ""


def _at(where: str) -> str:
    return f" at {one_line(where, 300)}" if where else ""
