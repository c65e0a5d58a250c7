"""Conducts the pair test: sends both nodes of each pair what they need, all pairs of a round at once."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Iterable, NamedTuple, Optional

from cordee.core.clock import monotonic
from cordee.systems.vetting.node.judge.node_link import VettedNode
from cordee.systems.vetting.node.judge.pair_judgement import judge
from cordee.systems.vetting.node.judge.pairs import Out, PairOutcome, PairPolicy, PairTest

_CHECK = "pair.bandwidth"
_ROUND_SLACK_S = 10.0
_ANSWER_S = 1.0
_LEAST_S = 2.0
# What nodes leave of a round so that their answers are here at its end, however busy they are: at most so long, and so much
# of what a round has beyond its sending.
_RESERVE_S = 1.0
_RESERVE_SHARE = 0.25
# Causes for which a node cannot be tested whoever its partner is.
_OWN_CAUSES = ("closed", "absent")


class _PairOutcome(NamedTuple):
    """What one pair said: its rate, or why there is none, which of its nodes take part no longer or were late, and whose GPUs met."""

    bytes_per_s: Optional[float]
    reason: str = ""
    out: Optional[dict[str, Out]] = None
    late: tuple[str, ...] = ()
    models: Optional[dict[str, str]] = None


async def run_pairs(
    members: dict[str, VettedNode],
    settings: dict[str, Any],
    switches: dict[str, str],
    baseline: Optional[dict[str, Any]],
    deadline_s: float,
    *,
    seed: Optional[str] = None,
    confusion_ratio: float = 0.3,
    busy: Iterable[str] = (),
    **request: Any,
) -> PairOutcome:
    """Have the nodes measure each other in pairs and return what that says of nodes and links; never raises.

    A round takes what its sending takes and a few seconds; there is none for which the time does not suffice, and the
    verdict is made of those that were. A node that is there but did not answer in time is met again: it may be busy.

    Args:
        members: those that take part, by name.
        settings: `pairs` of the resolved protocol.
        switches: a node list for each switch, as far as known.
        baseline: the fleet's, `{"value", "n"}`.
        deadline_s: for all rounds.
        seed: of the pairs, the vetting's id.
        confusion_ratio: of the protocol's policy.
        busy: nodes that something else uses.
        request: what else the requests to the nodes hold.
    """
    began = monotonic()
    until = began + deadline_s
    policy = _policy(settings, confusion_ratio)
    test = PairTest(
        members, seed or secrets.token_hex(8), switches=switches, baseline=baseline, policy=policy, busy=busy
    )
    models: dict[str, str] = {}
    while until - monotonic() >= settings["seconds"] + _LEAST_S + _ANSWER_S:
        pairs = test.next_round()
        if not pairs:
            break
        round_s = _round_s(settings["seconds"], until - monotonic() - _ANSWER_S)
        meetings = await asyncio.gather(*(_meet(members[a], members[b], settings, round_s, request) for a, b in pairs))
        for (a, b), meeting in zip(pairs, meetings):
            test.record(a, b, meeting.bytes_per_s, meeting.reason, meeting.out, meeting.late)
            models.update(meeting.models or {})
    outcome = judge(test)
    for node, result in outcome.results.items():
        result["seconds"] = round(monotonic() - began, 4)
        if node in models:
            result["facts"]["model"] = models[node]
    return outcome


def _round_s(seconds: float, left_s: float) -> float:
    """Return how long a round may take: one node that hangs leaves half of the time for another round."""
    return min(seconds + _ROUND_SLACK_S, max(seconds + _LEAST_S, left_s / 2), left_s)


def _policy(settings: dict[str, Any], confusion_ratio: float) -> PairPolicy:
    default = PairPolicy()
    return PairPolicy(
        name=settings.get("name") or default.name,
        required=bool(settings.get("required", True)),
        ratio=settings.get("ratio") or default.ratio,
        min_bytes_per_s=settings.get("min_bandwidth_bytes_per_s"),
        rounds=settings.get("rounds", default.rounds),
        retests=settings.get("retests", default.retests),
        confusion_ratio=confusion_ratio,
    )


async def _meet(
    listener: VettedNode, connector: VettedNode, settings: dict[str, Any], round_s: float, request: dict[str, Any]
) -> _PairOutcome:
    """Have two nodes measure each other once, within `round_s` and the time of an answer."""
    began = monotonic()
    try:
        port = await asyncio.wait_for(listener.free_port(), round_s / 2)
    except asyncio.TimeoutError:
        port = None
    if port is None:
        why = f"{listener.name} did not name a port to meet at"
        silent = _PairOutcome(None, why, {listener.name: Out("did not answer when asked for a port", "silent")})
        return await _apart(silent, listener)
    common = {
        "address": listener.address,
        "port": port,
        "token": secrets.token_hex(32),
        "seconds": settings["seconds"],
        "payload_bytes": settings.get("payload_bytes"),
        "backend": settings.get("backend") or "tcp",
    }
    left_s = max(_LEAST_S, round_s - (monotonic() - began))
    here, there = await asyncio.gather(
        _ask(listener, {**common, "role": "listen", "peer": connector.name}, left_s, request),
        _ask(connector, {**common, "role": "connect", "peer": listener.name}, left_s, request),
    )
    return await _apart(_reading({listener.name: here, connector.name: there}), listener, connector)


async def _ask(
    member: VettedNode, parameters: dict[str, Any], left_s: float, request: dict[str, Any]
) -> dict[str, Any]:
    reserve_s = min(_RESERVE_S, _RESERVE_SHARE * max(0.0, left_s - parameters["seconds"]))
    entry = {"check": _CHECK, "parameters": parameters, "deadline_s": left_s - reserve_s}
    patience_s = reserve_s + _ANSWER_S
    return (await member.check([entry], left_s - reserve_s, patience_s=patience_s, **request))[0]


async def _apart(meeting: _PairOutcome, *members: VettedNode) -> _PairOutcome:
    """Return the meeting with the silent ones told apart: one who still says what time it is, is there and was late."""
    out = meeting.out or {}
    silent = [member for member in members if member.name in out and out[member.name].cause == "silent"]
    clocks = await asyncio.gather(*(member.clock() for member in silent))
    there = tuple(member.name for member, clock in zip(silent, clocks) if clock is not None)
    return meeting._replace(
        out={node: why for node, why in out.items() if node not in there}, late=(*meeting.late, *there)
    )


def _reading(results: dict[str, dict[str, Any]]) -> _PairOutcome:
    """Return what both ends' results mean; the one that connects comes second and knows more."""
    rates = [result["value"] for result in results.values() if result["status"] == "pass"]
    if len(rates) == len(results):
        named = {node: (result.get("facts") or {}).get("model") for node, result in results.items()}
        return _PairOutcome(min(rates), models={node: str(model) for node, model in named.items() if model})
    out = {node: Out(result["evidence"], result["cause"]) for node, result in results.items() if _is_out(result)}
    told = [(node, result) for node, result in results.items() if result["status"] != "pass"]
    if out:
        told = [(node, result) for node, result in told if node in out]
    node, result = told[-1]
    late = tuple(node for node, result in results.items() if _is_late(result))
    return _PairOutcome(None, f"{node}: {result['evidence']}", out, late)


def _is_out(result: dict[str, Any]) -> bool:
    """Return whether a node did not answer, or cannot be tested whoever its partner is.

    A node whose partner did not come is not: it names the partner.
    """
    if result["status"] != "unknown":
        return False
    silent = result["cause"] == "silent" and "peer" not in (result["facts"] or {})
    return silent or result["cause"] in _OWN_CAUSES


def _is_late(result: dict[str, Any]) -> bool:
    """Return whether a node's time was over before it could say anything of its partner."""
    return result["status"] == "unknown" and result["cause"] == "timeout" and "peer" not in (result["facts"] or {})
