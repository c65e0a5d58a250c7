"""What condor_submit says when it refuses a job, what it means, and what to change."""

from __future__ import annotations

import re
from typing import NamedTuple

from cordee.backends.reasons.clauses import note
from cordee.core.findings import Finding


class Refusal(NamedTuple):
    """A pattern of what condor_submit says; `meaning` is a clause that can stand after "because"."""

    rule: str
    pattern: re.Pattern[str]
    meaning: str
    next: str


def _refusal(rule: str, pattern: str, meaning: str, next: str) -> Refusal:
    return Refusal(f"refused-{rule}", re.compile(pattern, re.IGNORECASE), meaning, next)


REFUSALS = (
    _refusal("root", r'job owner to "?root', "HTCondor takes no jobs of root", "submit it as an ordinary user"),
    _refusal(
        "quota",
        r"would exceed MAX_JOBS_PER_(OWNER|SUBMISSION)|MAX_JOBS_SUBMITTED",
        "the pool limits how many jobs one person has in the queue",
        "wait until jobs of yours end, or remove some: `condor_q`",
    ),
    _refusal(
        "requirements",
        r"(parse error|syntax error|error in).*requirements|Requirements = ",
        "the expression for requirements is wrong",
        "correct [htcondor] requirements in the profile of the cluster",
    ),
    _refusal(
        "attribute",
        r"parse error in expression|invalid (attribute|expression)",
        "an attribute of the job is wrong",
        "correct [htcondor] attributes in the profile of the cluster",
    ),
    _refusal(
        "configuration",
        r"contain a condor_config source|CONDOR_CONFIG.*(?:not|cannot)",
        "HTCondor's commands have no configuration here",
        "log in on an access point, or set CONDOR_CONFIG: `condor_q` says whether they work",
    ),
    _refusal(
        "user",
        r"Can't find .* in the password file|CONDOR_IDS not defined",
        "HTCondor does not know its own user here",
        "log in where HTCondor's commands work: `condor_q` says whether they do",
    ),
    _refusal(
        "permission",
        r"permission denied|not authorized|AUTHENTICATE:|authentication.*fail",
        "the access point does not take jobs from you here",
        "submit on an access point that knows you; `condor_ping WRITE` says what is wrong",
    ),
    _refusal(
        "transform",
        r"job transform|SUBMIT_REQUIREMENT|submit requirement",
        "a rule of the site does not allow it",
        "ask the operators what jobs must say; [htcondor] attributes in the profile says it for each",
    ),
    _refusal(
        "missing",
        r"not found: HTCondor's commands|commands are not here",
        "HTCondor's commands are not here",
        "log in where they are, or run it here with --on local",
    ),
)


def explain_refusal(said: str) -> Finding | None:
    """Return what a refusal of condor_submit means and what to change; None when it is not known."""
    for refusal in REFUSALS:
        if refusal.pattern.search(said):
            words = " ".join(said.split())[-400:]
            given = None if refusal.meaning in words else words
            return note(refusal.rule, refusal.meaning, "error", next=refusal.next, given=given)
    return None
