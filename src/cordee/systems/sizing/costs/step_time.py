"""How long a step takes: a roofline of matrices, attention and memory, collectives by NCCL's cost model, bubbles of pipelines.

Collectives are priced as NCCL prices its own algorithms (`src/graph/tuning.cc`): a latency of start and hops, and the share of
the link that an algorithm and protocol move; the cheapest counts. Shares of peaks that kernels reach are set by the tuning half
of the published configurations, and are said with the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.devices import ATTENTION, MATRIX, MATRIX_FP8, MEMORY, MOVED, PlannedGpu
from cordee.systems.sizing.memory import block_elements, offloaded_activations, weight_bytes
from cordee.systems.sizing.parallelism import ALONE, Layout, PipelineStage, bubble_seconds, micro_batches, tokens_of
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

# How often a number that a block keeps is read or written in forward and backward: kernel by kernel, and fused.
TRAFFIC, TRAFFIC_COMPILED = 13.0, 8.0
# What of collectives stands where nothing hides it: those of FSDP and of gradients run beside matrices, those of TP seldom.
EXPOSED = {"fsdp": 0.15, "gradients": 0.2, "tp": 0.6, "cp": 0.3, "ep": 0.8, "pp": 0.5}
_HOST_LINK = 25e9  # bytes/s of pinned memory over PCIe 4, each way
# After NCCL's own figures, which were not compared with its source or measured; in microseconds: the start of (tree, ring) for LL, LL128, Simple; one hop on NVLink, PCIe, network.
_START = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
_HOP = {
    "link": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}


@dataclass(frozen=True)
class StepTime:
    """What a step takes, in seconds, by what; `bubble` is the share of a pipeline that stands.

    Attributes:
        matrices, attention, memory: on each GPU, `communication` what of it nothing hides.
        tokens: of all GPUs in one step; `flops`: that the model needs, without recomputation.
    """

    matrices: float
    attention: float
    memory: float
    communication: float
    bubble: float
    optimizer: float
    tokens: float
    flops: float
    gpus: int

    @property
    def seconds(self) -> float:
        """The whole step."""
        busy = self.matrices + self.attention + self.memory + self.communication
        return busy / (1 - self.bubble) + self.optimizer

    def mfu(self, device: PlannedGpu) -> float:
        """Return the share of the 16-bit peak that the model's own FLOPs make."""
        return self.flops / (self.seconds * self.gpus * (device.flops or float("inf")))

    @property
    def tokens_per_second(self) -> float:
        """Of all GPUs together."""
        return self.tokens / self.seconds


def collective_seconds(kind: str, size_bytes: float, ranks: int, device: PlannedGpu, stride: int = 1) -> float:
    """Return what one collective takes.

    Args:
        kind: `all-reduce`, `all-gather`, `reduce-scatter` (both by their whole size), `all-to-all`, or `send`.
        size_bytes: of the whole tensor; of one message for `send`.
        ranks: of the group; `stride`: how far apart they are, which says how many of them share a node.
    """
    if ranks < 2 or size_bytes <= 0:
        return 0.0
    inside = max(1, min(ranks, device.per_node // max(1, stride)))
    nodes = -(-ranks // inside)
    # All GPUs of a node send on their own ports: a ring through nodes goes as fast as all their ports that it has.
    crossing = device.network * (inside if kind != "send" else 1)
    link = device.link or device.network
    bandwidth = link if nodes == 1 else min(link, crossing)
    if kind == "send":
        return _START["ring"][2] * 1e-6 + size_bytes / bandwidth / MOVED[2]
    if kind == "all-to-all":
        far = size_bytes * (nodes - 1) / nodes / device.network if nodes > 1 else 0.0
        return _START["ring"][2] * 1e-6 + max(size_bytes * (ranks - 1) / ranks / link, far) / MOVED[2]
    return min(
        _priced(kind, algorithm, protocol, size_bytes, ranks, nodes, bandwidth)
        for algorithm in _START
        for protocol in range(3)
    )


def _priced(kind: str, algorithm: str, protocol: int, size: float, ranks: int, nodes: int, bandwidth: float) -> float:
    if algorithm == "tree" and kind != "all-reduce":
        return float("inf")
    hops = _HOP["network" if nodes > 1 else "link"][algorithm][protocol]
    inner = _HOP["link"][algorithm][protocol]
    if algorithm == "ring":
        steps = (2 if kind == "all-reduce" else 1) * (ranks - 1)
        crossing = (2 if kind == "all-reduce" else 1) * nodes if nodes > 1 else 0
        latency = (steps - crossing) * inner + crossing * hops
        moved = size * steps / ranks
    else:
        depth = max(1, (nodes - 1).bit_length())
        latency = 2 * ((ranks // nodes - 1) * inner + depth * hops * (nodes > 1))
        moved = 2 * size / 0.92  # NCCL prices trees at 92 % of rings' bandwidth
    return (_START[algorithm][protocol] + max(0.0, latency)) * 1e-6 + moved / (bandwidth * MOVED[protocol])


def step_time(a: Architecture, w: Workload, layout: Layout, device: PlannedGpu) -> StepTime | None:
    """Return what a step takes; None where the GPU's peaks or the model's sizes are not known."""
    if not device.flops or not device.bandwidth or a.kind == "count":
        return None
    count = micro_batches(w, layout)
    tokens = count * w.micro_batch * tokens_of(a, w)  # of one replica in a step
    shards = layout.tp * layout.pp * layout.cp
    precise = {"fp32": 0.5 * 0.13, "tf32": 0.5}.get(w.precision, 1.0)
    peak = device.flops * precise * device.sustained
    passes = (3.0 if w.task == "train" else 2.0) if w.trains else 1.0
    again = {"none": 0.0, "selective": 0.33, "full": 1.0}[w.checkpointing] if w.trains else 0.0
    matrix_flops = 2.0 * a.multiplied * tokens
    fp8 = w.precision == "fp8" and device.fp8
    reached = peak * (2 * MATRIX_FP8 if fp8 else MATRIX) * _narrow(a, w, layout)
    matrices = matrix_flops * (passes + again) / shards / reached
    pairs = tokens * tokens_of(a, w) * (0.5 if a.kind == "decoder" else 1.0)
    attention_flops = 4.0 * a.layers * a.heads * a.head_width * pairs
    attention_passes = (3.5 if w.trains else 1.0) + (1.0 if w.checkpointing == "full" and w.trains else 0.0)
    attention = attention_flops * attention_passes / shards / (peak * ATTENTION)
    memory = _moved(a, w, layout, tokens, again) / (device.bandwidth * MEMORY)
    communication = _communication(a, w, layout, device, count, tokens)
    if w.offload_activations:  # there and back again, beside matrices
        moved = 2 * count * offloaded_activations(a, w, layout) / _HOST_LINK
        communication += max(0.0, moved - matrices - attention - memory)
    busy = matrices + attention + memory + communication
    weights = matrices / (passes + again) if w.task == "train" else 0.0
    stands = bubble_seconds(layout, count, busy, weights)
    divided = layout.fsdp * layout.cp if layout.fsdp > 1 else layout.dp if layout.zero else 1
    held = a.parameters / layout.tp / layout.pp / divided
    optimizer = held * 30.0 / (device.bandwidth * MEMORY) if w.task == "train" else 0.0
    own = matrix_flops + attention_flops * (2 if a.kind == "decoder" else 1)
    own *= (3 if w.trains else 1) * layout.replicas
    samples = float(tokens * layout.replicas)
    bubble = stands / (stands + busy)
    return StepTime(matrices, attention, memory, communication, bubble, optimizer, samples, own, layout.gpus)


def _moved(a: Architecture, w: Workload, layout: Layout, tokens: int, again: float) -> float:
    """Return the bytes that a GPU's kernels read and write in a step beside matrices; `again`: what is computed twice, as a share."""
    shards = layout.tp * layout.pp * layout.cp
    elements = a.layers * block_elements(a, w.compiled) * tokens / shards * w.activation_bytes
    if not w.trains:
        return elements * 3.0 + weight_bytes(a, w, ALONE, PipelineStage(a.layers)) / layout.tp / layout.pp
    traffic = TRAFFIC_COMPILED if w.compiled else TRAFFIC
    return elements * traffic * (1 + again / 3) + tokens * (a.vocabulary or a.classes) * 30.0 / shards


def traced_time(traced: TracedModel, w: Workload, layout: Layout, device: PlannedGpu) -> StepTime | None:
    """Return what a traced step takes; its `tokens` are samples. None: the GPU's peaks, or what the step did, are not known."""
    if not device.flops or not device.bandwidth or not traced.moved_bytes:
        return None
    scale = w.micro_batch / traced.batch if traced.batch and w.micro_batch != 1 else 1.0
    peak, full = device.flops * device.sustained, 0.5 if traced.tf32 or w.precision == "tf32" else 0.5 * 0.13
    fp8 = w.precision == "fp8" and device.fp8
    reached = peak * (2 * MATRIX_FP8 if fp8 else MATRIX)
    matrices = scale * (traced.half_flops / reached + traced.full_flops / (peak * full * MATRIX))
    attention = scale * traced.attention_flops / (peak * ATTENTION)
    fused = TRAFFIC_COMPILED / TRAFFIC if w.compiled else 1.0
    memory = scale * traced.moved_bytes * fused / (device.bandwidth * MEMORY)
    block = traced.parameters / max(1, traced.blocks)
    communication = 0.0
    if layout.fsdp > 1:
        each = 2 * collective_seconds("all-gather", block / 2, layout.fsdp, device)
        each += collective_seconds("reduce-scatter", block, layout.fsdp, device)
        communication += EXPOSED["fsdp"] * max(1, traced.blocks) * traced.calls * each
    if layout.dp > 1 and traced.trains:
        size = traced.gradients / layout.fsdp
        communication += EXPOSED["gradients"] * collective_seconds("all-reduce", size, layout.dp, device, layout.fsdp)
    kept = layout.fsdp if layout.fsdp > 1 else layout.dp if layout.zero else 1
    optimizer = 7.5 * traced.gradients / kept / (device.bandwidth * MEMORY)
    samples = float(scale * traced.batch * traced.calls * layout.replicas)
    flops = (traced.half_flops + traced.full_flops + traced.attention_flops) * scale * layout.replicas
    return StepTime(matrices, attention, memory, communication, 0.0, optimizer, samples, flops, layout.gpus)


def _narrow(a: Architecture, w: Workload, layout: Layout) -> float:
    """Return how matrices do that are small: of few tokens, or cut into narrow pieces by TP."""
    rows = w.micro_batch * tokens_of(a, w) / layout.cp
    columns = min(a.ffn or a.width, 4 * a.width) / layout.tp
    return rows / (rows + 128) * columns / (columns + 256)


def _communication(a: Architecture, w: Workload, layout: Layout, device: PlannedGpu, count: int, tokens: int) -> float:
    """Return what of the collectives of one step nothing hides, in seconds."""
    model = layout.tp * layout.cp
    held = a.parameters / layout.tp / layout.pp
    total = 0.0
    layers = -(-a.layers // layout.pp)
    per_micro = tokens / count * a.width * w.activation_bytes / layout.cp
    if layout.fsdp > 1 or layout.cp > 1:
        block = held / max(1, layers) * 2
        ranks = layout.fsdp * layout.cp
        gather = collective_seconds("all-gather", block, ranks, device, layout.tp)
        total += EXPOSED["fsdp"] * layers * gather * (2 if w.trains else 1) * count
        if w.trains:
            scatter = collective_seconds("reduce-scatter", 2 * block, ranks, device, layout.tp)
            total += EXPOSED["fsdp"] * layers * scatter * count
    if layout.dp > 1 and w.trains and w.task == "train":
        size = held * 4 / layout.fsdp
        total += EXPOSED["gradients"] * collective_seconds("all-reduce", size, layout.dp, device, model * layout.fsdp)
    if layout.tp > 1:
        each = collective_seconds("all-gather", per_micro, layout.tp, device)
        each += collective_seconds("reduce-scatter", per_micro, layout.tp, device)
        rounds = 2 * (2 if w.trains else 1) + (1 if w.checkpointing == "full" else 0)
        total += EXPOSED["tp"] * layers * rounds * each * count
    if layout.cp > 1:
        size = 2 * per_micro * a.kv_heads / a.heads * (3 if w.trains else 1)
        total += (
            EXPOSED["cp"]
            * layers
            * (layout.cp - 1)
            * collective_seconds("send", size, layout.cp, device, layout.tp)
            * count
        )
    if layout.ep > 1:
        size = per_micro / layout.tp * max(1, a.experts_per_token) * (4 if w.trains else 2)
        total += EXPOSED["ep"] * layers * collective_seconds("all-to-all", size, layout.ep, device, model) * count
    if layout.pp > 1:
        send = collective_seconds(
            "send", per_micro / layout.tp, layout.pp, device, device.per_node if layout.gpus > device.per_node else 1
        )
        total += EXPOSED["pp"] * 2 * layout.parts * send * count
    return total
