"""What it plans and finds."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.findings import JobFindings
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan


class WindowExamination(Examination):
    """Whether the job fits."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        return Contribution({"open_s": self.loaded.job.window.open})

    def judge(self, plan: Plan) -> list[Finding]:
        saying, wanted = JobFindings(self.loaded), plan.step.request.time_s
        open_s = plan.step.systems["window"]["open_s"]
        if wanted is not None and wanted > open_s:
            text = f"the job asks for {format_duration(wanted)}, and the window is open for {format_duration(open_s)}"
            saying.warn("window.open", "window-too-short", text, next="ask for less time")
        return saying.findings
