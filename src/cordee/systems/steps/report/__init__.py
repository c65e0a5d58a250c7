"""The runs below a run, in its report: a picture of the graph, and a table."""

from __future__ import annotations

from typing import Any

from cordee.core.units import format_duration
from cordee.runs.children import child_documents, child_states, read_graph
from cordee.systems.steps.report.picture import graph_svg
from cordee.systems.steps.views import learned_words
from cordee.telemetry.shown.section import Reported, Section
from cordee.telemetry.shown.words import text_lines


class ChildrenSection(Section):
    """What comes after what, how far it is, and what a test has shown."""

    name = "children"
    key = "children"
    place = "phases"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        folder = reported.run.folder
        graph = read_graph(folder)
        own = child_states(folder, graph) if graph is not None else {}
        self.main = graph is not None and graph.main
        self.children = child_documents(folder, graph, reported.state, own) if graph is not None else []

    def document(self) -> Any:
        return self.children or None

    def lines(self) -> list[str]:
        if not self.children:
            return []
        found = ["Runs below this one"]
        for child in self.children:
            found += text_lines(words_of(child), " " * 15, f"  {child['name']:12} ")
        for child in self.children:
            for text in learned_words(child["outcome"].get("learned") or {}, child["outcome"].get("predicted") or {}):
                found += text_lines(f"{child['name']}: {text}")
        return found

    def html(self) -> str:
        from cordee.core.draw.pages import page_environment

        if not self.children:
            return ""
        job = [
            {"name": "the job", "after": [child["name"] for child in self.children], "state": self.reported.state.state}
        ]
        nodes = [*self.children, *(job if self.main else [])]
        learned = [
            text
            for child in self.children
            for text in learned_words(child["outcome"].get("learned") or {}, child["outcome"].get("predicted") or {})
        ]
        template = page_environment(__name__).get_template("children.html.j2")
        return template.render(children=self.children, words=words_of, picture=graph_svg(nodes), learned=learned)


def words_of(child: dict[str, Any]) -> str:
    """Return how a child is, in a line."""
    took = ""
    if child["started_at"] is not None and child["ended_at"] is not None:
        took = f" in {format_duration(round(child['ended_at'] - child['started_at'], 1))}"
    after = f", after {', '.join(child['after'])}" if child["after"] else ""
    text = f": {child['text']}" if child["text"] and child["state"] not in ("finished",) else ""
    return f"{child['state']}{took}{after}{text}"


SECTIONS = (ChildrenSection,)
