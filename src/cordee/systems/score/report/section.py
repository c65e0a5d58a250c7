"""The score in a run's report."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from cordee.core.draw.pages import page_environment
from cordee.core.errors import UsageError
from cordee.systems.score.load import load
from cordee.systems.score.report.classes import COLOURS
from cordee.systems.score.report.summary import summary_document, summary_html, summary_lines
from cordee.systems.score.result import UNKNOWN, Saturation
from cordee.systems.score.score import score
from cordee.telemetry.shown.section import Reported, Section

_CLOSING = (
    '<h2>Saturation</h2>\n{}\n<p class="none"><code>cordee score {}</code> shows it by device, with the evidence.</p>\n'
)


class SaturationSection(Section):
    """How well GPUs, or the cores where there are none, were used."""

    name = key = "saturation"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self.saturation: Saturation | None = None
        self._why: list[str] = []
        if not reported.sampled:
            return
        try:
            self.saturation = score(load(reported.run.folder.root))
        except UsageError as error:
            self._why = [f"{self.name}: {error.text}"]

    @property
    def missing(self) -> list[str]:
        return self._why

    def document(self) -> dict[str, Any] | None:
        return summary_document(self.saturation) if self.saturation is not None else None

    def lines(self) -> list[str]:
        return summary_lines(self.saturation) if self.saturation is not None else []

    def style(self) -> str:
        template = page_environment("cordee.systems.score.report").get_template("score.css.j2")
        return template.render(classes=[name for name in COLOURS if name != UNKNOWN])

    def html(self) -> str:
        if self.saturation is None:
            return ""
        return Markup(_CLOSING).format(Markup(summary_html(self.saturation)), self.reported.run.folder.id)


SECTIONS = (SaturationSection,)
