"""The peak of memory that was predicted, beside the one that was measured."""

from __future__ import annotations

import html as markup
from collections.abc import Mapping
from typing import Any

from cordee.core.units import format_size
from cordee.systems.sizing.measured.truths import measured_peak
from cordee.systems.sizing.picture import trade_off
from cordee.telemetry.shown.section import Reported, Section


class PredictedMemory(Section):
    """Predicted and measured peak of the fullest GPU, or of the largest rank where there are no GPUs."""

    name = key = "memory_plan"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        systems = reported.step.get("systems")
        part = systems.get("sizing") if isinstance(systems, Mapping) else None
        self.part: Mapping[str, Any] = part if isinstance(part, Mapping) and "peak_bytes" in part else {}
        self.measured, self.what = measured_peak(reported.run, self.part) if self.part else (None, "")

    @property
    def missing(self) -> list[str]:
        return ["the peak of memory was predicted and not measured"] if self.part and self.measured is None else []

    def document(self) -> Mapping[str, Any] | None:
        if not self.part:
            return None
        return {
            "predicted_bytes": self.part["peak_bytes"],
            "interval_bytes": self.part["interval_bytes"],
            "method": self.part["method"],
            "measured_bytes": None if self.measured is None else round(self.measured),
            "measured": self.what or None,
        }

    def _rows(self) -> list[tuple[str, str]]:
        low, high = self.part["interval_bytes"]
        said = (
            f"{format_size(self.part['peak_bytes'])} ({format_size(low)} to {format_size(high)}, {self.part['method']})"
        )
        measured = "not measured" if self.measured is None else f"{format_size(self.measured)}: {self.what}"
        return [("predicted", said), ("measured", measured)]

    def lines(self) -> list[str]:
        if not self.part:
            return []
        return ["Peak of memory", *(f"  {name:10} {said}"[:80] for name, said in self._rows())]

    def html(self) -> str:
        if not self.part:
            return ""
        rows = "".join(f"<tr><th>{name}</th><td>{markup.escape(said)}</td></tr>" for name, said in self._rows())
        chart = trade_off(self.part.get("layouts") or (), self.part.get("memory_bytes"))
        return f"<h2>Peak of memory</h2><table>{rows}</table>{chart}"


SECTIONS = (PredictedMemory,)
