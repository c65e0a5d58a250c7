"""The site's own commands: reset, reboot, diagnose, vet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cordee.core.errors import EXIT_ABORT, EXIT_EXCLUDE
from cordee.machine.tasks.actions import ActionError, run_command_of_site, run_site_command, told
from cordee.systems.vetting.fleet.actions._base import Action
from cordee.systems.vetting.fleet.history import NODE_NAME
from cordee.systems.vetting.fleet.proposals import Proposal

_PLACE = re.compile(r"\{(node|gpu|rule|reason|job)\}")


class SiteCommand(Action):
    """Runs a template of words; no shell sees it, and no word of it is ever split.

    Args:
        template: words with `{node}`, `{gpu}`, `{rule}`, `{reason}`, `{job}`.
        timeout_s: after which it is killed with all that it started.
    """

    def __init__(self, template: Sequence[str], timeout_s: float) -> None:
        self._template = tuple(template)
        self._timeout_s = timeout_s

    def describe(self, proposal: Proposal) -> str:
        return shlex.join(self.argv(proposal))

    def perform(self, proposal: Proposal) -> str:
        return run_site_command(self.argv(proposal), self._timeout_s)

    def argv(self, proposal: Proposal) -> list[str]:
        """Return the words for this proposal.

        Raises:
            ActionError: the node's name is none.
        """
        return filled(self._template, proposal)


def filled(template: Sequence[str], proposal: Proposal) -> list[str]:
    """Return the words of a template with `{node}`, `{gpu}`, `{rule}` and `{reason}` filled in.

    Raises:
        ActionError: the node's name is none.
    """
    if not NODE_NAME.match(proposal.node):
        raise ActionError(f"{proposal.node!r} is not the name of a node")
    values = {
        "node": proposal.node,
        "gpu": proposal.gpu or "all",
        "rule": proposal.rule,
        "reason": proposal.reason,
    }
    return [_PLACE.sub(lambda match: values[match[1]], word) for word in template]


class SiteVetting(SiteCommand):
    """Vets a node by the site's command, as a `SiteCommand`; that it finds the node bad is an answer and no failure."""

    def perform(self, proposal: Proposal) -> str:
        code, said = run_command_of_site(self.argv(proposal), self._timeout_s)
        if code in (EXIT_EXCLUDE, EXIT_ABORT):
            return f"vetted, and the node is not fit for work: {said}"
        return told(self.argv(proposal), code, said)
