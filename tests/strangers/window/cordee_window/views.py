"""What it says of a run wherever runs are told."""

from __future__ import annotations

from typing import Any

from cordee.telemetry.shown.kept_data import KeptData
from cordee.telemetry.shown.view import RunView


class WindowView(RunView):
    """How long the window of the run is open."""

    def document(self) -> dict[str, Any]:
        return {"window": self.step["systems"]["window"]}

    def facts(self) -> list[tuple[str, str]]:
        return [("window", f"open for {self.step['systems']['window']['open_s']:g} s")]


def data_sets() -> tuple[KeptData, ...]:
    """Return what it leaves."""
    said = "How long it is open, as it was planned."
    where = ("plan.json", "JSON", "`run.plan`")
    return (KeptData("window", "The window", *where, said),)
