"""The traces of a run, in its report: which there are, and what opens them."""

from __future__ import annotations

from typing import Any

from cordee.core.draw.pages import page_environment
from cordee.systems.explain.traces.views import traces_of
from cordee.telemetry.shown.section import Reported, Section

_MOST = 100
OPENED = "ui.perfetto.dev opens traces, speedscope.app what py-spy has seen"


class TracesSection(Section):
    """The files that `cordee profile` has left; nothing where there are none."""

    name = key = "traces"
    place = "logged"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self._traces = traces_of(reported.run.folder.root)

    def document(self) -> Any:
        return [one._asdict() for one in self._traces] or None

    def lines(self) -> list[str]:
        return [f"Traces ({OPENED})", *(f"  {line}" for line in self._told())] if self._traces else []

    def html(self) -> str:
        if not self._traces:
            return ""
        template = page_environment(__name__.rpartition(".")[0]).get_template("report.html.j2")
        return template.render(opened=OPENED, lines=self._told())

    def _told(self) -> list[str]:
        more = len(self._traces) - _MOST
        return [one.line() for one in self._traces[:_MOST]] + ([f"and {more} more"] if more > 0 else [])
