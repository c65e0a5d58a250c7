"""Hangs, in a run's report: who was to blame, and where all ranks stood."""

from __future__ import annotations

import textwrap
from typing import Any

from cordee.core.draw.clean import clean
from cordee.core.draw.pages import page_environment
from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.systems.explain.hang.evidence import hang_numbers, read_hang
from cordee.systems.explain.hang.views import HangView, causes_of
from cordee.telemetry.shown.section import Reported, Section

_WIDE, _MOST_HANGS, _MOST_LINES = 80, 5, 200


class HangSection(Section):
    """The last hangs of the run; nothing where none was seen."""

    name, key, place = "hangs", "hangs", "logged"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        root = reported.run.folder.root
        self._views: list[HangView] = []
        for number in hang_numbers(root)[-_MOST_HANGS:]:
            try:
                hang = read_hang(root, number)
            except UsageError:
                continue
            if not hang.asked:
                self._views.append(HangView(hang))

    def _causes(self, number: int) -> list[Finding]:
        return causes_of(number, self.reported.state.findings)

    def document(self) -> Any:
        return [
            {**view.stacks_document(), "causes": [one.document() for one in self._causes(view.hang.number)]}
            for view in self._views
        ] or None

    def lines(self) -> list[str]:
        found = []
        for view in self._views:
            told = [f"{one.text}\n  next: {one.next}" for one in self._causes(view.hang.number)]
            for line in [*told, *list(view.stacks_lines())[:_MOST_LINES]]:
                for part in clean(line).splitlines():
                    indent = " " * (len(part) - len(part.lstrip()) + 4)
                    found += textwrap.wrap(part, _WIDE, subsequent_indent=indent, drop_whitespace=True) or [""]
        return ["Hangs", *found] if found else []

    def html(self) -> str:
        if not self._views:
            return ""
        hangs = [
            {
                "number": view.hang.number,
                "causes": self._causes(view.hang.number),
                "stacks": "\n".join(clean(line) for line in list(view.stacks_lines())[:_MOST_LINES]),
            }
            for view in self._views
        ]
        return page_environment(__name__.rpartition(".")[0]).get_template("report.html.j2").render(hangs=hangs)
