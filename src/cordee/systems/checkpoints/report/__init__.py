"""Checkpoints in a run's report: what writing them cost the training."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from cordee.core.draw.pages import page_environment
from cordee.systems.checkpoints.pace import storage_view
from cordee.systems.checkpoints.report.figures import storage_charts, storage_document
from cordee.systems.checkpoints.views import CheckpointView
from cordee.telemetry.shown.section import Reported, Section


class StorageSection(Section):
    """Rates of storage, checkpoint writes and their cost."""

    name = key = "storage"
    place = "logged"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self.view = storage_view(reported.run)

    def document(self) -> dict[str, Any]:
        return storage_document(self.view)

    def facts(self) -> list[tuple[str, str]]:
        if not self.view.saves:
            return []
        advice = CheckpointView(self.reported.state, {}).findings_of_samples(self.reported.run)
        return [("their cost", self.view.text), *(("their interval", one.text) for one in advice)]

    def html(self) -> str:
        charts = storage_charts(self.view, self.origin)
        if not charts:
            return ""
        template = page_environment(__name__).get_template("storage.html.j2")
        return template.render(text=self.view.text, charts=[(name, Markup(svg)) for name, svg in charts])


SECTIONS = (StorageSection,)
