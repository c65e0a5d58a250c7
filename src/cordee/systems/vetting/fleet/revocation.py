"""Cutting a job or a node off the network, and taking it back: by the site's command for root, between two lines of the audit trail."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from cordee.core.errors import UsageError
from cordee.job.fleet_site import SiteActions
from cordee.systems.vetting.fleet.actions import ActionError, make_actions
from cordee.systems.vetting.fleet.audit import Audit
from cordee.systems.vetting.fleet.history import NODE_NAME
from cordee.systems.vetting.fleet.proposals import Proposal

_JOB = re.compile(r"[A-Za-z0-9_]{1,48}$")
Verb = Literal["revoke", "restore"]


class Revoked(NamedTuple):
    """What was done about one node: `done`, `failed`, or `planned` where nothing was to be done yet."""

    proposal: Proposal
    how: str
    phase: str
    said: str = ""

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        about = self.proposal
        return {
            "action": about.action,
            "node": about.node,
            "job": about.job,
            "reason": about.reason,
            "how": self.how,
            "phase": self.phase,
            "said": self.said,
        }


def revoke(
    verb: Verb, nodes: list[str], job: str, reason: str, site: SiteActions, audit: Audit, *, yes: bool
) -> list[Revoked]:
    """Cut a job off on these nodes, or the nodes themselves where no job is named; one that fails keeps no other from it.

    Raises:
        UsageError: the site has no command for it, or a name is none.
        CordeeError: the audit trail cannot be written; then nothing is done.
    """
    action = make_actions(site).get(verb)
    if action is None:
        raise UsageError(
            f"this cluster has no command to {verb}",
            next=f"set [vetting.actions] {verb} in its profile; `cordee egress guard` prints one that root can have",
        )
    for node in nodes:
        if not NODE_NAME.match(node):
            raise UsageError("that is not the name of a node", given=node)
    if job and not _JOB.match(job):
        raise UsageError("that is not the number of a job", given=job)
    proposals = [Proposal(verb, node, reason, rule="egress", kind="hard", why=reason, job=job) for node in nodes]
    if not yes:
        return [Revoked(proposal, action.describe(proposal), "planned") for proposal in proposals]
    found = []
    audit.require_ours()  # but nobody's end is waited for: this cannot wait, and a service acts all the time
    for proposal in proposals:
        deed = audit.begin(proposal)
        try:
            phase, said = "done", action.perform(proposal)
        except ActionError as error:
            phase, said = "failed", error.text
        audit.end(deed, phase, said)
        found.append(Revoked(proposal, action.describe(proposal), phase, said))
    return found
