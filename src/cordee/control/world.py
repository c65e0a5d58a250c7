"""The world of one attempt: which ranks run where, and where they meet."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes, fold_nodes
from cordee.wire.messages import Ranks


@dataclass(frozen=True)
class AttemptWorld:
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
    def from_order(cls, order: Ranks, body: bytes) -> AttemptWorld:
        """Rebuild a world from the order to start ranks, whose body is of `encode_places`."""
        nodes, addresses = json.loads(zlib.decompress(body))
        values: dict[str, Any] = {"nodes": _names(nodes), "addresses": _names(addresses)}
        return cls(**{name: values.get(name) or getattr(order, name) for name in cls.__dataclass_fields__})


def encode_places(nodes: Sequence[str], addresses: Sequence[str]) -> bytes:
    """Return which nodes an attempt has, and where they are: the same bytes for all of them, and few, as names are alike."""
    return zlib.compress(json.dumps([_folded(nodes), _folded(addresses)]).encode())


def _folded(names: Sequence[str]) -> Union[str, list[str]]:
    try:
        folded = fold_nodes(names)
        return folded if expand_nodes(folded) == list(names) else list(names)
    except CordeeError:  # no names that Slurm would take
        return list(names)


def _names(folded: Union[str, list[str]]) -> tuple[str, ...]:
    return tuple(expand_nodes(folded) if isinstance(folded, str) else folded)
