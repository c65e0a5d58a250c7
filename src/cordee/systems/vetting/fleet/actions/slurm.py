"""Drain and resume, by `scontrol update`; each looks at the node once more before it touches it."""

from __future__ import annotations

import shlex

from cordee.backends.slurm.node.commands import SlurmError, run_command
from cordee.machine.tasks.actions import ActionError
from cordee.systems.vetting.fleet.actions._base import Action
from cordee.systems.vetting.fleet.cluster import SlurmNode, ask_node
from cordee.systems.vetting.fleet.proposals import TAG, Proposal


class SlurmDrain(Action):
    """Lets a node take no new jobs; those that are on it run on."""

    def describe(self, proposal: Proposal) -> str:
        return shlex.join(self._argv(proposal))

    def perform(self, proposal: Proposal) -> str:
        state = _node(proposal.node)
        if state.drained or state.down or state.maintenance or state.reserved:
            raise ActionError(f"it has changed: {'+'.join(sorted(state.words))} {state.reason}".strip())
        _run(self._argv(proposal))
        after = _node(proposal.node)
        if not after.drained or after.reason != proposal.reason:
            raise ActionError(f"Slurm took it, but says {'+'.join(sorted(after.words))} {after.reason!r}")
        return f"drained: {proposal.reason}"

    @staticmethod
    def _argv(proposal: Proposal) -> list[str]:
        return ["scontrol", "update", f"NodeName={proposal.node}", "State=DRAIN", f"Reason={proposal.reason}"]


class SlurmResume(Action):
    """Lets a node that we drained take jobs again."""

    def describe(self, proposal: Proposal) -> str:
        return shlex.join(self._argv(proposal))

    def perform(self, proposal: Proposal) -> str:
        state = _node(proposal.node)
        if not state.drained:
            return "it is not drained any more"
        if not state.reason.startswith(TAG) or state.reason != proposal.reason:
            raise ActionError(f"a person has it now: {state.reason}")
        _run(self._argv(proposal))
        return "resumed"

    @staticmethod
    def _argv(proposal: Proposal) -> list[str]:
        return ["scontrol", "update", f"NodeName={proposal.node}", "State=RESUME"]


def _node(name: str) -> SlurmNode:
    try:
        return ask_node(name)
    except SlurmError as error:
        raise ActionError(str(error.text), later=error.busy) from None


def _run(argv: list[str]) -> None:
    try:
        run_command(argv)
    except SlurmError as error:
        raise ActionError(str(error.text), later=error.busy) from None
