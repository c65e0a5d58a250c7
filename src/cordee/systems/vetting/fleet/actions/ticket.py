"""Tickets: a JSON document for the site's command, or for a webhook."""

from __future__ import annotations

import json
import shlex
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from cordee.systems.vetting.fleet.actions._base import Action, ActionError
from cordee.systems.vetting.fleet.actions.command import filled, run_site_command
from cordee.systems.vetting.fleet.proposals import Proposal
from cordee.systems.vetting.node.judge.spool import call, read_token

SCHEMA = "cordee.ticket/1"
_TIMEOUT_S = 10.0
_TRIES = 3
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
        headers = {"Content-Type": "application/json", "Idempotency-Key": document["key"], "User-Agent": "cordee"}
        words = ""
        try:
            if self._token_file:
                headers["Authorization"] = f"Bearer {read_token(self._token_file)}"
            request = urllib.request.Request(self._url, json.dumps(document).encode(), headers, method="POST")
        except (OSError, ValueError) as error:
            raise ActionError(f"the webhook cannot be called: {error}") from None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1))
            try:
                code, words, _ = call(request, _TIMEOUT_S)
            except OSError as error:
                words = str(error)
                continue
            if 200 <= code < 300:
                return f"{code} {words}".strip()
            words = f"{code} {words}"
            if code < 500 and code != 429:
                raise ActionError(f"the webhook refuses: {words}")
        raise ActionError(f"the webhook did not take it in {_TRIES} tries: {words}", later=True)
