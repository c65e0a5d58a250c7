"""One round of acting on nodes: history, cluster, policy, then each action between two lines of the audit trail."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cordee.backends.slurm.node.commands import run_command
from cordee.job.fleet_site import OffenderPolicy, SiteActions
from cordee.systems.vetting.fleet.actions import Action, ActionError, make_actions
from cordee.systems.vetting.fleet.audit import Audit, Deed, settled
from cordee.systems.vetting.fleet.cluster import SlurmNode, ask_nodes
from cordee.systems.vetting.fleet.history_location import HistoryPlace
from cordee.systems.vetting.fleet.index import FleetIndex
from cordee.systems.vetting.fleet.observations import read_records
from cordee.systems.vetting.fleet.policy import propose
from cordee.systems.vetting.fleet.proposals import Proposal
from cordee.systems.vetting.fleet.situation import DAY_S, FleetSituation

SCHEMA = "cordee.act/1"


@dataclass
class ActionOutcome:
    """What became of a proposal: `planned` (a dry run), `held`, `done` or `failed`, with the words for it."""

    proposal: Proposal
    phase: str
    how: str
    said: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-ready dict."""
        return {**self.proposal.document(), "phase": self.phase, "how": self.how, "said": self.said}


@dataclass
class Round:
    """What one round did: actions of an earlier round whose outcome was found out, and the outcomes of this one."""

    dry: bool
    found: list[Deed] = field(default_factory=list)
    outcomes: list[ActionOutcome] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-ready dict."""
        found = [{"id": d.id, "action": d.action, "node": d.node, "phase": d.phase, "said": d.said} for d in self.found]
        return {
            "schema": SCHEMA,
            "dry_run": self.dry,
            "found": found,
            "actions": [outcome.document() for outcome in self.outcomes],
        }


class Acting:
    """Acts on the cluster that answers here.

    Args:
        place: the history, and where the audit trail lies.
        policy, site: what the profile says.
        cluster: returns Slurm's name of the cluster, whose vettings count; None: all of the history.
        ask: returns the nodes of the cluster.
    """

    def __init__(
        self,
        place: HistoryPlace,
        policy: OffenderPolicy,
        site: SiteActions,
        cluster: Callable[[], str | None] = lambda: None,
        ask: Callable[[], dict[str, SlurmNode]] = ask_nodes,
    ) -> None:
        self.audit = Audit(place.audit)
        self._place, self._policy, self._cluster, self._ask = place, policy, cluster, ask
        self._actions = make_actions(site)

    def plan(self) -> Round:
        """Return what would be done now; changes nothing.

        Raises:
            CordeeError: the history, the trail or the scheduler cannot be read.
        """
        nodes = self._ask()
        deeds, found = self._settle(nodes, write=False)
        outcomes = [
            ActionOutcome(proposal, "held" if proposal.held else "planned", self._how(proposal), proposal.held or "")
            for proposal in self._propose(nodes, deeds)
        ]
        return Round(True, found, outcomes)

    def act(self, stopping: Callable[[], bool] = lambda: False) -> Round:
        """Do what may be done now, and return what became of it; the caller holds the lock of the audit trail.

        Args:
            stopping: asked before each action; what was begun is brought to its end.

        Raises:
            CordeeError: the history, the trail or the scheduler cannot be read, or the trail cannot be written.
        """
        nodes = self._ask()
        deeds, found = self._settle(nodes, write=True)
        done = Round(False, found)
        for proposal in self._propose(nodes, deeds):
            if proposal.held:
                done.outcomes.append(ActionOutcome(proposal, "held", self._how(proposal), proposal.held))
            elif not stopping():
                done.outcomes.append(self._perform(proposal))
        return done

    def _perform(self, proposal: Proposal) -> ActionOutcome:
        how = self._how(proposal)
        deed = self.audit.begin(proposal)
        try:
            said = self._actions[proposal.action].perform(proposal)
        except ActionError as error:
            self.audit.end(deed, "failed", str(error.text))
            return ActionOutcome(proposal, "failed", how, str(error.text))
        self.audit.end(deed, "done", said)
        return ActionOutcome(proposal, "done", how, said)

    def _how(self, proposal: Proposal) -> str:
        action: Action | None = self._actions.get(proposal.action)
        return action.describe(proposal) if action else ""

    def _propose(self, nodes: dict[str, SlurmNode], deeds: list[Deed]) -> list[Proposal]:
        now = time.time()
        index = FleetIndex(self._place.refresh())
        index.refresh()
        records = read_records(index, now - self._policy.days * DAY_S, self._policy.protocols, self._cluster())
        return propose(FleetSituation(records, nodes, deeds, self._policy, frozenset(self._actions), now))

    def _settle(self, nodes: dict[str, SlurmNode], write: bool) -> tuple[list[Deed], list[Deed]]:
        """Return all deeds with the open ones settled, and those that were."""
        deeds, found = [], []
        for deed in self.audit.deeds():
            if deed.phase == "open":
                phase, said = settled(deed, nodes.get(deed.node))
                if write:
                    self.audit.end(deed, phase, said)
                deed = deed.ended(phase, said)
                found.append(deed)
            deeds.append(deed)
        return deeds, found


def cluster_name() -> str | None:
    """Return Slurm's name of the cluster that answers here.

    Raises:
        SlurmError: none answers.
    """
    for line in run_command(["scontrol", "show", "config"]).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "ClusterName":
            return value.strip() or None
    return None
