"""How a model is laid over GPUs, why it may not be, and what a stage of a pipeline holds and waits for.

Zero-bubble schedules compute the gradients of weights (W) apart from those of what came in (B), and fill with them what else stands
(Qi et al., Zero Bubble Pipeline Parallelism, 2024; its tables of bubbles and of memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.workload import Workload

SCHEDULES = ("1f1b", "zb-h1", "zb-v")


@dataclass(frozen=True)
class Layout:
    """How a model is laid over GPUs; the product of `dp`, `fsdp`, `tp`, `pp` and `cp` is their number, `ep` divides `dp` times `fsdp`.

    Attributes:
        dp: copies that hold what `zero` leaves whole; `fsdp`: ranks among which parameters, gradients and states are divided.
        zero: 0: nothing is divided over `dp`; 1: optimizer states; 2: gradients too.
        interleaved: blocks of layers of one pipeline stage; `schedule`: of SCHEDULES, of a pipeline.
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    zero: int = 0
    interleaved: int = 1
    schedule: str = "1f1b"

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.dp * self.fsdp * self.tp * self.pp * self.cp

    @property
    def replicas(self) -> int:
        """Ranks that read different samples."""
        return self.dp * self.fsdp

    @property
    def parts(self) -> int:
        """Blocks of layers of one pipeline stage: ZB-V has two, one on the way down, one on the way up."""
        return 2 if self.schedule == "zb-v" else self.interleaved

    @property
    def name(self) -> str:
        """What the field calls it: `FSDP2 8 x TP 4`."""
        parts = [f"ZeRO-{self.zero} {self.dp}" if self.zero else f"DDP {self.dp}"] if self.dp > 1 else []
        if self.fsdp > 1:
            parts = [f"HSDP {self.dp} x {self.fsdp}" if self.dp > 1 else f"FSDP2 {self.fsdp}"]
        for word, size in (("TP+SP", self.tp), ("PP", self.pp), ("CP", self.cp), ("EP", self.ep)):
            parts += [f"{word} {size}"] if size > 1 else []
        parts += [self.schedule.upper()] if self.pp > 1 and self.schedule != "1f1b" else []
        return " x ".join(parts) or "1 GPU"


ALONE = Layout()


def refusal(architecture: Architecture, workload: Workload, layout: Layout) -> str:
    """Return why a layout cannot be, empty where it can."""
    a = architecture
    if a.kind == "count" and (layout.tp, layout.pp, layout.cp, layout.ep) != (1, 1, 1, 1):
        return "only the number of parameters is known, so that nothing but states can be divided"
    if a.heads % layout.tp:
        return f"{a.heads} heads cannot be divided by TP {layout.tp}"
    if a.kv_heads % layout.tp and layout.tp % a.kv_heads:
        return f"{a.kv_heads} heads of keys and values cannot be divided by TP {layout.tp}"
    if a.ffn % layout.tp:
        return f"an MLP of {a.ffn} cannot be divided by TP {layout.tp}"
    if layout.schedule != "1f1b":
        if layout.pp == 1 or layout.interleaved > 1:
            return f"{layout.schedule} is a schedule of pipelines (pp=2 and more), with a number of parts of its own"
        if workload.checkpointing != "none" or not workload.trains:
            return (
                f"{layout.schedule} computes gradients of weights later, and needs till then what checkpointing frees"
            )
    if layout.pp * layout.parts > max(1, a.layers):
        return f"{a.layers} layers are too few for PP {layout.pp} with {layout.parts} parts of each stage"
    if tokens_of(a, workload) % (2 * layout.cp if layout.cp > 1 else 1):
        return f"a sequence of {tokens_of(a, workload)} cannot be divided into 2 x CP {layout.cp} parts"
    if layout.ep > 1 and (not a.experts or a.experts % layout.ep):
        return (
            f"{a.experts} experts cannot be divided by EP {layout.ep}"
            if a.experts
            else "the model has no experts for EP"
        )
    if layout.replicas % layout.ep:
        return f"EP {layout.ep} does not divide {layout.replicas} data-parallel ranks"
    if workload.batch and workload.batch % (layout.replicas * workload.micro_batch):
        return f"a batch of {workload.batch} cannot be divided by {layout.replicas} ranks with {workload.micro_batch} samples each"
    return ""


def tokens_of(architecture: Architecture, workload: Workload) -> int:
    """Return the tokens of one sample."""
    return architecture.tokens or workload.sequence


def micro_batches(w: Workload, layout: Layout) -> int:
    """Return how many micro-batches a step has."""
    whole = w.batch or layout.replicas * w.micro_batch * (2 * layout.pp if layout.pp > 1 else 1)
    return max(1, whole // (layout.replicas * w.micro_batch))


class PipelineStage(NamedTuple):
    """One stage of a pipeline; the whole model where there is none.

    Attributes:
        layers: that it has; `first`, `last`: whether it has the embedding, the head and the loss.
        inside: micro-batches whose activations it keeps at once.
    """

    layers: int
    inside: float = 1.0
    first: bool = True
    last: bool = True


def pipeline_stages(a: Architecture, workload: Workload, layout: Layout) -> list[PipelineStage]:
    """Return the stages of a layout, balanced by their parameters."""
    if layout.pp == 1:
        return [PipelineStage(a.layers)]
    pp, count = layout.pp, micro_batches(workload, layout)
    folded = layout.schedule == "zb-v"  # it comes back to where it began
    head = a.head or a.embedding
    ends = (a.embedding + a.head, 0) if folded else (a.embedding, head)
    layers = balanced(a.layers, pp, *ends, a.block)
    inside = [min(float(count), _kept(layout, stage)) for stage in range(pp)]
    return [
        PipelineStage(layers[stage], inside[stage], stage == 0, stage == (0 if folded else pp - 1))
        for stage in range(pp)
    ]


def _kept(layout: Layout, stage: int) -> float:
    """Return how many micro-batches are on their way between a stage's forward and backward, if there are as many."""
    pp, parts = layout.pp, layout.interleaved
    if layout.schedule != "1f1b":  # W comes later where fewer are on their way: all stages keep as much
        return float(pp)
    return float(pp - stage) if parts == 1 else (2 * (pp - 1 - stage) + (parts - 1) * pp + 1) / parts


def balanced(layers: int, pp: int, embedding: float, head: float, block: float) -> list[int]:
    """Return how many layers each pipeline stage takes so that the heaviest is as light as can be; the ends hold embedding and head."""
    extra = [embedding / block if stage == 0 else head / block if stage == pp - 1 else 0.0 for stage in range(pp)]
    counts = [1] * pp
    for _ in range(layers - pp):
        lightest = min(range(pp), key=lambda stage: counts[stage] + extra[stage])
        counts[lightest] += 1
    return counts


def bubble_seconds(layout: Layout, count: int, busy: float, weights: float) -> float:
    """Return how long a stage stands in a step of `count` micro-batches, in seconds.

    Optimizers step together: the last rank's wait for its first micro-batch, half a forward for each rank of ZB-V, is filled by nothing.

    Args:
        busy: what a stage computes in the step; `weights`: what of it are gradients of weights.
    """
    stands = {"1f1b": busy, "zb-h1": busy - 2 * weights, "zb-v": max(busy - 3 * weights, busy / 6)}[layout.schedule]
    return (layout.pp - 1) / count / layout.interleaved * max(0.0, stands)
