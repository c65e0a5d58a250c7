"""What is known of a job's memory before it is submitted: shown, and refused where it cannot fit. Nothing is traced here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.placement import place
from cordee.systems.sizing.cache import has_traces

if TYPE_CHECKING:
    from cordee.systems.sizing.plan import SizedPlan


class SizingExamination(Examination):
    """The peak of each rank by formulas or by a trace that `cordee plan` made, against the GPUs of the job's partition."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        table = self.loaded.job.plan
        if table.model is None and not has_traces():
            return Contribution()
        # Deferred: of most jobs nothing is known.
        from cordee.systems.sizing.devices import device_of_partition
        from cordee.systems.sizing.layouts import refusal_of
        from cordee.systems.sizing.measured.calibration import CALIBRATION
        from cordee.systems.sizing.plan import make_plan_of
        from cordee.systems.sizing.target import known_model, layout_of, workload_of

        workload = workload_of(table, on_gpu=bool(self.loaded.job.need.gpus_per_node))
        model = known_model(self.loaded, workload)
        if model is None:
            return Contribution()
        layout = layout_of(self.loaded, table.strategy, model)
        file, line = self.loaded.place("plan", "model")
        why = refusal_of(model, workload, layout)
        if why:
            found = Finding(
                f"this layout cannot be: {why}", "error", "plan-layout", file=file, line=line, given=layout.name
            )
            return Contribution(findings=[found])
        need, profile = self.loaded.job.need, self.loaded.cluster
        placement = place(need, profile)
        device = device_of_partition(profile, placement.facts, placement.gpu_type) if need.gpus_per_node else None
        plan = make_plan_of(model, workload, device, layout)
        low, high = plan.here.interval
        part: dict[str, Any] = {
            "peak_bytes": round(plan.here.parts.peak),
            "interval_bytes": [low, high],
            "planned_bytes": round(plan.here.parts.peak - plan.here.parts.others.get(CALIBRATION, 0.0)),
            "method": plan.method,
            "layout": layout.name,
            "device": None if device is None else device.model,
            "memory_bytes": None if device is None else round(device.memory),
            "step_s": None if plan.here.time is None else plan.here.time.seconds,
            "layouts": [one.short() for one in plan.ranking],
        }
        said = format_size(part["peak_bytes"])
        findings = []
        if device is not None and not plan.fits:
            whole = low > device.memory
            findings.append(
                Finding(
                    f"each rank needs {said} ({format_size(low)} to {format_size(high)}, {plan.method}), and {device.words()} has less",
                    "error" if whole else "warn",
                    "plan-does-not-fit",
                    file=file,
                    line=line,
                    given=f"{layout.name}, {workload.precision}, {workload.optimizer}, micro-batch {workload.micro_batch}",
                    allowed=f"at most {format_size(device.memory)} for each GPU",
                    next=plan.nearest(),
                    evidence={"peak_bytes": part["peak_bytes"], "memory_bytes": part["memory_bytes"]},
                )
            )
        else:
            of = f" of {device.words()}" if device else ""
            findings.append(
                Finding(f"each rank needs {said}{of} ({plan.method})", "info", "plan-memory", file=file, line=line)
            )
        findings += self._host(plan)
        return Contribution(part, findings=findings)

    def _host(self, plan: SizedPlan) -> list[Finding]:
        """Return that the job asks for less memory of a node than its ranks, loaders and checkpoints are likely to take."""
        asked, needed = self.loaded.job.need.memory, sum(plan.host.values())
        if not asked or needed <= asked:
            return []
        file, line = self.loaded.place("need", "memory")
        largest = max(plan.host, key=lambda name: plan.host[name])
        return [
            Finding(
                f"each node is likely to need {format_size(needed)} of its own memory, most of it for {largest}",
                "warn",
                "plan-host-memory",
                file=file,
                line=line,
                given=format_size(asked),
                next=f'memory = "{round(needed / 1e9) + 1}GB", or fewer workers of the loader',
            )
        ]
