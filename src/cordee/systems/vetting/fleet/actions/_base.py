"""The seam of actions."""

from __future__ import annotations

from cordee.systems.vetting.fleet.proposals import Proposal


class Action:
    """One way to act on a node; `cordee nodes act` calls it, one at a time, between two lines of the audit trail."""

    def describe(self, proposal: Proposal) -> str:
        """Return what `perform` would do, as a command line where it is one; changes nothing."""
        raise NotImplementedError

    def perform(self, proposal: Proposal) -> str:
        """Do it, and return what was said.

        Raises:
            ActionError: it was not done, or nobody can say that it was.
        """
        raise NotImplementedError
