"""How fast this node and one other exchange data."""

from __future__ import annotations

import time
from typing import Any

from cordee.core.units import format_size
from cordee.systems.vetting.node.checks._base import CAUSES, CannotTest, Check, Context, Parameter, Result
from cordee.systems.vetting.node.checks.compute import wants_gpu
from cordee.systems.vetting.node.checks.pair.tcp import PairEnd, Rates
from cordee.systems.vetting.node.checks.program import run_program

_MARGIN_S = 0.3
_PAYLOAD_BYTES = 1 << 20


class PairCheck(Check):
    """One meeting of two nodes: one listens, the other connects; the vetting gives both the same port and token.

    The result says what was measured; whether that is slow is judged over the meetings of all nodes. A partner that does
    not come is `unknown` with the partner in `facts["peer"]`: it says nothing of this node.
    """

    name = "pair.bandwidth"
    title = "How fast do this node and one other exchange data?"
    scope = "link"
    alone = True
    parameters = (
        Parameter("role", "text", "which end this node is", needed=True, choices=("listen", "connect")),
        Parameter("address", "text", "where the one that listens is reached", needed=True),
        Parameter("port", "count", "where it listens", needed=True),
        Parameter("token", "text", "the secret that both ends of this meeting know", needed=True),
        Parameter("peer", "text", "name of the other node", needed=True),
        Parameter("seconds", "duration", "how long data is sent, both directions together", default=2.0, unit="s"),
        Parameter("payload_bytes", "size", "how much is sent at once", default=_PAYLOAD_BYTES, unit="bytes"),
        Parameter(
            "backend",
            "text",
            "what carries the data: TCP, or PyTorch's NCCL between GPUs, Gloo without",
            default="tcp",
            choices=("tcp", "torch"),
        ),
    )
    deadline_s = 20.0
    without_gpu = "The same; with `backend: torch`, Gloo instead of NCCL."

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        """Measure with the one partner.

        Raises:
            CannotTest: it cannot be measured at all here.
        """
        peer = parameters["peer"]
        measure = _measure_torch if parameters["backend"] == "torch" else _measure_tcp
        try:
            rates, more = measure(parameters, context)
        except CannotTest as obstacle:
            return self.result("unknown", str(obstacle), cause=obstacle.cause, facts={"peer": peer})
        there, back = rates if parameters["role"] == "connect" else (rates.back, rates.there)
        evidence = f"{format_size(there)}/s to {peer}, {format_size(back)}/s from it ({more['engine']})"
        facts = {"peer": peer, "to_peer_bytes_per_s": there, "from_peer_bytes_per_s": back, **more}
        return self.result("pass", evidence, value=min(there, back), unit="bytes/s", facts=facts)


def _measure_tcp(parameters: dict[str, Any], context: Context) -> tuple[Rates, dict[str, Any]]:
    end = PairEnd(
        parameters["token"].encode(),
        context.node,
        parameters["peer"],
        parameters["seconds"] / 2,
        int(parameters["payload_bytes"]),
        time.monotonic() + max(0.5 * context.deadline_s, context.deadline_s - _MARGIN_S),
    )
    measure = end.listen if parameters["role"] == "listen" else end.connect
    return measure(parameters["address"], parameters["port"]), {"engine": "tcp"}


def _measure_torch(parameters: dict[str, Any], context: Context) -> tuple[Rates, dict[str, Any]]:
    names = ("role", "address", "port", "token", "peer", "seconds", "payload_bytes")
    request = {name: parameters[name] for name in names}
    outcome = run_program("pair", {**request, "on_gpu": wants_gpu("auto", context)}, context)
    if outcome.done is None:
        # A partner that dies may end this program too: only the meetings with others tell whose fault it is.
        raise CannotTest(outcome.text, outcome.cause if outcome.cause in CAUSES else "error")
    more = {"engine": outcome.done["engine"], "device": outcome.done["device"], "python": outcome.python}
    more["allreduce_bytes_per_s"] = outcome.done["allreduce"]
    more |= {"model": outcome.done["model"]} if outcome.done["model"] else {}
    return Rates(outcome.done["there"], outcome.done["back"]), more
