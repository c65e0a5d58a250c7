"""A plan of one target: its peak, what that consists of, where it comes from, layouts, changes, and what weighs beside the GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.systems.sizing.architecture import Architecture, architecture_of
from cordee.systems.sizing.costs.goal import Goal
from cordee.systems.sizing.costs.host_memory import KEPT_CHECKPOINTS, disk_bytes, host_parts
from cordee.systems.sizing.costs.inference import InferencePlan, serving
from cordee.systems.sizing.devices import PlannedGpu
from cordee.systems.sizing.layouts import (
    Model,
    PlanChange,
    RankedLayout,
    changes,
    checkpoint_bytes,
    examined,
    largest_that,
    method_of,
    named,
    ranked,
    smallest,
)
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import FROZEN, OPTIMIZERS, Workload

_SHOWN = 6
_DISAGREES = 0.15


@dataclass(frozen=True)
class SizedPlan:
    """What is known of one model in one workload on one layout.

    Attributes:
        here: the layout that was asked for, one GPU where none was.
        ranking: layouts on as many GPUs as were given, or on the fewest that it fits on.
        fewest: the fastest layout on the fewest GPUs.
        goal: how much is to be trained; `kept`: checkpoints that stay on the disk.
    """

    model: Model
    workload: Workload
    device: PlannedGpu | None
    here: RankedLayout
    ranking: tuple[RankedLayout, ...] = ()
    fewest: RankedLayout | None = None
    changes: tuple[PlanChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    goal: Goal | None = None
    kept: int = KEPT_CHECKPOINTS

    @property
    def fits(self) -> bool:
        """Whether it fits as it was asked for; where only GPUs were given, on these in some layout."""
        return self.here.fits

    @cached_property
    def serving(self) -> InferencePlan | None:
        """How it serves, for inference on a known GPU."""
        if self.device is None or not isinstance(self.model, Architecture):
            return None
        return serving(self.model, self.workload, self.here.layout, self.device, largest_that)

    @cached_property
    def check(self) -> tuple[Architecture, float] | None:
        """What formulas say of a traced model whose config.json is known: the architecture, and its peak in the same layout."""
        if not isinstance(self.model, TracedModel) or not self.model.config or not self.model.gpu:
            return None
        try:
            architecture = architecture_of(self.model.config, "")
        except CordeeError:
            return None
        workload = replace(self.workload, micro_batch=self.model.batch or 1)
        return architecture, formula_parts(architecture, workload, self.here.layout).peak

    @cached_property
    def host(self) -> dict[str, float]:
        """What the fullest node holds in its own memory."""
        return host_parts(self.model, self.workload, self.here.layout, self.device)

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
            "parameters": model.parameters if isinstance(model, Architecture) else model.count or None,
            "peak_bytes": round(parts.peak),
            "interval_bytes": [low, high],
            "reserved_bytes": round(parts.reserved),
            "parts": parts.document(),
            "other_parts": parts.others_document(),
            "moment": parts.moment,
            "method": self.method,
            "fits": self.fits if self.device else None,
            "device": None
            if self.device is None
            else {
                "model": self.device.model,
                "memory_bytes": round(self.device.memory),
                "origin": self.device.origin,
                "measured_nodes": self.device.nodes,
            },
            "checkpoint_bytes": checkpoint_bytes(model, self.workload),
            "disk_bytes": disk_bytes(model, self.workload, self.kept),
            "host_bytes": round(sum(self.host.values())),
            "host_parts": {name: round(value) for name, value in self.host.items()},
            "formula_peak_bytes": None if self.check is None else round(self.check[1]),
            "serving": None if self.serving is None else self.serving.document(),
            "goal": None if self.goal is None else self.goal.document(self.here, self.device),
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
    model: Model,
    workload: Workload,
    device: PlannedGpu | None,
    layout: Layout | None = None,
    gpus: int | None = None,
    goal: Goal | None = None,
    kept: int = KEPT_CHECKPOINTS,
) -> SizedPlan:
    """Return the plan of a model.

    Args:
        layout: the one that is asked about; None: the best on `gpus`, or one GPU.
        gpus: how many there are; None: layouts are ranked on the fewest that it fits on.

    Raises:
        UsageError: the workload cannot be done with weights that are stored as these are.
    """
    _check_weights(model, workload)
    fewest = smallest(model, workload, device) if device else None
    count = gpus or (layout.gpus if layout else fewest.layout.gpus if fewest else 1)
    ranking = ranked(model, workload, device, count) if device else []
    here = ranking[0] if layout is None and gpus and ranking else examined(model, workload, layout or Layout(), device)
    changed = changes(model, workload, here.layout, device) if device and not here.fits else []
    plan = SizedPlan(
        model, workload, device, here, tuple(named(ranking, _SHOWN)), fewest, tuple(changed), (), goal, kept
    )
    return replace(plan, findings=tuple(_findings(plan)))


def _check_weights(model: Model, w: Workload) -> None:
    """Refuse to train weights that are held quantized, and to quantize those that are, or that code makes.

    Raises:
        UsageError: this is asked for.
    """
    stored = model.stored if isinstance(model, Architecture) else None
    if stored is not None and w.task == "train":
        raise UsageError(
            "quantized weights are not trained",
            given=f"quantization_config of {stored.method}, task train",
            allowed="--task inference, lora (matrices beside quantized weights), qlora",
            next="--task lora; or plan a copy of the file without quantization_config: the weights before they were quantized",
        )
    if w.precision not in FROZEN:
        return
    if w.task == "train" or (w.task == "qlora" and w.precision != "nf4"):
        allowed = "--task qlora holds weights in nf4" if w.task == "qlora" else "--task inference, lora, qlora"
        hint = "leave out --precision" if w.task == "qlora" else "--task lora --precision " + w.precision
        raise UsageError(
            "weights of this precision are not trained",
            given=f"{w.precision}, task {w.task}",
            allowed=allowed,
            next=hint,
        )
    if stored is not None:
        hint = "leave out --precision, or plan a copy of the file without quantization_config"
        raise UsageError(
            "the file says how its weights are quantized", given=f"{w.precision}, and {stored.method}", next=hint
        )
    if isinstance(model, TracedModel):
        hint = "quantize in the function, or give the model's config.json"
        raise UsageError("weights of a traced model are as its code makes them", given=w.precision, next=hint)


def _findings(plan: SizedPlan) -> list[Finding]:
    """Return what is worth knowing of the numbers."""
    found: list[Finding] = []

    def say(rule: str, text: str, hint: str | None = None, severity: str = "info", evidence: object = None) -> None:
        found.append(Finding(text, severity, rule, next=hint, evidence=evidence))

    device, peak = plan.device, format_size(plan.here.parts.peak)
    if device is not None and device.sizes:
        taken, *others = (f"{device.model}_{size >> 30}gb" for size in device.sizes)
        text = f"{taken} is planned for; others of this name have {_sizes_in_gib(device.sizes[1:])}"
        say("plan-gpu-size", text, f"name yours: --gpu {' or '.join(others)}")
    if device is not None and device.nodes:
        text = (
            f"no speed of this GPU is taken to be above what {device.nodes} vetted nodes reached in the last four weeks"
        )
        say("plan-measured-speeds", text, evidence={"nodes": device.nodes})
    if plan.check is not None and abs(plan.check[1] / plan.here.parts.peak - 1) > _DISAGREES:
        said = f"{peak} traced, {format_size(plan.check[1])} by formulas from its config"
        say("plan-disagreement", f"trace and formulas disagree: {said}", "the trace has seen the code, and is shown")
    if isinstance(plan.model, TracedModel):
        _say_of_trace(plan.model, say)
    elif plan.model.kind == "count":
        text = "only the number of parameters is known: activations are not in the peak"
        say("plan-activations-unknown", text, "give layers, width, heads and vocabulary", "warn")
    w = plan.workload
    if isinstance(plan.model, Architecture) and w.trains and w.on_gpu and (w.optimizer, w.task) == ("adamw", "train"):
        states = OPTIMIZERS["adamw"]
        less = 2 * w.parameter_bytes + states.states * w.state_scale
        why = "foreach, PyTorch's default on GPUs, makes a copy of all parameters' size in its step"
        text = f"AdamW takes {less + states.step * w.state_scale:.0f} bytes for each parameter in its step: {why}"
        say("plan-optimizer-step", text, f"fused=True takes {less:.0f} bytes", evidence="adamw-fused")
    return found


def _sizes_in_gib(sizes: tuple[int, ...]) -> str:
    return " or ".join(f"{size >> 30}" for size in sorted(sizes)) + " GiB"


def _say_of_trace(model: TracedModel, say: Callable[..., None]) -> None:
    if model.masked:
        text = "rows are chosen by values, which a trace does not know: experts are taken to get even shares, other masks to choose all"
        say("plan-masks", text)
    if model.extrapolated:
        say("plan-extrapolated", "some of the repeated blocks were traced, and the rest extrapolated")
    if model.workspaces:
        text = "kernels of convolutions and recurrent layers allocate what no trace sees: up to a sixth of the peak"
        say("plan-workspaces", text)
