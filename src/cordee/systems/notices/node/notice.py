"""Tells people that a run has ended, in the ways that its plan names; each way is tried by itself."""

from __future__ import annotations

import json
import os
import shutil
import smtplib
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from cordee.core.errors import RunFolderError
from cordee.core.secrets import masked_text
from cordee.machine.tasks.actions import ActionError, post_document, run_site_command
from cordee.runs.children import read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.plan import RunPlan
from cordee.runs.state import RunState, replay

SCHEMA = "cordee.notice/1"
_TIMEOUT_S = 15.0
_SENDMAIL_PLACES = "/usr/sbin:/usr/lib"
_MOST_FINDINGS = 5


def send_notices(folder: RunFolder, plan: RunPlan, journal: JournalWriter) -> None:
    """Send what `[notify]` asks for of a run whose end is in its journal; outcomes are events of the journal."""
    wanted = plan.step.systems["notices"]
    events = read_journal(folder.journal)
    state = replay(events, folder.id)
    if any(event["event"] == "notice" and event["epoch"] > state.resumed_epoch for event in events):
        return  # a supervisor before this one was killed after it had told of this end
    document = notice_document(folder, plan, state, events)
    if not _is_wanted(document, wanted["on"]):
        return
    ways: list[tuple[str, Callable[[], str]]] = []
    if wanted["webhook"]:
        post = lambda: post_document(wanted["webhook"], document, document["key"], wanted["token_file"])  # noqa: E731
        ways.append(("webhook", post))
    if wanted["command"]:
        ways.append(("command", lambda: run_site_command(wanted["command"], _TIMEOUT_S, json.dumps(document))))
    if wanted["mail"]:
        ways.append(("mail", lambda: send_mail(wanted["mail"], document)))
    for name, send in ways:
        try:
            outcome, said = "sent", send()
        except (ActionError, OSError, ValueError) as error:
            outcome, said = "failed", error.text if isinstance(error, ActionError) else str(error)
        journal.append("notice", way=name, about=document["about"], outcome=outcome, text=masked_text(said)[:300])


def _is_wanted(document: Mapping[str, Any], on: Sequence[str]) -> bool:
    """Return whether somebody asked to be told of this: of steps and tests only what they are asked for says."""
    failed = document["state"] == "failed"
    if document["about"] == "test":
        return "test" in on or (failed and "failure" in on)
    if document["about"] == "step":
        return failed and "failure" in on
    return "end" in on or (failed and "failure" in on) or ("best" in on and document["best"] is not None)


def notice_document(
    folder: RunFolder, plan: RunPlan, state: RunState, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what is told of a run: `about` is run, test or step."""
    about = _about(folder, plan)
    best = next(
        (event["best"] for event in reversed(events) if event["event"] == "tasks_progress" and event.get("best")), None
    )
    grave = [finding.text for finding in state.findings if finding.severity == "error"]
    told = state.text or state.reason or state.state
    title = f"{folder.id}: {'test ' if about == 'test' else ''}{state.state}"
    text = f"{title}: {told}" + (f"; best: {best['text']}" if best and best["text"] not in told else "")
    return {
        "schema": SCHEMA,
        "key": f"{folder.id}-{state.resumed_epoch}" if state.resumed_epoch else folder.id,
        "about": about,
        "run": folder.id,
        "parent": Path(plan.parent).name if plan.parent else None,
        "state": state.state,
        "exit_code": state.exit_code,
        "title": title,
        "text": masked_text(text)[:2000],
        "best": best,
        "findings": [masked_text(one) for one in grave[:_MOST_FINDINGS]],
        "segments": state.segments,
        "restarts": state.restarts,
        "folder": str(folder.root),
    }


def _about(folder: RunFolder, plan: RunPlan) -> str:
    if not plan.parent:
        return "run"
    try:
        graph = read_graph(RunFolder(Path(plan.parent)))
    except (RunFolderError, OSError):
        graph = None
    kinds: dict[str, Optional[str]] = {child.run: child.about.get("kind") for child in graph.children} if graph else {}
    return "test" if kinds.get(folder.id) == "test" else "step"


def send_mail(to: Sequence[str], document: Mapping[str, Any]) -> str:
    """Send a mail by the machine's sendmail, else by the SMTP server of `CORDEE_SMTP` (host:port; default: this machine).

    Raises:
        ActionError: it was not taken.
    """
    message = EmailMessage()
    message["To"], message["Subject"] = ", ".join(to), str(document["title"])
    message["From"] = os.environ.get("CORDEE_MAIL_FROM") or to[0]
    lines = [str(document["text"]), "", *document["findings"], "", f"folder: {document['folder']}"]
    message.set_content("\n".join(lines))
    server = os.environ.get("CORDEE_SMTP", "")
    program = None if server else shutil.which("sendmail", path=f"{os.environ.get('PATH', '')}:{_SENDMAIL_PLACES}")
    if program is not None:
        return run_site_command([program, "-t", "-i"], _TIMEOUT_S, message.as_string())
    host, _, port = (server or "localhost:25").partition(":")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=_TIMEOUT_S) as there:
            there.send_message(message)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise ActionError(f"{host} did not take the mail: {error}") from None
    return f"taken by {host}"
