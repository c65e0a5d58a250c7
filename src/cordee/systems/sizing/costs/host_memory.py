"""What a plan takes beside its GPUs: memory of the host, what a checkpoint weighs, and the disk that checkpoints need."""

from __future__ import annotations

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.devices import PlannedGpu
from cordee.systems.sizing.layouts import Model, checkpoint_bytes, parts_of
from cordee.systems.sizing.memory import offloaded_activations
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

# A rank with PyTorch's libraries and those of CUDA; a worker of a loader; measured on nothing of ours with a GPU.
RANK_BYTES, WORKER_BYTES = 3 << 30, 500 << 20
WORKERS, PREFETCHED = 4, 2  # of one rank's loader; batches that each holds, which is PyTorch's default
KEPT_CHECKPOINTS = 3


def host_parts(model: Model, w: Workload, layout: Layout, device: PlannedGpu | None) -> dict[str, float]:
    """Return what the fullest node holds in its own memory, in bytes, by what it is.

    The loader is taken to have four workers; the snapshot is what an asynchronous checkpoint copies before it writes.
    """
    ranks = min(layout.gpus, device.per_node if device else 8)
    gpu = model.gpu if isinstance(model, TracedModel) else w.on_gpu
    parts = parts_of(model, w, layout)
    batch = parts.others.get("input", 0.0)
    found = {"ranks": ranks * (float(RANK_BYTES) if gpu else parts.peak)}
    if not w.trains:
        return found
    found["loader"] = ranks * WORKERS * (WORKER_BYTES + PREFETCHED * batch)
    saved = checkpoint_bytes(model, w)
    alone = layout.fsdp == 1 and layout.tp == 1 and layout.pp == 1
    found["checkpoint snapshot"] = float(saved if alone else saved * ranks / layout.gpus * layout.dp)
    if w.offload and w.task == "train":
        count = model.parameters if isinstance(model, Architecture) else model.gradients / 4
        divided = layout.fsdp * layout.cp if layout.fsdp > 1 or layout.cp > 1 else layout.dp if layout.zero else 1
        states = OPTIMIZERS[w.optimizer].states * w.state_scale
        found["offloaded optimizer states"] = ranks * count * states / (layout.tp * layout.pp * divided)
    if w.offload_activations and isinstance(model, Architecture):
        found["offloaded activations"] = ranks * offloaded_activations(model, w, layout)
    return found


def disk_bytes(model: Model, w: Workload, kept: int = KEPT_CHECKPOINTS) -> int:
    """Return the disk that checkpoints need: those that are kept, and the one that is being written."""
    return checkpoint_bytes(model, w) * (kept + 1)
