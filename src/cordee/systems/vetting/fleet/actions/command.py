"""The site's own commands: reset, reboot, diagnose, vet."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence

from cordee.core.errors import EXIT_ABORT, EXIT_EXCLUDE
from cordee.systems.vetting.fleet.actions._base import Action, ActionError
from cordee.systems.vetting.fleet.history import NODE_NAME
from cordee.systems.vetting.fleet.proposals import Proposal

_PLACE = re.compile(r"\{(node|gpu|rule|reason|job)\}")
_TAIL = 400


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
    """Return the words of a template with `{node}`, `{gpu}`, `{rule}`, `{reason}` and `{job}` filled in.

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
        "job": proposal.job or "node",
    }
    return [_PLACE.sub(lambda match: values[match[1]], word) for word in template]


class SiteVetting(SiteCommand):
    """Vets a node by the site's command, as a `SiteCommand`; that it finds the node bad is an answer and no failure."""

    def perform(self, proposal: Proposal) -> str:
        code, said = _run(self.argv(proposal), self._timeout_s)
        if code in (EXIT_EXCLUDE, EXIT_ABORT):
            return f"vetted, and the node is not fit for work: {said}"
        return _told(self.argv(proposal), code, said)


def run_site_command(argv: Sequence[str], timeout_s: float, stdin: str | None = None) -> str:
    """Run a command of the site and return the end of what it printed.

    Raises:
        ActionError: it is not there, fails, or takes longer than `timeout_s`.
    """
    return _told(argv, *_run(argv, timeout_s, stdin))


def _told(argv: Sequence[str], code: int, said: str) -> str:
    if code != 0:
        raise ActionError(f"{argv[0]} ended with {code}: {said}")
    return said or "done"


def _run(argv: Sequence[str], timeout_s: float, stdin: str | None = None) -> tuple[int, str]:
    """Run a command and return its exit code and the end of what it printed.

    Raises:
        ActionError: it is not there, or takes longer than `timeout_s`.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ActionError(f"{argv[0]} cannot be started: {error.strerror}") from None
    try:
        said, _ = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise ActionError(f"{argv[0]} did not end within {timeout_s:g} s and was killed") from None
    except BaseException:
        _kill(process)
        raise
    return process.returncode, " ".join(said.split())[-_TAIL:]


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
