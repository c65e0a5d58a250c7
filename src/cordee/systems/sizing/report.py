"""The peak of memory that was predicted, beside the one that was measured."""

from __future__ import annotations

import html as markup
import math
from collections.abc import Mapping
from typing import Any

from cordee.core.units import format_size
from cordee.telemetry.shown.section import Reported, Section

# In the order in which they are looked at: what it is, its group, its metric.
_MEASURED = (
    ("memory of one GPU", "gpu", "gpu_memory_used_bytes"),
    ("resident memory of one rank, Python and its libraries too", "rank", "memory_rss_bytes"),
)


class PredictedMemory(Section):
    """Predicted and measured peak of the fullest GPU, or of the largest rank where there are no GPUs."""

    name = key = "memory_plan"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        systems = reported.step.get("systems")
        part = systems.get("sizing") if isinstance(systems, Mapping) else None
        self.part: Mapping[str, Any] = part if isinstance(part, Mapping) and "peak_bytes" in part else {}
        self.measured, self.what = self._measured() if self.part else (None, "")

    def _measured(self) -> tuple[float | None, str]:
        """Return the largest that was sampled, and what it is; None where nothing was."""
        kinds = _MEASURED[:1] if self.part.get("device") else _MEASURED[1:]
        for what, group, metric in kinds:
            if group in self.reported.run.groups() and metric in self.reported.run.metrics(group):
                values = self.reported.run.grid(group, [metric]).values
                known = [float(value) for value in values.ravel() if math.isfinite(value)]
                if known:
                    return max(known), what
        return None, ""

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
        return f"<h2>Peak of memory</h2><table>{rows}</table>"


SECTIONS = (PredictedMemory,)
