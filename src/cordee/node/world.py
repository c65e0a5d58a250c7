"""The world of one attempt: which ranks run where, and where they meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional


@dataclass(frozen=True)
class World:
    """One attempt's world as one node sees it; the same on all nodes but for `node` and `node_rank`.

    Attributes:
        attempt: counts from 1.
        nodes: the node of each group, in rank order.
        ranks_per_node: ranks on every node.
        node, node_rank: this node and its index in `nodes`.
        master_address, master_port, coordinator_port: of rank 0's node, the ports new at every attempt.
        resume_from: the checkpoint that it begins from, or None.
        epoch: of the supervisor that started it.
    """

    attempt: int
    nodes: tuple[str, ...]
    addresses: tuple[str, ...]
    ranks_per_node: int
    node: str
    node_rank: int
    master_address: str
    master_port: int
    coordinator_port: int
    resume_from: Optional[str] = None
    epoch: int = 0

    @property
    def size(self) -> int:
        return len(self.nodes) * self.ranks_per_node

    @property
    def local_ranks(self) -> range:
        """The global ranks on this node."""
        first = self.node_rank * self.ranks_per_node
        return range(first, first + self.ranks_per_node)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> World:
        """Rebuild a world from a `ranks` message."""
        values = {name: message[name] for name in cls.__dataclass_fields__}
        values["nodes"], values["addresses"] = tuple(values["nodes"]), tuple(values["addresses"])
        return cls(**values)
