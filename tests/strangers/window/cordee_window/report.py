"""What it says in a run's report."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from cordee.telemetry.shown.section import Reported, Section
from cordee.telemetry.shown.words import text_lines


class WindowSection(Section):
    """How long the window was open; of runs without one it has nothing to say."""

    name = key = "window_use"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self.open_s = (reported.step.get("systems") or {}).get("window", {}).get("open_s")

    def document(self) -> dict[str, Any] | None:
        return None if self.open_s is None else {"open_s": self.open_s}

    def lines(self) -> list[str]:
        return [] if self.open_s is None else ["The window", *text_lines(f"<open> for {self.open_s:g} s")]

    def style(self) -> str:
        return "#the-window { font-weight: 600; }"

    def html(self) -> str:
        said = Markup('<h2>The window</h2>\n<p id="the-window">{}</p>')
        return "" if self.open_s is None else said.format(f"<open> for {self.open_s:g} s")


SECTIONS = (WindowSection,)
