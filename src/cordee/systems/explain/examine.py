"""What explain plans and finds."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.document import HangTable
from cordee.job.findings import JobFindings
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan


class ExplainExamination(Examination):
    """When a run is said to hang, and what is done then."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        hang = self.loaded.job.hang
        if hang == HangTable():
            return Contribution()
        after_s = None if hang.after == "auto" else hang.after
        return Contribution({"enabled": hang.enabled, "after_s": after_s, "action": hang.action})

    def judge(self, plan: Plan) -> list[Finding]:
        saying, hang = JobFindings(self.loaded), self.loaded.job.hang
        if hang.enabled and hang.action == "restart" and not plan.step.restart.retries:
            text = '[hang] action = "restart" has no effect: [restart] retries = 0'
            saying.warn("hang.action", "hang-no-retries", text, next="allow retries, or set action to report or end")
        limit_s = plan.step.request.time_s
        if hang.enabled and hang.after != "auto" and limit_s is not None and hang.after >= limit_s:
            text = f"[hang] after = {format_duration(hang.after)} is longer than the job: no hang would be seen"
            saying.warn("hang.after", "hang-after-too-long", text, next="make it shorter than [need] time")
        return saying.findings
