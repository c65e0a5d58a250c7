"""How a model serves: its first token, those after it, how many sequences fit at once, and how many instances share a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.step_time import collective_seconds, step_time
from cordee.systems.sizing.devices import MATRIX, MEMORY, PlannedGpu
from cordee.systems.sizing.memory import expert_bytes, formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.workload import Workload

# One kernel's launch, and kernels of one block, where no graph of CUDA holds them.
_LAUNCH_S, _KERNELS = 4e-6, 10


@dataclass(frozen=True)
class InferencePlan:
    """What an instance does that holds `sequences` at once, each of `context` tokens.

    Attributes:
        first_s: until the first token of all prompts, of `context` tokens each; `token_s`: from one token to the next.
        most_sequences: that fit beside the weights; `instances`: whole copies that fit on one GPU, each with as many sequences.
    """

    sequences: int
    context: int
    first_s: float | None
    token_s: float | None
    most_sequences: int
    instances: int

    @property
    def tokens_per_second(self) -> float | None:
        """Generated tokens of all sequences."""
        return None if self.token_s is None else self.sequences / self.token_s

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "sequences": self.sequences,
            "context": self.context,
            "first_token_s": self.first_s,
            "next_token_s": self.token_s,
            "tokens_per_s": self.tokens_per_second,
            "most_sequences": self.most_sequences,
            "instances_per_gpu": self.instances,
        }


def serving(
    a: Architecture, w: Workload, layout: Layout, device: PlannedGpu, largest: Callable[[Callable[[int], bool]], int]
) -> InferencePlan | None:
    """Return how a decoder serves in a layout; None for models that generate nothing, and where nothing is divided but data."""
    if a.kind != "decoder" or w.trains:
        return None

    def peak(sequences: int) -> float:
        return formula_parts(a, replace(w, micro_batch=sequences), layout).peak

    most = largest(lambda size: peak(size) <= device.memory)
    # A process of its own has a context of its own, which the peak of one has.
    instances = int(device.memory // peak(w.micro_batch)) if layout.gpus == layout.dp else 0
    whole = step_time(a, w, layout, device)
    return InferencePlan(
        w.micro_batch,
        w.sequence,
        whole.seconds if whole else None,
        token_seconds(a, w, layout, device),
        most,
        instances,
    )


def token_seconds(a: Architecture, w: Workload, layout: Layout, device: PlannedGpu) -> float | None:
    """Return the time from one token to the next of all sequences: weights and cache are read once, or matrices are slower."""
    if not device.flops or not device.bandwidth:
        return None
    parts = formula_parts(a, w, layout)
    read = parts.parameters + parts.others.get("cache of keys and values", 0.0)
    if a.experts:  # of few sequences only the experts that they take
        share = min(1.0, w.micro_batch * a.experts_per_token / a.experts)
        read -= a.layers * a.experts_matrix * expert_bytes(a, w) / layout.tp / layout.ep * (1 - share)
    memory = read / (device.bandwidth * MEMORY)
    matrices = 2.0 * a.multiplied * w.micro_batch / layout.tp / layout.pp / (device.flops * device.sustained * MATRIX)
    launches = a.layers / layout.pp * _KERNELS * _LAUNCH_S
    size = w.micro_batch * a.width * w.activation_bytes
    reduced = 2 * a.layers / layout.pp * collective_seconds("all-reduce", size, layout.tp, device)
    # Stages of a pipeline work one after the other for one token.
    return layout.pp * (max(memory, matrices, launches) + reduced)


def words_of(found: InferencePlan) -> list[str]:
    """Return it as lines."""
    lines = []
    if found.token_s is not None and found.first_s is not None and found.tokens_per_second is not None:
        lines.append(
            f"{found.sequences} sequences of {found.context} tokens: the first token after {found.first_s:.3g} s, "
            f"then {found.tokens_per_second:,.0f} tokens/s ({1000 * found.token_s:.3g} ms each)"
        )
    lines.append(f"{found.most_sequences} sequences of {found.context} tokens fit at once")
    if found.instances > 1:
        lines.append(
            f"{found.instances} instances fit on one GPU; each holds the weights again, so that one with more sequences serves more"
        )
    return lines
