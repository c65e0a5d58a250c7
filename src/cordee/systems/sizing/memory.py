"""What one GPU holds: the parts of its peak by formulas, for an architecture, a workload and a layout.

Activations are counted as Korthikanti et al. (2022) do, for kernels that keep no matrix of sequence times sequence, with the
tensors that PyTorch saves for backward; states as ZeRO (Rajbhandari et al., 2020) divides them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.parallelism import ALONE, Layout, PipelineStage, micro_batches, pipeline_stages, tokens_of
from cordee.systems.sizing.quantization import OPTIONS, StoredWeights
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

# Memory that the allocator holds beyond what is allocated, over all that comes and goes; compiled code asks for fewer sizes.
# Set by the tuning half of the published configurations (benchmarks/results/2026-11-23-plan.md).
FRAGMENTATION, FRAGMENTATION_COMPILED = 0.14, 0.07
# What the allocator holds of the loss of transformers: one fp32 matrix of logits more, a third of what the loss takes. Of 23 models on
# an H200 the allocator held 0.6 to 2.7 of them beyond tensors, and of three models more (benchmarks/results/2026-11-28-plan-on-h200.md).
FRAGMENTATION_LOSS = 1 / 3
# CUDA context with the modules of PyTorch's kernels and of cuBLAS, beside the allocator: on an H200 552 MB at the first
# tensor, 718 MB with cuBLAS, 804 MB in a training (benchmarks/results/2026-11-26-plan-on-h200.md).
CONTEXT_BYTES = 800 << 20
# Workspaces of cuBLAS and cuBLASLt, which PyTorch's allocator holds: 32 MiB each on Hopper (tensors of 45 plans on an H200 exceeded
# what was counted by 0.07 GB, benchmarks/results/2026-11-28-plan-on-h200.md).
WORKSPACE_BYTES = 64 << 20
# A rank without a GPU that has imported PyTorch and reduced by Gloo: 369 MB in examples/char-gpt (benchmarks/results/2026-11-24-plan.md).
RANK_BYTES = 370e6
# Buffers of one communicator of NCCL: channels times 4 MiB of each direction.
COMMUNICATOR_BYTES = 160 << 20
# Bytes of a logit at the loss's peak beside the logit itself: in fp32 the soft maximum, its gradient and what autograd returns.
LOSS_BYTES = 12
# Where ranks divide the vocabulary, PyTorch's `loss_parallel` adds the soft maximum to its gradient out of place.
LOSS_BYTES_DIVIDED = 16
# Parts of a batch whose logits exist at once where a loss is computed in chunks, as torchtune does by default.
LOSS_CHUNKS = 8
WORKSPACES = 1.22
# Parts of `other` that are not the allocator's.
NOT_RESERVED = ("context", "communication buffers", "Python and its libraries")
PARTS = ("parameters", "gradients", "optimizer", "activations", "logits", "buffers", "other")
INTERVAL = {"traced": (0.95, 1.06), "formula": (0.85, 1.20), "mixed": (0.90, 1.15)}


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
    activations: float | None = 0.0
    logits: float | None = 0.0
    buffers: float = 0.0
    others: dict[str, float] = field(default_factory=dict)
    moment: str = "backward"

    @property
    def other(self) -> float:
        """All else together."""
        return sum(self.others.values())

    @property
    def peak(self) -> float:
        """The whole."""
        return float(sum(getattr(self, name) or 0.0 for name in PARTS))

    @property
    def reserved(self) -> float:
        """What PyTorch's allocator holds of it at most, `torch.cuda.max_memory_reserved`: without the context and NCCL's buffers."""
        return self.peak - sum(self.others.get(name, 0.0) for name in NOT_RESERVED)

    def document(self) -> dict[str, Any]:
        """Return the parts in whole bytes."""
        found = {name: getattr(self, name) for name in PARTS}
        return {name: None if value is None else round(value) for name, value in found.items()}

    def others_document(self) -> dict[str, int]:
        """Return what `other` consists of."""
        return {name: round(value) for name, value in self.others.items() if value}


def interval_of(peak: float, method: str, *, workspaces: bool = False) -> tuple[int, int]:
    """Return the lowest and the highest that a peak may be, in bytes; what kernels of convolutions and recurrences allocate by
    themselves was up to a sixth of the peak where it was measured."""
    low, high = INTERVAL[method]
    return round(peak * low), round(peak * (max(high, WORKSPACES) if workspaces else high))


def held_parameters(a: Architecture, layout: Layout, stage: PipelineStage, ranks: int = 1) -> float:
    """Return the parameters of one pipeline stage after TP and EP, divided among data-parallel ranks: EP's are some of these."""
    if a.kind == "count":
        return a.counted / ranks
    experts = stage.layers * a.experts_matrix / layout.tp / max(layout.ep, ranks)
    rest = stage.layers * (a.block - a.experts_matrix) / layout.tp
    edge = a.embedding + a.extra + a.positions * a.width if stage.first else 0
    # A head that is the embedding is a copy where it is on another stage.
    head = a.head or (0 if stage.first else a.embedding) if stage.last else 0
    return experts + (rest + (edge + head) / layout.tp) / ranks


def weight_bytes(a: Architecture, w: Workload, layout: Layout, stage: PipelineStage, ranks: int = 1) -> float:
    """Return what the parameters that a rank holds of one pipeline stage weigh, where they are held quantized or are not trained."""
    held, each = held_parameters(a, layout, stage, ranks), w.parameter_bytes
    stored = stored_weights(a, w)
    if stored is None:
        return held * each
    if a.kind == "count":
        return held * stored.mlp.bytes_of(each)
    experts = stage.layers * a.experts_matrix / max(layout.ep, ranks)
    attention, mlps = (stage.layers * size / ranks for size in (a.attention_matrix, a.plain_mlps))
    parts = [(attention, stored.attention), (mlps, stored.mlp), (experts, stored.experts)]
    parts += [(a.head / ranks, stored.head)] if stage.last else []
    less = sum(count * (one.bytes_of(each) - each) for count, one in parts) / layout.tp
    matrices = stage.layers * (4 + (3 if a.gated else 2) * (a.experts / layout.ep if a.experts else 1)) / layout.tp
    return held * each + less + matrices * stored.each_matrix / ranks


def expert_bytes(a: Architecture, w: Workload) -> float:
    """Return the bytes of one weight of an expert."""
    stored = stored_weights(a, w)
    return w.parameter_bytes if stored is None else stored.experts.bytes_of(w.parameter_bytes)


def stored_weights(a: Architecture, w: Workload) -> StoredWeights | None:
    """Return how weights are stored: as their file says, else as the workload does; None: as they are computed."""
    return (a.stored if w.task != "train" else None) or OPTIONS.get(w.quantized)


def formula_parts(a: Architecture, workload: Workload, layout: Layout = ALONE) -> MemoryParts:
    """Return the parts of the peak of the fullest GPU of a layout."""
    stages = pipeline_stages(a, workload, layout)
    # Those between the second and the last keep no more micro-batches, nor layers, than the second.
    ends = {stages[0], stages[min(1, len(stages) - 1)], stages[-1]}
    return max((_stage_parts(a, workload, layout, stage) for stage in ends), key=lambda one: one.peak)


def _stage_parts(a: Architecture, w: Workload, layout: Layout, stage: PipelineStage) -> MemoryParts:
    lora = _lora(a, w) / layout.tp / layout.pp
    states = _states(a, w, layout, stage, lora)
    if not w.trains:
        return _inference(a, w, layout, stage, states)
    activations, logits = _activations(a, w, layout, stage), _logits(a, w, layout) if stage.last else 0.0
    parts = [_backward(a, w, layout, stage, states, activations, logits)]
    if not parts[0].gradients:  # the end of backward: all gradients, and what one block needs
        none = None if activations is None else 0.0
        parts.append(
            replace(parts[0], gradients=states["gradients"], activations=none, logits=none, moment="end of backward")
        )
    copies = (
        OPTIMIZERS[w.optimizer].step if w.on_gpu or w.optimizer != "adamw" else 0
    )  # foreach is the default on GPUs only
    divided = _divided(layout)
    step = copies * w.state_scale * (lora / divided or held_parameters(a, layout, stage, divided))
    others = {"optimizer step": 0.0 if w.offload else step, **constants(layout, on_gpu=w.on_gpu)}
    unknown = None if activations is None else 0.0
    # The first step makes the states inside what the loss has left; the loss of the next finds no room and takes segments of its own
    # size, which are held, empty, while the optimizer steps: of 23 models on an H200 one to three fp32 matrices of logits, mostly three.
    kept = (logits or 0.0) * (not w.offload and w.on_gpu and OPTIMIZERS[w.optimizer].states > 0)
    others["fragmentation"] = max(kept, (step + states["gradients"]) * _fragmentation(w) / 2)
    parts.append(MemoryParts(**states, activations=unknown, logits=unknown, others=others, moment="optimizer step"))
    return max(parts, key=lambda one: one.peak)


def _divided(layout: Layout) -> int:
    """Return among how many ranks optimizer states are divided: those of context parallelism hold the same parameters, and count."""
    if layout.fsdp > 1:
        return layout.fsdp * layout.cp
    return layout.dp * layout.cp if layout.zero else layout.cp


def _sharded(layout: Layout) -> int:
    """Return among how many ranks parameters are divided: by FSDP2, over ranks of context parallelism too."""
    return layout.fsdp * (1 if layout.zero and layout.fsdp == 1 else layout.cp)


def _autocast(w: Workload, layout: Layout) -> bool:
    """Return whether matrices are cast to 16 bit where they are used: FSDP and Megatron hold them so."""
    return w.casts and not layout.zero and _sharded(layout) == 1


def _lora(a: Architecture, w: Workload) -> float:
    if w.task not in ("lora", "qlora"):
        return 0.0
    inner, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    return a.layers * w.rank * (2 * a.width + inner + kv)


def _states(a: Architecture, w: Workload, layout: Layout, stage: PipelineStage, lora: float) -> dict[str, float]:
    sharded = _sharded(layout)
    optimizer = OPTIMIZERS[w.optimizer]
    if w.task in ("lora", "qlora"):
        return {
            "parameters": weight_bytes(a, w, layout, stage, sharded) + lora * 4 / sharded,
            "gradients": lora * 4 / sharded,
            "optimizer": lora * optimizer.states / _divided(layout),
        }
    if not w.trains:
        return {"parameters": weight_bytes(a, w, layout, stage, sharded), "gradients": 0.0, "optimizer": 0.0}
    each, gradient = w.parameter_bytes, w.parameter_bytes
    per_state = optimizer.states * w.state_scale
    if layout.zero and w.casts:
        # Megatron's distributed optimizer: parameters in 16 bit on each rank, fp32 ones beside the states.
        each, per_state = 2.0, per_state + 4
    if w.step_in_backward:  # a gradient is gone when its parameter has stepped: those of the largest block count
        gradient *= max(a.block * a.layers, a.embedding) / max(1, a.layers) / max(1, a.parameters)
    gradient_parts = sharded * (layout.dp * layout.cp if layout.zero == 2 else 1)
    parameters, gradients, states = (
        held_parameters(a, layout, stage, ranks) for ranks in (sharded, gradient_parts, _divided(layout))
    )
    return {
        "parameters": parameters * each,
        "gradients": gradients * gradient,
        "optimizer": 0.0 if w.offload else states * per_state,
    }


def block_elements(a: Architecture, compiled: bool = False) -> float:
    """Return how many numbers of one token a block keeps for backward without checkpointing, for kernels without a matrix of
    sequence times sequence: inputs of norms and matrices, queries, keys, values, the attention's output, the MLP's inside."""
    inner = a.heads * a.head_width
    # Keys and values are repeated to as many heads as there are queries before the kernel.
    attention = 2 * a.width + 4 * inner
    mlp = 2 * a.width + a.token_ffn * ((2 if compiled else 4) if a.gated else 2)
    dispatch = 2 * a.width * a.experts_per_token * a.sparse
    return attention + mlp + dispatch


def _eager_bytes(a: Architecture, w: Workload, autocast: bool) -> float:
    """Return the bytes of one token that a block of transformers keeps for backward.

    Under autocast the residual stream is fp32, as embeddings are, each matrix reads a copy of its own in 16 bit, and experts, of
    which autocast knows nothing (`grouped_mm`), compute in the parameters' precision.
    """
    assert a.eager is not None
    e, size = a.eager, w.activation_bytes
    steps, step_bytes = e.composed
    norms = e.norms * (8 if autocast or size == 4 else 6) + e.fused_norms * (4 if autocast else size)
    inputs = e.copies * 2 if autocast else e.outputs * size
    attention = e.attention * size + (e.scores.kept * a.heads * tokens_of(a, w) if w.flash else 0)
    mlp = a.plain_ffn * ((4 if a.gated else 2) * size + steps * (step_bytes if autocast else size))
    experts = a.sparse * a.experts_per_token * (2 * a.width + e.expert * a.ffn)
    return norms + inputs + attention + mlp + experts * w.parameter_bytes


def _activations(a: Architecture, w: Workload, layout: Layout, stage: PipelineStage) -> float | None:
    if a.kind == "count":
        return None
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    size = w.activation_bytes
    layers, inside = stage.layers, stage.inside
    autocast = _autocast(w, layout)
    if a.eager and not w.compiled:
        whole = _eager_bytes(a, w, autocast) * tokens / layout.tp
    else:
        whole = block_elements(a, w.compiled) * size * tokens / layout.tp
    if w.task == "qlora":  # layers with packed weights keep their inputs, which frozen ones in 16 bit do not
        whole += (3 * a.width + a.token_ffn) * size * tokens / layout.tp
    if not w.flash:
        whole += 2.5 * a.heads * tokens * tokens_of(a, w) * size / layout.tp
    if w.offload_activations:  # what two blocks keep is on the GPU while it is moved
        layers, inside = min(layers, 2), 1.0
    entrance = a.width * (4 if a.eager and autocast else size) * tokens / layout.tp
    # PyTorch keeps what it gathers along the sequence for the matrices behind both norms; Megatron (`zero`) gathers it again.
    sequence = a.width * size * tokens * (layout.tp > 1)
    kept_whole = 0.0 if layout.zero else 2 * sequence
    whole, gathered = whole + kept_whole, 3 * sequence
    if w.checkpointing == "full":
        return layers * entrance * inside + whole + gathered
    if w.checkpointing == "selective":
        inner = a.heads * a.head_width
        mlp = a.width + a.token_ffn
        kept = (a.width + 2 * inner + a.kv_heads * a.head_width + mlp) * size * tokens / layout.tp + kept_whole
        return layers * kept * inside + (whole - kept) + gathered
    return layers * whole * inside + gathered


def offloaded_activations(a: Architecture, w: Workload, layout: Layout) -> float:
    """Return how much of one rank's activations lies in the host's memory where they are offloaded."""
    stage = pipeline_stages(a, w, layout)[0]
    on_gpu, whole = (_activations(a, replace(w, offload_activations=moved), layout, stage) for moved in (True, False))
    return max(0.0, (whole or 0.0) - (on_gpu or 0.0))


def _logits(a: Architecture, w: Workload, layout: Layout) -> float | None:
    if a.kind == "count":
        return None
    if a.classes:
        return w.micro_batch * a.classes * (w.activation_bytes + LOSS_BYTES) * 1.0
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    # In 16 bit the logit itself is gone, or overwritten, when the loss runs backward in fp32.
    tokens /= LOSS_CHUNKS if w.chunked_loss else 1
    each = LOSS_BYTES_DIVIDED if layout.tp > 1 and not layout.zero else LOSS_BYTES
    capped = w.activation_bytes if a.eager and a.eager.capped else 0
    return tokens * a.vocabulary * (each + capped) / layout.tp


def _fragmentation(w: Workload) -> float:
    if not w.on_gpu:
        return 0.0
    return FRAGMENTATION_COMPILED if w.compiled else FRAGMENTATION


def constants(layout: Layout, *, on_gpu: bool) -> dict[str, float]:
    """Return what a rank takes that is no part of the model."""
    if not on_gpu:
        return {"Python and its libraries": RANK_BYTES}
    groups = sum(size > 1 for size in (layout.dp, layout.fsdp, layout.tp, layout.pp, layout.cp, layout.ep))
    return {
        "context": CONTEXT_BYTES,
        "workspaces": WORKSPACE_BYTES,
        "communication buffers": groups * COMMUNICATOR_BYTES,
    }


def _backward(
    a: Architecture,
    w: Workload,
    layout: Layout,
    stage: PipelineStage,
    states: dict[str, float],
    activations: float | None,
    logits: float | None,
) -> MemoryParts:
    block = (a.block - a.experts_matrix * (1 - 1 / layout.ep)) / layout.tp if a.layers else 0.0
    gathers = casts = unreduced = 0.0
    if _sharded(layout) > 1:
        # Two blocks are gathered in 16 bit, the gradients of one are whole in the type that is reduced; embedding and head stay.
        size = min(2.0, w.parameter_bytes) if w.activation_bytes == 2 else 4.0
        ends = (a.embedding * stage.first + a.head * stage.last) / layout.tp
        gathers = 2 * block * size + block * 4 + ends * size
        if layout.pp > 1 and micro_batches(w, layout) > 1:
            # Pipelines gather once a step, and reduce once: whole parameters stay, and whole gradients in fp32.
            whole = held_parameters(a, layout, stage)
            gathers, unreduced = whole * size, whole * 4.0
    elif _autocast(w, layout):
        # Experts of transformers are not cast, a head that is the embedding is.
        uncast, head = (a.experts_matrix, a.head or a.embedding) if a.eager else (0.0, a.head)
        casts = 2 * (stage.layers * (a.block - uncast) + head * stage.last) / layout.tp if a.layers else 2.0 * a.counted
    # DDP reduces copies of the gradients, which it keeps.
    buckets = states["gradients"] if layout.dp > 1 and not layout.zero and layout.fsdp == 1 else 0.0
    batch = w.micro_batch * tokens_of(a, w) * 16 / layout.cp if a.kind != "vision" else w.micro_batch * 602_112
    moving = (activations or 0) + (logits or 0) + gathers
    # The loss's peak is before any gradient exists, unless gradients are accumulated.
    accumulates = micro_batches(w, layout) > 1 or layout.pp > 1
    gradients = states["gradients"] if accumulates or activations is None else 0.0
    others = {"input": batch, "casts": casts, "gathers": gathers, "buckets": buckets}
    kept = moving * _fragmentation(w)
    if a.eager and w.on_gpu and not w.compiled:
        kept += (logits or 0) * (FRAGMENTATION_LOSS - FRAGMENTATION)
    others |= {"fragmentation": kept, **constants(layout, on_gpu=w.on_gpu)}
    held = {**states, "gradients": max(gradients, unreduced)}
    return MemoryParts(**held, activations=activations, logits=logits, others=others, moment="backward")


def _eager_widest(a: Architecture, w: Workload) -> float:
    """Return the bytes of one token at the widest moment of a block of transformers without backward."""
    assert a.eager is not None
    e, size = a.eager, w.activation_bytes
    mlp = a.plain_ffn * ((4 if e.fused_gates else 3) if a.gated else 2 + max(0, e.composed[0]))
    # What was chosen for experts, gate, up, activation and product; then results before and behind their weights and their order.
    experts = a.experts_per_token * max(a.width + e.expert * a.ffn, 4 * a.width) if a.experts else 0
    attention = e.attention * size + e.scores.held * a.heads * tokens_of(a, w)
    # The embedding, the block's input, the residual stream and a norm's output have names as long as the block runs.
    return 4 * a.width * size + max(mlp * size, experts * size, attention)


def _inference(
    a: Architecture, w: Workload, layout: Layout, stage: PipelineStage, states: dict[str, float]
) -> MemoryParts:
    fixed = constants(layout, on_gpu=w.on_gpu)
    if a.kind == "count":
        return MemoryParts(**states, activations=None, logits=None, others=fixed, moment="inference")
    tokens = w.micro_batch * tokens_of(a, w) / layout.cp
    cache = 0.0
    if a.kind == "decoder":
        # Latent keys and values are of no head, and whole on each rank.
        parts = 1 if a.kv_rank else min(layout.tp, a.kv_heads)
        kept = a.cached_tokens(tokens / w.micro_batch) * w.micro_batch * a.cache_width / parts
        # Where encoder and decoder are two, only the decoder's blocks cache, what the encoder returned.
        caching = stage.layers * (a.attentions - 1 if a.attentions > 1 else 1)
        cache = caching * (kept + w.micro_batch * a.state / layout.tp) * w.activation_bytes
    # The widest moment of one block; the logits of the last token of each sequence.
    widest = (2 * a.width + max(a.ffn * (2 if a.gated else 1), 4 * a.width)) * w.activation_bytes
    inside = (_eager_widest(a, w) if a.eager and not w.compiled else widest) * tokens / layout.tp
    logits = w.micro_batch * (a.vocabulary or a.classes) * w.activation_bytes / layout.tp
    # A cache of transformers is a new tensor with each token.
    grows = cache if a.eager else 0.0
    others = {"cache of keys and values": cache, "fragmentation": (inside + grows) * _fragmentation(w), **fixed}
    return MemoryParts(**states, activations=inside, logits=logits, others=others, moment="inference")
