"""What the supervisor could not do: said once each, in its log and as a finding, and all else goes on."""

from __future__ import annotations

import traceback
from typing import Any, Callable

from cordee.control.supervisor import closing_findings as remarks
from cordee.runs.folder import say
from cordee.runs.journal import JournalWriter

_MOST = 20


class SupervisorTroubles:
    """Says what failed.

    Args:
        journal: where findings are written.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._said: set[str] = set()

    def do(self, what: str, work: Callable[[], Any]) -> None:
        """Do something; where it fails that is said, and no more: without its beat this process is killed."""
        try:
            work()
        except Exception as error:
            self.say(f"{what} failed", error)

    def say(self, text: str, error: BaseException) -> None:
        """Say what could not be done."""
        text = f"the supervisor: {text}: {type(error).__name__}: {error}"
        if text in self._said or len(self._said) >= _MOST:
            return
        self._said.add(text)
        say(f"cordee: {text}")
        traceback.print_exception(type(error), error, error.__traceback__)
        self._journal.append("finding", finding=remarks.trouble(text).document())

    def stalled(self, text: str) -> None:
        """Write for how long a disk stood still or refused; nothing where there is nothing to say."""
        if text:
            self._journal.append("finding", finding=remarks.stalled(text).document())
