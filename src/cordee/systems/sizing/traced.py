"""A model that was traced in the job's Python, and what a layout makes of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cordee.systems.sizing.memory import FRAGMENTATION, MemoryParts, constants
from cordee.systems.sizing.parallelism import ALONE, Layout
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

SCHEMA = "cordee.plan-trace/2"


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
        strategy: how the script itself divides the model: `ddp`, `fsdp`, empty where it does not.
        masked: whether rows were chosen by values, which a trace can only guess.
        calls: forwards of one step, more than one where gradients are accumulated; `blocks`: repeated ones; `count`: of parameters.
        half_flops, full_flops, attention_flops, moved_bytes: work of one step: matrices in 16 bit and in fp32, attention, memory.
        tf32: whether fp32 matrices may be multiplied in TF32; `config`: of a Hugging Face model.
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
    peak_gradients: int = 0
    workspaces: bool = False
    gpu: bool = True
    strategy: str = ""
    masked: bool = False
    calls: int = 1
    blocks: int = 0
    count: int = 0
    half_flops: float = 0.0
    full_flops: float = 0.0
    attention_flops: float = 0.0
    moved_bytes: float = 0.0
    tf32: bool = False
    config: dict[str, Any] = field(default_factory=dict)
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
        # Two blocks and the gradients of one are whole; what is in no block stays so after forward, and half of its gradients.
        ends = max(0, self.parameters - self.blocks * self.largest)
        gathers = 3.0 * self.largest + 1.5 * ends if shards > 1 else 0.0
        buckets = float(self.gradients) if layout.dp > 1 and not layout.zero and shards == 1 else 0.0
        activations = self.activations * scale
        moving = activations + gathers
        fixed = constants(layout, on_gpu=self.gpu)
        kept = {
            "parameters": self.parameters / shards,
            "gradients": self.peak_gradients / gradient_divided,
            "optimizer": states / divided,
            "buffers": float(self.buffers),
        }
        inside = {"gathers": gathers, "buckets": buckets, "fragmentation": moving * FRAGMENTATION * self.gpu}
        moment = "backward" if self.trains else "inference"
        backward = MemoryParts(**kept, activations=activations, others={**inside, **fixed}, moment=moment)
        kept["gradients"] = self.gradients / gradient_divided
        others = {"optimizer step": step / divided, "buckets": buckets, **fixed}
        stepping = MemoryParts(**kept, others=others, moment="optimizer step")
        return max(backward, stepping, key=lambda one: one.peak)
