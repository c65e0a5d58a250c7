"""Why jobs of a back end wait and end: what each back end knows of it, and what is said where it knows nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cordee.backends.reasons.clauses import Rule, note
from cordee.backends.reasons.situation import Situation
from cordee.core.backends import backend
from cordee.core.errors import SubmitError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.units import format_duration, utc_text

_SOON_S = 60.0


class Meaning(NamedTuple):
    """How a job ended: a clause that can stand after "because", and what to do."""

    text: str
    next: str


@dataclass(frozen=True)
class Reasons:
    """What a back end knows of its jobs; `reasons` of a `Backend` names one. Its sentences are for people who use it.

    Attributes:
        waiting: rules for a run that waits, the strongest first.
        meaning: how the job ended or stands, by `situation.scheduler`.
        refusal: what it means that the place refused a job, by what was said and the plan's `request.scheduler`; None: unknown.
        running: rules for a run that has its nodes.
    """

    waiting: tuple[Rule, ...]
    meaning: Callable[[Situation], Meaning]
    refusal: Callable[[str, Mapping[str, Any]], Finding | None]
    running: tuple[Rule, ...] = ()


def reasons_of(situation: Situation) -> Reasons:
    """Return what the back end of a run knows of why jobs wait and end."""
    try:
        named = backend(situation.backend).reasons
    except SubmitError:
        named = None
    if named is None:
        return PLAIN
    found: Reasons = load(named)
    return found


def in_its_words(situation: Situation) -> Iterator[Finding]:
    """Pass on the reason that the place gives."""
    if situation.scheduler.reason:
        yield note("waits", situation.scheduler.reason, "info", reason=situation.scheduler.reason)


def not_known_to_the_scheduler(situation: Situation) -> Iterator[Finding]:
    """Say so when a run waits and the scheduler has no job of it."""
    facts = situation.scheduler
    if facts.job is None and not facts.state:
        if facts.unknown:
            yield note("scheduler-unknown", "the scheduler could not be asked", next="try again in a minute")
        else:
            text = "the scheduler has no job of it: it was never placed, or ended before its first word"
            yield note("no-job", text, "error", next=f"`cordee resume {situation.run}` submits it again")


def expected_start(situation: Situation) -> Iterator[Finding]:
    """Say when the scheduler expects to start it."""
    facts = situation.scheduler
    if facts.starts_at is None:
        return
    wait = facts.starts_at - situation.now
    when = "within a minute" if wait < _SOON_S else f"in {format_duration(wait)}, at {utc_text(facts.starts_at)[:16]}Z"
    text = f"the scheduler expects to start it {when}; jobs that end early bring it forward"
    yield note("expected-start", text, "info", starts_at=facts.starts_at)


def _in_its_words(situation: Situation) -> Meaning:
    state = situation.scheduler.state.casefold().replace("_", " ")
    reason = f": {situation.scheduler.reason}" if situation.scheduler.reason else ""
    return Meaning(f"its job ended ({state}){reason}", f"`cordee resume {situation.run}` continues it")


def _not_known(said: str, asked: Mapping[str, Any]) -> Finding | None:
    return None


PLAIN = Reasons((in_its_words, not_known_to_the_scheduler, expected_start), _in_its_words, _not_known)
