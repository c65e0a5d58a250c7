"""What decisions about nodes rest on: history, cluster, audit trail, policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cordee.job.fleet_site import OffenderPolicy
from cordee.systems.vetting.fleet.audit import Deed
from cordee.systems.vetting.fleet.cluster import SlurmNode
from cordee.systems.vetting.fleet.observations import NodeRecord

DAY_S = 86400.0


@dataclass(frozen=True)
class FleetSituation:
    """All that a decision rests on.

    Attributes:
        records: what the history says, by node.
        nodes: the cluster as the scheduler sees it, by node.
        deeds: our audit trail, the oldest first, with what was done and what is still open.
        policy: the site's.
        commands: names of the actions that the site has a command for.
        now: UTC epoch seconds.
    """

    records: Mapping[str, NodeRecord]
    nodes: Mapping[str, SlurmNode]
    deeds: Sequence[Deed]
    policy: OffenderPolicy
    commands: frozenset[str] = frozenset()
    now: float = 0.0

    @cached_property
    def _by_node(self) -> dict[str, list[Deed]]:
        found: dict[str, list[Deed]] = {}
        for deed in self.deeds:
            if deed.at >= self.now - self.policy.days * DAY_S:
                found.setdefault(deed.node, []).append(deed)
        return found

    def deeds_of(self, node: str) -> list[Deed]:
        """Return the deeds on a node within the policy's time, the oldest first."""
        return self._by_node.get(node, [])
