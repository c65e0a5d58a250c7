"""A plan of one target: its peak, what that consists of, where it comes from, layouts, changes, and what weighs beside the GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.devices import PlannedGpu
from cordee.systems.sizing.layouts import (
    Model,
    PlanChange,
    RankedLayout,
    changes,
    checkpoint_bytes,
    examined,
    method_of,
    named,
    ranked,
    smallest,
)
from cordee.systems.sizing.memory import Layout
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

_SHOWN = 6


@dataclass(frozen=True)
class SizedPlan:
    """What is known of one model in one workload on one layout.

    Attributes:
        here: the layout that was asked for, one GPU where none was.
        ranking: layouts on as many GPUs as were given, or on the fewest that it fits on.
        fewest: the fastest layout on the fewest GPUs.
    """

    model: Model
    workload: Workload
    device: PlannedGpu | None
    here: RankedLayout
    ranking: tuple[RankedLayout, ...] = ()
    fewest: RankedLayout | None = None
    changes: tuple[PlanChange, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it fits as it was asked for; where only GPUs were given, on these in some layout."""
        return self.here.fits

    @property
    def method(self) -> str:
        """How the peak was found."""
        return method_of(self.model, self.here.layout)

    def document(self) -> dict[str, Any]:
        """Return it as `cordee plan --json` prints it."""
        parts = self.here.parts
        model = self.model
        low, high = self.here.interval
        return {
            "schema": "cordee.plan/1",
            "model": model.name,
            "parameters": model.parameters if isinstance(model, Architecture) else None,
            "peak_bytes": round(parts.peak),
            "interval_bytes": [low, high],
            "parts": parts.document(),
            "other_parts": parts.others_document(),
            "moment": parts.moment,
            "method": self.method,
            "fits": self.fits if self.device else None,
            "device": None
            if self.device is None
            else {"model": self.device.model, "memory_bytes": round(self.device.memory)},
            "checkpoint_bytes": checkpoint_bytes(model, self.workload),
            "host_bytes": 2 * checkpoint_bytes(model, self.workload),
            "line": model.line or None if isinstance(model, TracedModel) else None,
            "layouts": [one.document(self.device) for one in self.ranking],
            "smallest": None if self.fewest is None else self.fewest.document(self.device),
            "changes": [{"text": one.words, "peak_bytes": round(one.peak), "fits": one.fits} for one in self.changes],
            "findings": [finding.document() for finding in self.findings],
        }

    def nearest(self) -> str:
        """Return what makes it fit, as an instruction; empty where it fits."""
        if self.fits or self.device is None:
            return ""
        own = next((one for one in self.changes if one.fits), None)
        words = [f"{own.words}: {format_size(own.peak)} for each GPU"] if own else []
        if self.fewest is not None:
            words.append(
                f"{self.fewest.layout.name} on {self.fewest.layout.gpus} GPUs: {format_size(self.fewest.parts.peak)} for each"
            )
        return (
            "; or ".join(words)
            or f"no number of GPUs with {format_size(self.device.memory)} holds it: take larger ones"
        )


def make_plan_of(
    model: Model, workload: Workload, device: PlannedGpu | None, layout: Layout | None = None, gpus: int | None = None
) -> SizedPlan:
    """Return the plan of a model.

    Args:
        layout: the one that is asked about; None: the best on `gpus`, or one GPU.
        gpus: how many there are; None: layouts are ranked on the fewest that it fits on.
    """
    fewest = smallest(model, workload, device) if device else None
    count = gpus or (layout.gpus if layout else fewest.layout.gpus if fewest else 1)
    ranking = ranked(model, workload, device, count) if device else []
    here = ranking[0] if layout is None and gpus and ranking else examined(model, workload, layout or Layout(), device)
    changed = changes(model, workload, here.layout, device) if device and not here.fits else []
    return SizedPlan(
        model,
        workload,
        device,
        here,
        tuple(named(ranking, _SHOWN)),
        fewest,
        tuple(changed),
        tuple(_findings(model, workload)),
    )


def _findings(model: Model, workload: Workload) -> list[Finding]:
    """Return what is worth knowing of the numbers."""
    found = []
    if isinstance(model, Architecture) and model.kind == "count":
        text = "only the number of parameters is known: activations are not in the peak"
        found.append(Finding(text, "warn", "plan-activations-unknown", next="give layers, width, heads and vocabulary"))
    if (
        workload.trains
        and workload.optimizer == "adamw"
        and workload.task == "train"
        and isinstance(model, Architecture)
    ):
        states = OPTIMIZERS["adamw"]
        each = 2 * workload.parameter_bytes + (states.states + states.step) * workload.state_scale
        fused = replace(workload, optimizer="adamw-fused")
        less = each - states.step * workload.state_scale
        text = f"AdamW takes {each:.0f} bytes for each parameter in its step: {states.says}"
        found.append(
            Finding(
                text, "info", "plan-optimizer-step", next=f"fused=True takes {less:.0f} bytes", evidence=fused.optimizer
            )
        )
    if isinstance(model, TracedModel) and model.extrapolated:
        text = "some of the repeated blocks were traced, and the rest extrapolated"
        found.append(Finding(text, "info", "plan-extrapolated"))
    if isinstance(model, TracedModel) and model.workspaces:
        text = "kernels of convolutions and recurrent layers allocate what no trace sees: up to a sixth of the peak"
        found.append(Finding(text, "info", "plan-workspaces"))
    return found
