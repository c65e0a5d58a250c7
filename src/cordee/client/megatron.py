"""Where a rank stands by Megatron's settings: sizes of tensor, pipeline, context and expert parallelism, and their order.

Ranks are numbered with tensor parallelism fastest, then context, data, pipeline; with `use_tp_pp_dp_mapping` data comes
last. Experts have a numbering of their own over the same ranks. Both are as `initialize_model_parallel` and `RankGenerator`
of Megatron-core do it (megatron/core/parallel_state.py).
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

Coordinates = dict[str, tuple[int, Optional[int]]]

SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
_MAPPING = "use_tp_pp_dp_mapping"
# Launchers that make ranks of their own out of one of ours.
_LAUNCHERS = ("torchrun", "torch.distributed.run", "accelerate", "deepspeed", "mpirun", "mpiexec")
_GROUPS = {
    "tp": "tensor_model_parallel",
    "cp": "context_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_model_parallel",
    "ep": "expert_model_parallel",
}


def coordinates(settings: Mapping[str, Any], rank: int, world: int) -> Coordinates:
    """Return (index, size) by dimension of a rank: tp, cp where it is used, dp, pp, and ep where there are experts.

    Args:
        settings: sizes by their names in `SIZES`, absent or None means 1, and `use_tp_pp_dp_mapping`.
        rank: the global rank.
        world: how many ranks there are.

    Raises:
        ValueError: the sizes do not divide the world.
    """
    tensor, pipeline, context, expert = (_size(settings, name) for name in SIZES[:4])
    model = tensor * pipeline * context
    if world % model:
        raise ValueError(f"tp {tensor} x pp {pipeline} x cp {context} = {model} does not divide {world} ranks")
    data = world // model
    middle = [("pp", pipeline), ("dp", data)] if settings.get(_MAPPING) else [("dp", data), ("pp", pipeline)]
    found = _split(rank, [("tp", tensor), ("cp", context), *middle])
    if context == 1:
        del found["cp"]
    if expert > 1:
        expert_tensor = _size(settings, SIZES[4], tensor)
        if world % (expert_tensor * expert * pipeline):
            raise ValueError(f"experts: {expert_tensor} x {expert} x pp {pipeline} does not divide {world} ranks")
        found["ep"] = (rank // expert_tensor % expert, expert)
    return found


def settings_of_command(argv: Sequence[str]) -> dict[str, Any]:
    """Return Megatron's settings of a command line; empty when it has none, or when it makes ranks of its own."""
    words = [word for argument in argv for word in argument.split()]
    if any(word.rpartition("/")[2] in _LAUNCHERS for word in words):
        return {}
    found: dict[str, Any] = {}
    for at, word in enumerate(words):
        name, given, value = word.partition("=")
        name = name[2:].replace("-", "_") if name.startswith("--") else ""
        if name in SIZES:
            value = value if given else words[at + 1] if at + 1 < len(words) else ""
            if value.isdigit() and int(value) > 0:
                found[name] = int(value)
    if found:
        found[_MAPPING] = "--use-tp-pp-dp-mapping" in words
    return found


def settings_of_namespace(namespace: Any) -> dict[str, Any]:
    """Return the settings that an object, such as Megatron's `args`, has as attributes; empty when it has none."""
    found = {name: getattr(namespace, name) for name in SIZES if getattr(namespace, name, None) is not None}
    if found:
        found[_MAPPING] = bool(getattr(namespace, _MAPPING, False))
    return found


def coordinates_of_state(state: Any) -> Coordinates:
    """Return what a module like `megatron.core.parallel_state` knows of its rank; empty when that is nothing."""
    found: Coordinates = {}
    for dimension, name in _GROUPS.items():
        rank, size = _ask(state, f"get_{name}_rank"), _ask(state, f"get_{name}_world_size")
        if rank is not None and (size or 1) > (1 if dimension in ("cp", "ep") else 0):
            found[dimension] = (rank, size)
    return found


def _ask(state: Any, question: str) -> Optional[int]:
    """Return the answer of a function that fails while its groups are not made."""
    function: Optional[Callable[[], Any]] = getattr(state, question, None)
    try:
        return None if function is None else int(function())
    except Exception:
        return None


def _size(settings: Mapping[str, Any], name: str, default: int = 1) -> int:
    size = int(settings.get(name) or default)
    if size < 1:
        raise ValueError(f"{name} is {size}; it must be at least 1")
    return size


def _split(rank: int, sizes: Sequence[tuple[str, int]]) -> Coordinates:
    """Return the digits of a rank in a number system of these sizes, the fastest first."""
    found: Coordinates = {}
    for name, size in sizes:
        found[name] = (rank % size, size)
        rank //= size
    return found
