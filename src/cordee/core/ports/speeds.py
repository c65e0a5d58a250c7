"""The port `node-speeds`: what nodes were measured to reach, for whoever plans by it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

SPEEDS = "node-speeds"


class NodeSpeeds(NamedTuple):
    """What the slowest GPU of a usual node reaches; None: not measured on enough nodes.

    Attributes:
        nodes: that were measured.
        flops: FLOP/s of large matrices, in the type that is quickest without a loss of range: 16 bit where the GPU has it.
        memory: bytes/s of its own memory; `link`: bytes/s of bus bandwidth of an all-reduce within a node.
        network: bytes/s that a GPU sends to one of another node.
    """

    nodes: int
    flops: float | None = None
    memory: float | None = None
    link: float | None = None
    network: float | None = None


class MeasuredSpeeds(Protocol):
    """Returns what nodes of a cluster were measured to reach, by the name of their GPUs; nothing where there is no history."""

    def __call__(self, history: str | None) -> dict[str, NodeSpeeds]: ...
