"""Data in a run's report: which samples it was trained on, and what ranks waited for them."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from cordee.core.draw.pages import page_environment
from cordee.systems.data.account import account_of
from cordee.systems.data.loading import loading_view
from cordee.systems.data.report.loading import loading_charts, loading_document, loading_facts, loading_lines
from cordee.systems.data.staged import staged_words
from cordee.telemetry.shown.section import Reported, Section
from cordee.telemetry.shown.words import text_lines

_POINTS = 300


class AccountSection(Section):
    """What was brought to the nodes, and the account of each data set: every sample once, or not.

    What it says as text, the system's view says.
    """

    name = "data"
    place = "phases"

    def html(self) -> str:
        said = Markup("<p>Data set {}: {}.</p>\n")
        staged = Markup("<p>Staged: {}.</p>\n")
        lines = [staged.format(text) for text in staged_words(self.reported.state.staged)]
        lines += [said.format(account.name, account.text()) for account in account_of(self.reported.state)]
        return Markup("").join(lines)


class LoadingSection(Section):
    """What ranks waited for data, and why."""

    name = key = "loading"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self.view = loading_view(reported.run, points=_POINTS)

    def document(self) -> dict[str, Any]:
        return loading_document(self.view)

    def lines(self) -> list[str]:
        lines = [line for text in loading_lines(self.view) for line in text_lines(text, "    ", "  ")]
        return ["Loading of data", *lines] if lines else []

    def html(self) -> str:
        facts, texts = loading_facts(self.view), self.view.texts
        if not facts and not texts:
            return ""
        template = page_environment(__name__).get_template("loading.html.j2")
        charts = [(name, Markup(svg)) for name, svg in loading_charts(self.view, self.origin)]
        return template.render(facts=facts, texts=texts, findings=self.view.findings, charts=charts)


SECTIONS = (AccountSection, LoadingSection)
