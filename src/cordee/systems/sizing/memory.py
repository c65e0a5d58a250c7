"""What one GPU holds: the parts of its peak by formulas, for an architecture, a workload and a layout.

Activations are counted as Korthikanti et al. (2022) do, for kernels that keep no matrix of sequence times sequence, with the
tensors that PyTorch saves for backward; states as ZeRO (Rajbhandari et al., 2020) divides them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

# Memory that the allocator holds beyond what is allocated, over all that comes and goes; compiled code asks for fewer sizes.
# Set by the tuning half of the published configurations (benchmarks/results/2026-11-23-plan.md).
FRAGMENTATION, FRAGMENTATION_COMPILED = 0.14, 0.07
# CUDA context with the modules of PyTorch's kernels, and the workspace of cuBLAS (32 MiB on Hopper).
CONTEXT_BYTES = 600 << 20
# Buffers of one communicator of NCCL: channels times 4 MiB of each direction.
COMMUNICATOR_BYTES = 160 << 20
# Bytes of a logit at the loss's peak beside the logit itself: in fp32 the soft maximum, its gradient and what autograd returns.
LOSS_BYTES = 12
WORKSPACES = 1.22
INTERVAL = {"traced": (0.95, 1.06), "formula": (0.85, 1.20), "mixed": (0.90, 1.15)}


@dataclass(frozen=True)
class Layout:
    """How a model is laid over GPUs; the product of `dp`, `fsdp`, `tp`, `pp` and `cp` is their number, `ep` divides `dp` times `fsdp`.

    Attributes:
        dp: copies that hold what `zero` leaves whole; `fsdp`: ranks among which parameters, gradients and states are divided.
        zero: 0: nothing is divided over `dp`; 1: optimizer states; 2: gradients too.
        interleaved: blocks of layers of one pipeline stage.
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    zero: int = 0
    interleaved: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.dp * self.fsdp * self.tp * self.pp * self.cp

    @property
    def replicas(self) -> int:
        """Ranks that read different samples."""
        return self.dp * self.fsdp

    @property
    def name(self) -> str:
        """What the field calls it: `FSDP2 8 x TP 4`."""
        parts = [f"ZeRO-{self.zero} {self.dp}" if self.zero else f"DDP {self.dp}"] if self.dp > 1 else []
        if self.fsdp > 1:
            parts = [f"HSDP {self.dp} x {self.fsdp}" if self.dp > 1 else f"FSDP2 {self.fsdp}"]
        for word, size in (("TP+SP", self.tp), ("PP", self.pp), ("CP", self.cp), ("EP", self.ep)):
            parts += [f"{word} {size}"] if size > 1 else []
        return " x ".join(parts) or "1 GPU"


ALONE = Layout()


@dataclass(frozen=True)
class MemoryParts:
    """What one GPU holds at its peak, in bytes; None: not known.

    Attributes:
        other: all else, each by its name in `others`.
        moment: when the peak is: `backward`, `optimizer step` or `inference`.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float | None
    logits: float | None
    buffers: float
    others: dict[str, float] = field(default_factory=dict)
    moment: str = "backward"

    @property
    def other(self) -> float:
        """All else together."""
        return sum(self.others.values())

    @property
    def peak(self) -> float:
        """The whole."""
        known = (self.parameters, self.gradients, self.optimizer, self.activations or 0, self.logits or 0, self.buffers)
        return sum(known) + self.other

    def document(self) -> dict[str, Any]:
        """Return the parts in whole bytes."""
        return {
            name: None if value is None else round(value)
            for name, value in (
                ("parameters", self.parameters),
                ("gradients", self.gradients),
                ("optimizer", self.optimizer),
                ("activations", self.activations),
                ("logits", self.logits),
                ("buffers", self.buffers),
                ("other", self.other),
            )
        }

    def others_document(self) -> dict[str, int]:
        """Return what `other` consists of."""
        return {name: round(value) for name, value in self.others.items() if value}


def interval_of(peak: float, method: str, *, workspaces: bool = False) -> tuple[int, int]:
    """Return the lowest and the highest that a peak may be, in bytes; what kernels of convolutions and recurrences allocate by
    themselves was up to a sixth of the peak where it was measured."""
    low, high = INTERVAL[method]
    return round(peak * low), round(peak * (max(high, WORKSPACES) if workspaces else high))


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
    if layout.pp * layout.interleaved > max(1, a.layers):
        return f"{a.layers} layers are too few for PP {layout.pp} with {layout.interleaved} parts of each stage"
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


def held_parameters(a: Architecture, layout: Layout) -> float:
    """Return the parameters of the fullest pipeline stage after TP and EP."""
    if a.kind == "count":
        return float(a.counted)
    layers = -(-a.layers // layout.pp)
    experts = layers * a.experts * a.mlp_matrix / layout.tp / layout.ep if a.experts else 0.0
    rest = layers * (a.block - a.experts * a.mlp_matrix) / layout.tp
    edge = (a.embedding + a.extra + a.positions * a.width) / layout.tp
    head = (a.head or (a.embedding if layout.pp > 1 else 0)) / layout.tp
    ends = edge + head if layout.pp == 1 else max(edge, head)
    return rest + experts + ends


def formula_parts(a: Architecture, workload: Workload, layout: Layout = ALONE) -> MemoryParts:
    """Return the parts of the peak of the fullest GPU of a layout."""
    w = workload
    held = held_parameters(a, layout)
    lora = _lora(a, w) / layout.tp / layout.pp
    states = _states(a, w, layout, held, lora)
    if not w.trains:
        return _inference(a, w, layout, states)
    activations, logits = _activations(a, w, layout), _logits(a, w, layout)
    parts = [_backward(a, w, layout, states, activations, logits)]
    if not parts[0].gradients:  # the end of backward: all gradients, and what one block needs
        none = None if activations is None else 0.0
        parts.append(
            replace(parts[0], gradients=states["gradients"], activations=none, logits=none, moment="end of backward")
        )
    step = OPTIMIZERS[w.optimizer].step * w.state_scale * (lora or held) / _divided(layout)
    others = {"optimizer step": 0.0 if w.offload else step, **_constants(layout)}
    kept = {"parameters": states["parameters"], "gradients": states["gradients"], "optimizer": states["optimizer"]}
    unknown = None if activations is None else 0.0
    moving = (step + states["gradients"]) * _fragmentation(w) / 2
    parts.append(
        MemoryParts(
            **kept,
            activations=unknown,
            logits=unknown,
            buffers=0.0,
            others={**others, "fragmentation": moving},
            moment="optimizer step",
        )
    )
    return max(parts, key=lambda one: one.peak)


def _divided(layout: Layout) -> int:
    """Return among how many ranks optimizer states are divided."""
    # Ranks of context parallelism hold the same parameters, and FSDP2 divides over them too.
    return layout.fsdp * layout.cp if layout.fsdp > 1 or layout.cp > 1 else layout.dp if layout.zero else 1


def _lora(a: Architecture, w: Workload) -> float:
    if w.task not in ("lora", "qlora"):
        return 0.0
    inner, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    return a.layers * w.rank * (2 * a.width + inner + kv)


def _states(a: Architecture, w: Workload, layout: Layout, held: float, lora: float) -> dict[str, float]:
    sharded = layout.fsdp * layout.cp
    optimizer = OPTIMIZERS[w.optimizer]
    if w.task in ("lora", "qlora"):
        ends = (a.embedding + a.head) / layout.tp / layout.pp
        weight = 2 * ends + (held - ends) * w.parameter_bytes if w.task == "qlora" else held * w.parameter_bytes
        return {
            "parameters": weight / sharded + lora * 4 / sharded,
            "gradients": lora * 4 / sharded,
            "optimizer": lora * optimizer.states / _divided(layout),
        }
    if not w.trains:
        return {"parameters": held * w.parameter_bytes / sharded, "gradients": 0.0, "optimizer": 0.0}
    each, gradient = w.parameter_bytes, w.parameter_bytes
    per_state = optimizer.states * w.state_scale
    if layout.zero and w.casts:
        # Megatron's distributed optimizer: parameters in 16 bit on each rank, fp32 ones beside the states.
        each, per_state = 2.0, per_state + 4
    gradient_parts = sharded * (layout.dp if layout.zero == 2 else 1)
    return {
        "parameters": held * each / sharded,
        "gradients": held * gradient / gradient_parts,
        "optimizer": 0.0 if w.offload else held * per_state / _divided(layout),
    }


def block_elements(a: Architecture, compiled: bool = False) -> float:
    """Return how many numbers of one token a block keeps for backward without checkpointing, for kernels without a matrix of
    sequence times sequence: inputs of norms and matrices, queries, keys, values, the attention's output, the MLP's inside."""
    inner = a.heads * a.head_width
    # Keys and values are repeated to as many heads as there are queries before the kernel.
    attention = 2 * a.width + 4 * inner
    experts = max(1, a.experts_per_token)
    mlp = 2 * a.width + experts * a.ffn * ((2 if compiled else 4) if a.gated else 2)
    dispatch = 2 * a.width * experts if a.experts else 0
    return attention + mlp + dispatch


def _activations(a: Architecture, w: Workload, layout: Layout) -> float | None:
    if a.kind == "count":
        return None
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    size = w.activation_bytes
    layers = -(-a.layers // layout.pp)
    whole = block_elements(a, w.compiled) * size * tokens / layout.tp
    if not w.flash:
        whole += 2.5 * a.heads * tokens * tokens_of(a, w) * size / layout.tp
    inside = float(
        min(layout.pp, micro_batches(w, layout))
    )  # 1F1B: the first stage holds as many micro-batches as there are stages
    if layout.interleaved > 1:
        inside *= 1 + (layout.pp - 1) / (layout.pp * layout.interleaved)
    entrance = a.width * size * tokens / layout.tp
    gathered = 3 * a.width * size * tokens * (1 - 1 / layout.tp)
    if w.checkpointing == "full":
        return layers * entrance * inside + whole + gathered
    if w.checkpointing == "selective":
        inner = a.heads * a.head_width
        mlp = a.width + max(1, a.experts_per_token) * a.ffn
        kept = (a.width + 2 * inner + a.kv_heads * a.head_width + mlp) * size * tokens / layout.tp
        return layers * kept * inside + (whole - kept) + gathered
    return layers * whole * inside + gathered


def _logits(a: Architecture, w: Workload, layout: Layout) -> float | None:
    if a.kind == "count":
        return None
    if a.classes:
        return w.micro_batch * a.classes * (w.activation_bytes + LOSS_BYTES) * 1.0
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    # In 16 bit the logit itself is gone, or overwritten, when the loss runs backward in fp32.
    return tokens * a.vocabulary * LOSS_BYTES / layout.tp


def _fragmentation(w: Workload) -> float:
    return FRAGMENTATION_COMPILED if w.compiled else FRAGMENTATION


def _constants(layout: Layout) -> dict[str, float]:
    groups = sum(size > 1 for size in (layout.dp, layout.fsdp, layout.tp, layout.pp, layout.cp, layout.ep))
    return {"context": CONTEXT_BYTES, "communication buffers": groups * COMMUNICATOR_BYTES}


def _backward(
    a: Architecture,
    w: Workload,
    layout: Layout,
    states: dict[str, float],
    activations: float | None,
    logits: float | None,
) -> MemoryParts:
    block = (a.block - a.experts * a.mlp_matrix * (1 - 1 / layout.ep)) / layout.tp if a.layers else 0.0
    gathers = 0.0
    casts = 0.0
    if layout.fsdp * layout.cp > 1:
        # Two blocks are gathered in 16 bit, the gradients of one are whole in the type that is reduced; embedding and head stay.
        size = min(2.0, w.parameter_bytes) if w.activation_bytes == 2 else 4.0
        ends = (a.embedding + a.head) / layout.tp / layout.pp
        gathers = 2 * block * size + block * 4 + ends * size
    elif w.casts and not layout.zero:
        layers = -(-a.layers // layout.pp)
        casts = 2 * (layers * a.block + a.head) / layout.tp if a.layers else 2.0 * a.counted
    # DDP reduces copies of the gradients, which it keeps.
    buckets = states["gradients"] if layout.dp > 1 and not layout.zero and layout.fsdp == 1 else 0.0
    batch = w.micro_batch * tokens_of(a, w) * 16 / layout.cp if a.kind != "vision" else w.micro_batch * 602_112
    moving = (activations or 0) + (logits or 0) + gathers
    # The loss's peak is before any gradient exists, unless gradients are accumulated.
    accumulates = micro_batches(w, layout) > 1 or layout.pp > 1
    gradients = states["gradients"] if accumulates or activations is None else 0.0
    return MemoryParts(
        parameters=states["parameters"],
        gradients=gradients,
        optimizer=states["optimizer"],
        activations=activations,
        logits=logits,
        buffers=0.0,
        others={
            "input": batch,
            "casts": casts,
            "gathers": gathers,
            "buckets": buckets,
            "fragmentation": moving * _fragmentation(w),
            **_constants(layout),
        },
        moment="backward",
    )


def micro_batches(w: Workload, layout: Layout) -> int:
    """Return how many micro-batches a step has."""
    whole = w.batch or layout.replicas * w.micro_batch * (2 * layout.pp if layout.pp > 1 else 1)
    return max(1, whole // (layout.replicas * w.micro_batch))


def _inference(a: Architecture, w: Workload, layout: Layout, states: dict[str, float]) -> MemoryParts:
    if a.kind == "count":
        return MemoryParts(
            **states, activations=None, logits=None, buffers=0.0, others=_constants(layout), moment="inference"
        )
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    cache = 0.0
    if a.kind == "decoder":
        cache = (
            2
            * (-(-a.layers // layout.pp))
            * max(1, a.kv_heads / layout.tp)
            * a.head_width
            * tokens
            * w.activation_bytes
        )
    # The widest moment of one block; the logits of the last token of each sequence.
    inside = (2 * a.width + max(a.ffn * (2 if a.gated else 1), 4 * a.width)) * tokens * w.activation_bytes / layout.tp
    logits = w.micro_batch * (a.vocabulary or a.classes) * w.activation_bytes / layout.tp
    return MemoryParts(
        **states,
        activations=inside,
        logits=logits,
        buffers=0.0,
        others={"cache of keys and values": cache, "fragmentation": inside * _fragmentation(w), **_constants(layout)},
        moment="inference",
    )
