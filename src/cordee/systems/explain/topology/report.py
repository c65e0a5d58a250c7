"""Where the job sat on the network, in a run's report."""

from __future__ import annotations

import textwrap
from typing import Any

from markupsafe import Markup

from cordee.core.draw.pages import page_environment
from cordee.systems.explain.topology.views import view_of_run
from cordee.telemetry.shown.section import Reported, Section

_WIDE = 80


class TopologySection(Section):
    """Switches and groups that the nodes are below, and the picture; nothing for one node, or where nobody knows switches."""

    name = key = "topology"
    place = "nodes"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        several = len({rank.node for rank in reported.state.ranks}) > 1 or len(reported.state.nodes) > 1
        self.view = view_of_run(reported.run) if several else None
        self.shown = self.view is not None and self.view.network is not None

    @property
    def missing(self) -> list[str]:
        if self.view is None or not self.shown:
            return []
        return [f"{one.what}: add to {one.where}: {' '.join(one.line.split())}" for one in self.view.missing]

    def document(self) -> dict[str, Any] | None:
        if self.view is None or not self.shown:
            return None
        return {key: value for key, value in self.view.document().items() if key not in ("placed", "schema", "of")}

    def lines(self) -> list[str]:
        if self.view is None or not self.shown:
            return []
        _, *told = self.view.told()
        short = (
            textwrap.wrap(line, _WIDE, subsequent_indent="      ") if len(line) > _WIDE else [line] for line in told
        )
        return ["Where it sat on the network", *(part for parts in short for part in parts)]

    def html(self) -> str:
        if self.view is None or not self.shown:
            return ""
        document = self.view.document()
        levels = ["node", *(level["level"] for level in document["levels"])]
        told = [line.strip() for line in self.view.told() if line.startswith(("network:", "  spans", "  switches"))]
        template = page_environment(__name__.rpartition(".")[0]).get_template("report.html.j2")
        return template.render(told=told, levels=levels, edges=document["edges"], picture=Markup(self.view.svg()))
