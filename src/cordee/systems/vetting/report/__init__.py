"""Vetting in a run's report: nodes by checks, what speaks against them, what pairs of them measured."""

from __future__ import annotations

from markupsafe import Markup

from cordee.core.draw.pages import page_environment
from cordee.core.hostlist import fold_nodes
from cordee.systems.vetting.node.judge.table import pair_words
from cordee.systems.vetting.report.vetted import document_of, remarks, vetting_view
from cordee.telemetry.shown.section import Section
from cordee.telemetry.shown.words import fact_lines, text_lines


class VettingSection(Section):
    """What was found on the nodes before the ranks started. In report.json it stands among the facts of the run."""

    name = "vetting"
    place = "nodes"

    def lines(self) -> list[str]:
        state = self.reported.state
        document = document_of(state) if state.vetting else None
        if document is None:
            return []
        lines = ["Vetting", *text_lines(f"{document['verdict']}: {document['reason']}")]
        if document["exclude"]:
            lines += fact_lines("left out", fold_nodes(document["exclude"]))
        for text in [*remarks(document), pair_words(document)]:
            lines += text_lines(text, "    ", "  ") if text else []
        return lines

    def html(self) -> str:
        view = vetting_view(self.reported.state)
        if view is None:
            return ""
        template = page_environment(__name__).get_template("vetting.html.j2")
        pictures = {name: Markup(getattr(view, name)) for name in ("heat", "key", "pairs")}
        return template.render(vetting=view, **pictures)


SECTIONS = (VettingSection,)
