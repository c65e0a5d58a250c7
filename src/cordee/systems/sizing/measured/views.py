"""What was planned of a run's memory, wherever runs are told, and that it was not so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.telemetry.shown.view import RunView

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


class PlanView(RunView):
    """The planned peak of memory, and a finding where the measured one lies outside of its interval."""

    @property
    def part(self) -> Mapping[str, Any]:
        """What sizing has put into the run's plan, empty where nothing was known."""
        systems = self.step.get("systems")
        part = systems.get("sizing") if isinstance(systems, Mapping) else None
        return part if isinstance(part, Mapping) and "peak_bytes" in part else {}

    def facts(self) -> list[tuple[str, str]]:
        if not self.part:
            return []
        what = "GPU" if self.part.get("device") else "rank"
        low, high = self.part["interval_bytes"]
        said = f"{format_size(self.part['peak_bytes'])} of each {what} ({format_size(low)} to {format_size(high)}, {self.part['method']})"
        return [("memory planned", said)]

    def findings_of_samples(self, run: Run) -> list[Finding]:
        from cordee.systems.sizing.measured.truths import measured_peak

        if not self.part:
            return []
        try:
            measured, what = measured_peak(run, self.part)
        except CordeeError:
            return []
        low, high = self.part["interval_bytes"]
        if measured is None or low <= measured <= high:
            return []
        text = f"the peak of memory was {format_size(measured)} ({what}), and {format_size(low)} to {format_size(high)} was planned"
        hint = "correct [plan], or let plans learn from runs: `cordee plan calibrate`"
        evidence = {"measured_bytes": round(measured), "interval_bytes": [low, high]}
        return [Finding(text, "info", "plan-outside-interval", next=hint, evidence=evidence)]
