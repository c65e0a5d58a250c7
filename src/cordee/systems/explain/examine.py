"""What explain plans and finds."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.document import HangTable, ObserveTable
from cordee.job.findings import JobFindings
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan


class ExplainExamination(Examination):
    """When a run is said to hang, whether stragglers are looked for, and what is done then."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        hang, observe = self.loaded.job.hang, self.loaded.job.observe
        part: dict[str, object] = {}
        if hang != HangTable():
            after_s = None if hang.after == "auto" else hang.after
            part.update(enabled=hang.enabled, after_s=after_s, action=hang.action)
        if observe != ObserveTable():
            part.update(stragglers=observe.stragglers, stragglers_action=observe.stragglers_action)
        return Contribution(part) if part else Contribution()

    def judge(self, plan: Plan) -> list[Finding]:
        saying, hang = JobFindings(self.loaded), self.loaded.job.hang
        if hang.enabled and hang.action == "restart" and not plan.step.restart.retries:
            text = '[hang] action = "restart" has no effect: [restart] retries = 0'
            saying.warn("hang.action", "hang-no-retries", text, next="allow retries, or set action to report or end")
        self._judge_observe(saying, plan)
        limit_s = plan.step.request.time_s
        if hang.enabled and hang.after != "auto" and limit_s is not None and hang.after >= limit_s:
            text = f"[hang] after = {format_duration(hang.after)} is longer than the job: no hang would be seen"
            saying.warn("hang.after", "hang-after-too-long", text, next="make it shorter than [need] time")
        return saying.findings

    def _judge_observe(self, saying: JobFindings, plan: Plan) -> None:
        observe = self.loaded.job.observe
        if observe.stragglers_action != "replace":
            return
        where, rule, effect = "observe.stragglers_action", "stragglers-not-replaced", 'stragglers_action = "replace"'
        if not observe.stragglers:
            text = f"[observe] {effect} has no effect: stragglers = false"
            saying.warn(where, rule, text, next="let stragglers be looked for, or leave out the action")
        elif not plan.step.request.spare_nodes:
            text = f"[observe] {effect} has no effect: there is no spare node"
            saying.warn(where, rule, text, next="set [need] spare_nodes, or leave out the action")
