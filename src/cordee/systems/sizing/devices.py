"""The GPUs that a plan is made for: what the cluster's profile says, else the platform's table of GPUs by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cordee.core.documents.gpu_models import gpu_facts, gpu_table, model_words
from cordee.core.errors import UsageError
from cordee.core.units import format_size, parse_size
from cordee.core.words import did_you_mean
from cordee.job.profile import ClusterProfile, GpuModel, PartitionTable

# What one GPU gets of the network between nodes where no profile and no vetting says it: one port of 400 Gb/s, as NVIDIA's
# reference designs for Hopper have, 200 Gb/s before.
_INSTANCE = re.compile(r"mig|\dg")  # `1g.10gb`, `MIG 3g.40gb`
_NETWORK = {9.0: 50e9, 10.0: 50e9}
_NETWORK_BEFORE = 25e9


@dataclass(frozen=True)
class PlannedGpu:
    """One kind of GPU, and how many there are.

    Attributes:
        memory: of one, in bytes; of an instance (MIG) its own.
        flops: dense, with 16 bit, FLOP/s; `bandwidth`, `link`, `network`: bytes/s of memory, between GPUs of a node, between nodes.
        per_node: GPUs of one node; `most`: GPUs of all nodes; None: not known.
        power: its limit, in W; `full_power`: that at which the model reaches its peaks.
        origin: where that comes from.
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

    @property
    def sustained(self) -> float:
        """The share of its peaks that its power allows for long, where the table says that it is limited."""
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
    size = None
    if memory is not None:
        try:
            size = float(parse_size(memory))
        except ValueError as error:
            raise UsageError("the GPU's memory is no size", given=memory, allowed=str(error)) from None
    elif given is not None:
        size = float(given.memory)
    elif facts.memory is not None and not instance:
        size = float(facts.memory[0])
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
