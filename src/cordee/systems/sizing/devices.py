"""The GPUs that a plan is made for: what the cluster's profile says, else the platform's table of GPUs by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cordee.core.documents.gpu_models import gpu_facts, gpu_table, model_words
from cordee.core.errors import UsageError
from cordee.core.ports.speeds import NodeSpeeds
from cordee.core.units import format_size, parse_size
from cordee.core.words import did_you_mean
from cordee.job.profile import ClusterProfile, GpuModel, PartitionTable

_INSTANCE = re.compile(r"mig|\dg")  # `1g.10gb`, `MIG 3g.40gb`
# What one GPU gets of the network between nodes where no profile and no vetting says it: one port of 400 Gb/s, as NVIDIA's
# reference designs for Hopper and Blackwell have, 800 Gb/s since Blackwell Ultra, 200 Gb/s before.
_NETWORK = {9.0: 50e9, 10.0: 50e9, 10.3: 100e9}
_NETWORK_BEFORE = 25e9
# Shares of the 16-bit peak: of large matrices, of those in fp8 (of twice the peak), of flash attention; of the memory's bandwidth.
MATRIX, MATRIX_FP8, ATTENTION, MEMORY = 0.68, 0.52, 0.42, 0.80
# The share of the link's bandwidth that LL, LL128 and Simple move.
MOVED = (0.45, 0.92, 0.85)
# Below this share of its peak a product of matrices was one of another type.
_LEAST_SHARE = 0.25


@dataclass(frozen=True)
class PlannedGpu:
    """One kind of GPU, and how many there are.

    Attributes:
        memory: of one, in bytes, that a process can have; of an instance (MIG) its own.
        flops: dense, with 16 bit, FLOP/s; `bandwidth`, `link`, `network`: bytes/s of memory, between GPUs of a node, between nodes.
        per_node: GPUs of one node; `most`: GPUs of all nodes; None: not known.
        power: its limit, in W; `full_power`: that at which the model reaches its peaks.
        reached: the share of what matrices are taken to reach that nodes were measured to; None: not measured. `nodes`: how many.
        origin: where that comes from; `sizes`: the memory that GPUs of this name have, the one that is taken first; empty: it is known.
    """

    model: str
    memory: float
    flops: float | None = None
    bandwidth: float | None = None
    link: float | None = None
    network: float = _NETWORK_BEFORE
    capability: float | None = None
    power: float | None = None
    full_power: float | None = None
    per_node: int = 8
    most: int | None = None
    origin: str = ""
    sizes: tuple[int, ...] = ()
    reached: float | None = None
    nodes: int = 0

    @property
    def sustained(self) -> float:
        """The share of its peaks that was measured, else that its power allows for long, where the table says that it is limited."""
        if self.reached is not None:
            return self.reached
        return min(1.0, (self.power or 1.0) / (self.full_power or self.power or 1.0))

    @property
    def fp8(self) -> bool:
        """Whether its tensor cores know fp8, with twice the rate of 16 bit."""
        return (self.capability or 0) >= 8.9

    def words(self) -> str:
        """Return it in a few words."""
        return f"{self.model} ({format_size(self.memory)})"


def device_of(model: str, profile: ClusterProfile | None = None, memory: str | None = None) -> PlannedGpu:
    """Return what is known of a GPU by a name as sites, drivers or people write it: `h100`, `a100_80gb`, `NVIDIA L4`.

    Args:
        profile: of a cluster, whose `[gpu.MODEL]` goes before the table.
        memory: as given, such as `24GB`; goes before both. Needed for an instance of a GPU (MIG), and for a GPU nobody knows.

    Raises:
        UsageError: nothing is known of the GPU's memory; names what is.
    """
    known: Mapping[str, GpuModel] = profile.gpu_models if profile else {}
    given = next((facts for key, facts in known.items() if key.lower() == model.lower()), None)
    peaks, facts = _peaks(model), gpu_facts(model)
    instance = any(_INSTANCE.fullmatch(word) for word in model_words(model))
    size: float | None = None
    sizes: tuple[int, ...] = ()
    if memory is not None:
        try:
            size = float(parse_size(memory))
        except ValueError as error:
            raise UsageError("the GPU's memory is no size", given=memory, allowed=str(error)) from None
        if size < 1e6:
            raise UsageError(
                "no GPU has so little memory", given=memory, next="give --gpu-memory with its unit, such as 20GB"
            )
    elif given is not None:
        size = float(given.memory)
    elif facts.sizes and not instance:
        size, sizes = facts.sizes[0] * facts.usable, facts.sizes if len(facts.sizes) > 1 else ()
    if size is None:
        families = list(gpu_table()["family"])
        what = (
            "this is an instance of a GPU; its memory is not that of the whole"
            if instance
            else "nothing is known of this GPU"
        )
        hint = "give --gpu-memory, such as --gpu-memory 20GB, or [gpu.MODEL] of the cluster's profile"
        raise UsageError(what, given=model, allowed=", ".join(families), next=did_you_mean(model, families, hint))
    capability = (given.capability if given else None) or facts.capability
    flops = given.tflops_bf16 * 1e12 if given and given.tflops_bf16 else peaks.get("peak_flops")
    return PlannedGpu(
        model=model,
        memory=size,
        flops=None if instance else flops,
        bandwidth=None
        if instance
        else (given.bandwidth if given and given.bandwidth else peaks.get("peak_bytes_per_second")),
        link=peaks.get("nvlink_bytes_per_second") or peaks.get("pcie_bytes_per_second"),
        network=_NETWORK.get(capability or 0, _NETWORK_BEFORE),
        capability=capability,
        power=(given.power if given else None) or peaks.get("power_watts"),
        full_power=peaks.get("full_power_watts"),
        origin="option" if memory else f"profile {profile.name}" if given and profile else "table of GPUs",
        sizes=sizes,
    )


def as_measured(device: PlannedGpu, speeds: Mapping[str, NodeSpeeds]) -> PlannedGpu:
    """Return a GPU that does no more than nodes with such GPUs were measured to; as it is where none were.

    What a product of matrices reaches stands in the place of what its power would allow, and what GPUs sent to other nodes in that
    of the port that is taken to be there.
    """
    entry = _peaks(device.model)
    alike = [one for model, one in speeds.items() if entry and _peaks(model) is entry]
    if not alike:
        return device
    found = max(alike, key=lambda one: one.nodes)
    share = found.flops / (device.flops * MATRIX) if found.flops and device.flops else 0.0
    return replace(
        device,
        reached=min(1.0, share) if share * MATRIX > _LEAST_SHARE else None,
        bandwidth=min(device.bandwidth, found.memory / MEMORY)
        if device.bandwidth and found.memory
        else device.bandwidth,
        link=min(device.link, found.link / max(MOVED)) if device.link and found.link else device.link,
        network=found.network / MOVED[2] if found.network else device.network,
        nodes=found.nodes,
        origin=f"{device.origin}, {found.nodes} vetted nodes",
    )


def _peaks(model: str) -> Mapping[str, Any]:
    """Return the entry of the model whose name has the most words of this one, and the largest peaks of those; empty: none."""
    table: Mapping[str, Any] = gpu_table()["model"]
    words = set(model_words(model)) - {"nvidia", "amd", "gpu", "tesla", "instinct"}
    families = set(gpu_table()["family"]) & {part for word in words for part in (word, word.rstrip("x"))}
    scored = [
        (
            len(words & set(model_words(name))),
            entry.get("peak_flops", 0.0),
            entry.get("peak_bytes_per_second", 0.0),
            name,
        )
        for name, entry in table.items()
        if families & set(model_words(name))
    ]
    return table[max(scored)[-1]] if scored else {}


def device_of_partition(
    profile: ClusterProfile, partition: PartitionTable | None, model: str | None
) -> PlannedGpu | None:
    """Return the GPUs of a partition, those of which there are most; None where it has none whose model is known."""
    shapes = [shape for shape in (partition.shapes if partition else ()) if shape.gpus and shape.gpu_model]
    if model is not None:
        shapes = [shape for shape in shapes if (shape.gpu_model or "").lower() == model.lower()]
    if not shapes:
        return None
    shape = max(shapes, key=lambda one: (one.nodes or 0) * (one.gpus or 0))
    try:
        found = device_of(str(shape.gpu_model), profile)
    except UsageError:
        return None
    per_node = shape.gpus or 1
    return replace(found, per_node=per_node, most=per_node * shape.nodes if shape.nodes else None)
