"""A straggler in words: who, by how much, since when, why, with what beside it, and what to do."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence

from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size, utc_text
from cordee.systems.explain.node.slow.causes import SlowCause
from cordee.systems.explain.node.slow.detector import SlowOver, SlowRanks
from cordee.systems.explain.node.slow.links import SlowConnection

RANK, NODE, LINK, OVER, TOO_MANY = (
    *("straggler-rank", "straggler-node", "straggler-link"),
    *("straggler-over", "straggler-findings-capped"),
)
_MOST_PROOF = 5
# More page faults in a second than a training has that reads through the page cache now and then.
_FAULTS_PER_ROUND = 1000
_WHY = {
    "compute": "it computes longer",
    "data": "it waits for its data",
    "saving": "it saves",
    "stopped": "it is stopped again and again, or its whole group of processes is",
    "delayed": "it could run, but other threads have its processors",
    "throttled": "its control group has used up its share of processors",
    "host": "its host keeps it from running",
    "link": "data waits to be sent",
    "unknown": "the cause is unknown",
}
_NEXT = {
    "compute": "compare clocks, temperature and binding of its GPU and cores with its peers' (`cordee correlate`); see whether it has more to compute (unequal batches); `cordee vet` looks at the node",
    "data": "look at its data workers and at the storage that it reads; `cordee data bench` measures the loader alone",
    "saving": "let all ranks save together, or save beside the training",
    "stopped": "look at who stops it: a debugger, a scheduler that suspends jobs, a virtual machine that is paused",
    "delayed": "look at what else runs on its cores: other jobs, threads of other ranks, binding; ask for whole nodes",
    "throttled": "ask for more cores for each rank ([need] cpus_per_rank), or start fewer processes and threads",
    "host": "look at what else runs on its node, and at its control group",
    "link": "look at cable, port and switch of this node, and at what else sends there; `cordee topology` shows who shares the switch",
    "unknown": "see where it stands with `cordee stacks`; `cordee vet` looks at the node",
}


class SlowContext(NamedTuple):
    """What a sentence needs besides.

    Attributes:
        attempt: its number.
        began: when it began to be slow, UTC epoch seconds; None: not known.
        proof: what else is known against the node: `{rule, text}`.
        replaced: whether spare nodes are to take the place of its node.
    """

    attempt: int
    began: Optional[float]
    proof: Sequence[Mapping[str, str]] = ()
    replaced: bool = False


def why(cause: SlowCause) -> str:
    """Return the cause as a part of a sentence."""
    paged = cause.faults >= _FAULTS_PER_ROUND
    return _WHY[cause.how or cause.kind] + (
        f", and reads {cause.faults:.0f} pages from disk in ten seconds" if paged else ""
    )


def what_to_do(cause: SlowCause) -> str:
    """Return what to do about a cause."""
    return _NEXT[cause.how or cause.kind]


def slow_finding(slow: SlowRanks, about: SlowContext) -> Finding:
    """Return slow ranks as a finding."""
    who = (
        f"all {len(slow.ranks)} ranks of {slow.node} are"
        if slow.whole_node
        else f"rank {slow.ranks[0]} on {slow.node} is"
    )
    lasts = "still slow" if slow.chronic else "slow"
    text = (
        f"{who} {lasts}, {_by(slow.slower)}{_since(about.began)}: the others wait for {'them' if slow.whole_node else 'it'}"
        f" ({_percent(slow.peers_share)} of their time in communication, against {_percent(slow.share)}); {why(slow.cause)}"
        f"{_with(about)}"
    )
    evidence: dict[str, Any] = {
        "attempt": about.attempt,
        "ranks": list(slow.ranks),
        "nodes": [slow.node] if slow.node else [],
        "where": None,
        "share": round(slow.share, 4),
        "peers_share": round(slow.peers_share, 4),
        "slower": round(slow.slower, 4),
        "since": about.began,
        "cause": slow.cause.kind,
        "how": slow.cause.how or None,
        "more": slow.cause.more,
        "chronic": slow.chronic,
        "proof": [dict(one) for one in about.proof],
        "replaced": about.replaced,
    }
    what = what_to_do(slow.cause)
    return Finding(text, "warn", NODE if slow.whole_node else RANK, next=what, evidence=evidence)


def over_finding(over: SlowOver, about: SlowContext) -> Finding:
    """Return that ranks are as fast as others again."""
    ranks = ", ".join(map(str, over.ranks[:8])) + (f" and {len(over.ranks) - 8} more" if len(over.ranks) > 8 else "")
    text = f"rank {ranks} on {over.node} is as fast as its peers again, after {format_duration(over.lasted_s)}"
    evidence = {
        "attempt": about.attempt,
        "ranks": list(over.ranks),
        "nodes": [over.node] if over.node else [],
        "lasted_s": round(over.lasted_s, 1),
    }
    return Finding(text, "info", OVER, next="nothing, unless it comes again", evidence=evidence)


def link_finding(link: SlowConnection, peer: str, about: SlowContext) -> Finding:
    """Return a slow connection as a finding.

    Args:
        peer: the node at the other end, or its address.
    """
    again = f", {link.retransmits} segments were sent again" if link.retransmits else ""
    text = (
        f"the connection from {link.node} to {peer} is slow{_since(about.began)}: {format_size(link.queued_bytes)} wait to be sent,"
        f" on other connections {format_size(link.usual_bytes)}{again}{_with(about)}"
    )
    evidence = {
        "attempt": about.attempt,
        "ranks": [],
        "nodes": [link.node],
        "where": f"{link.node} to {peer}",
        "queued_bytes": link.queued_bytes,
        "usual_bytes": link.usual_bytes,
        "retransmits": link.retransmits,
        "since": about.began,
        "cause": "link",
        "proof": [dict(one) for one in about.proof],
        "replaced": about.replaced,
    }
    return Finding(text, "warn", LINK, next=_NEXT["link"], evidence=evidence)


def capped_finding(most: int) -> Finding:
    """Return that no more is written."""
    what = "see `cordee stragglers` for those of now"
    return Finding(f"more than {most} stragglers were told: the rest is not written", "info", TOO_MANY, next=what)


def _by(slower: float) -> str:
    return f"by {_percent(slower)}"


def _since(began: Optional[float]) -> str:
    return "" if began is None else f" since {utc_text(began)}"


def _with(about: SlowContext) -> str:
    proof = "; ".join(one["text"] for one in about.proof[:_MOST_PROOF])
    left_out = "; a spare node takes its place at the next restart" if about.replaced else ""
    return (f"; of this node is known: {proof}" if proof else "") + left_out


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
