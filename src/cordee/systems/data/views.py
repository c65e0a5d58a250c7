"""What is said of a run's data wherever runs are told."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from cordee.core.findings import Finding
from cordee.systems.data.account import SetAccount, account_findings, account_of
from cordee.systems.data.staged import staged_words
from cordee.telemetry.shown.view import RunView

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


class DataView(RunView):
    """The account of each data set: which samples the training has behind it."""

    @cached_property
    def accounts(self) -> list[SetAccount]:
        """One for each data set that the journal tells of."""
        return account_of(self.state)

    def document(self) -> dict[str, Any]:
        return {"data": [account.document() for account in self.accounts], "staged": self.state.staged}

    def facts(self) -> list[tuple[str, str]]:
        staged = [("staged", text) for text in staged_words(self.state.staged)]
        return [*staged, *(("data", f"{account.name}: {account.text()}") for account in self.accounts)]

    def findings(self) -> list[Finding]:
        return account_findings(self.state)

    def findings_of_samples(self, run: Run) -> list[Finding]:
        from cordee.systems.data.loading import loading_view

        return loading_view(run).findings
