"""Tickets: a JSON document for the site's command, or for a webhook."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from cordee.machine.tasks.actions import post_document, run_site_command
from cordee.systems.vetting.fleet.actions._base import Action
from cordee.systems.vetting.fleet.actions.command import filled
from cordee.systems.vetting.fleet.proposals import Proposal

SCHEMA = "cordee.ticket/1"
_PAUSE_S = 1.0


def ticket_document(proposal: Proposal) -> dict[str, Any]:
    """Return what a ticket says. `key` is the same whenever the same ticket is sent again, so that none is opened twice."""
    key = f"{proposal.node}-{proposal.drain_id or proposal.rule}"
    return {"schema": SCHEMA, "key": key, "title": f"{proposal.node}: {proposal.rule}", **proposal.document()}


class TicketCommand(Action):
    """Hands the document to a command on its standard input.

    Args:
        argv: the command, with `{node}`, `{gpu}`, `{rule}`, `{reason}`.
        timeout_s: after which it is killed.
    """

    def __init__(self, argv: Sequence[str], timeout_s: float) -> None:
        self._argv, self._timeout_s = list(argv), timeout_s

    def describe(self, proposal: Proposal) -> str:
        return f"{shlex.join(filled(self._argv, proposal))} <<< {json.dumps(ticket_document(proposal)['title'])}"

    def perform(self, proposal: Proposal) -> str:
        return run_site_command(filled(self._argv, proposal), self._timeout_s, json.dumps(ticket_document(proposal)))


class TicketWebhook(Action):
    """Posts the document to a webhook, again when it does not answer, with an `Idempotency-Key`.

    Args:
        url: http(s).
        token_file: holds a bearer token, or None.
        pause_s: before the second try, doubled before the third.
    """

    def __init__(self, url: str, token_file: str | None = None, pause_s: float = _PAUSE_S) -> None:
        self._url, self._token_file, self._pause_s = url, token_file, pause_s

    def describe(self, proposal: Proposal) -> str:
        return f"POST {self._url} {json.dumps(ticket_document(proposal)['title'])}"

    def perform(self, proposal: Proposal) -> str:
        document = ticket_document(proposal)
        return post_document(self._url, document, document["key"], self._token_file, self._pause_s)
