"""A model that was traced in the job's Python, and what a layout makes of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordee.systems.sizing.memory import ALONE, COMMUNICATOR_BYTES, CONTEXT_BYTES, FRAGMENTATION, Layout, MemoryParts
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

SCHEMA = "cordee.plan-trace/1"


@dataclass(frozen=True)
class TracedModel:
    """What a step of one rank, undivided, allocates, in bytes, as fake tensors were counted.

    Attributes:
        parameters, gradients, optimizer, buffers: held at the peak of forward and backward, and kept.
        activations: all else at that peak.
        step: what the optimizer's step allocates on top of what is kept.
        peak, step_peak: of forward and backward, of the optimizer's step.
        largest: parameters of the largest repeated block, in bytes.
        batch: samples of the traced step; 0: not known.
        optimizer_name: of the class that the script uses.
        extrapolated: whether fewer blocks were traced than there are.
        line: of the user's code that holds most of the activations.
        trains: whether an optimizer stepped.
        gpu: whether it is for a GPU, with its context and an allocator that keeps memory, or for a CPU.
        workspaces: whether it has convolutions or recurrent layers, whose kernels allocate what no trace sees.
    """

    name: str
    parameters: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int
    step: int
    peak: int
    step_peak: int
    largest: int
    batch: int = 0
    optimizer_name: str = ""
    extrapolated: bool = False
    line: str = ""
    trains: bool = True
    seconds: float = 0.0
    torch: str = ""
    peak_gradients: int = 0
    workspaces: bool = False
    gpu: bool = True
    modules: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TracedModel:
        """Rebuild it from what the child printed, or the cache holds."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        modules = tuple((str(name), int(size)) for name, size in document.get("modules", ()))
        return cls(**{**known, "modules": modules})

    def refusal(self, layout: Layout) -> str:
        """Return why a layout cannot be told, empty where it can."""
        if (layout.tp, layout.pp, layout.ep, layout.cp) != (1, 1, 1, 1):
            return (
                "a traced model is divided by data parallelism and FSDP only; give its config.json for TP, PP, EP, CP"
            )
        return ""

    def parts(self, workload: Workload, layout: Layout = ALONE) -> MemoryParts:
        """Return the parts of one GPU: kept ones divided as the layout divides them, activations as they were traced."""
        shards = layout.fsdp
        scale = workload.micro_batch / self.batch if self.batch and workload.micro_batch != 1 else 1.0
        states, step = float(self.optimizer), float(self.step)
        if self.trains and workload.optimizer == "adamw-fused" and self.optimizer_name in ("Adam", "AdamW"):
            step = 0.0
        if self.trains and workload.optimizer == "adamw-8bit":
            states, step = self.gradients / 4 * OPTIMIZERS["adamw-8bit"].states, 0.0
        if workload.offload:
            states = step = 0.0
        divided = shards if shards > 1 else layout.dp if layout.zero else 1
        gradient_divided = shards * (layout.dp if layout.zero == 2 else 1)
        gathers = 3.0 * self.largest if shards > 1 else 0.0
        buckets = float(self.gradients) if layout.dp > 1 and not layout.zero and shards == 1 else 0.0
        activations = self.activations * scale
        moving = activations + gathers
        constants: dict[str, float] = {}
        if self.gpu:
            constants = {"context": CONTEXT_BYTES, "communication buffers": COMMUNICATOR_BYTES * (layout.gpus > 1)}
        kept = {
            "parameters": self.parameters / shards,
            "gradients": self.peak_gradients / gradient_divided,
            "optimizer": states / divided,
        }
        inside = {"gathers": gathers, "buckets": buckets, "fragmentation": moving * FRAGMENTATION * self.gpu}
        backward = MemoryParts(
            **kept,
            activations=activations,
            logits=0.0,
            buffers=float(self.buffers),
            others={**inside, **constants},
            moment="backward" if self.trains else "inference",
        )
        stepping = MemoryParts(
            parameters=kept["parameters"],
            gradients=self.gradients / gradient_divided,
            optimizer=kept["optimizer"],
            activations=0.0,
            logits=0.0,
            buffers=float(self.buffers),
            others={"optimizer step": step / divided, "buckets": buckets, **constants},
            moment="optimizer step",
        )
        return max(backward, stepping, key=lambda one: one.peak)
