"""Where the job sat on the network, in a run's report."""

from __future__ import annotations

import os
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from cordee.core.backends import abilities, is_known
from cordee.core.documents.config_paths import profile_names
from cordee.core.draw.pages import page_environment
from cordee.core.errors import RunFolderError
from cordee.telemetry.shown.section import Reported, Section

if TYPE_CHECKING:
    from cordee.systems.explain.topology.views import View
    from cordee.telemetry.store.reader import Run

_WIDE = 80


class TopologySection(Section):
    """Switches and groups that the nodes are below, and the picture; nothing for one node, or where nobody knows switches."""

    name = key = "topology"
    place = "nodes"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        several = len({rank.node for rank in reported.state.ranks}) > 1 or len(reported.state.nodes) > 1
        self.view = _view(reported.run) if several and not _on_one_machine(reported.run) else None
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


def _on_one_machine(run: Run) -> bool:
    """Return whether a run's nodes are processes of one machine, for which nobody has written down a network."""
    with suppress(RunFolderError):  # a recording has no plan
        plan = run.plan if isinstance(run.plan, dict) else {}
        name = str(plan.get("backend"))
        several = not is_known(name) or abilities(name).several_machines
        return not several and plan.get("cluster") not in profile_names(os.environ)
    return False


def _view(run: Run) -> View:
    from cordee.systems.explain.topology.views import view_of_run  # deferred: profiles of clusters are read by it

    return view_of_run(run)
