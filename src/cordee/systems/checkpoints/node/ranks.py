"""What ranks do together around a save: agree, hear of each other's failures."""

from __future__ import annotations

from typing import Any, Callable


def world() -> tuple[int, int]:
    """Return (rank, number of ranks), (0, 1) without a process group."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def agreed(value: Any) -> Any:
    """Return rank 0's value on all ranks."""
    if world()[1] == 1:
        return value
    import torch.distributed as dist

    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gathered(value: Any) -> list[Any]:
    """Return all ranks' values on all ranks."""
    size = world()[1]
    if size == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * size
    dist.all_gather_object(values, value)
    return values


def attempt(action: Callable[[], Any]) -> str:
    """Run `action` and return its failure as text, empty when it went well."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        action()
    except (Exception, CheckpointException) as error:  # torch's own is not an Exception
        return _first_line(error)
    return ""


def _first_line(error: BaseException) -> str:
    """Return the cause of a failure in one line; torch wraps it with each rank's traceback."""
    inner = getattr(error, "failures", None)
    if inner:
        cause = next(iter(inner.values()))
        error = cause[0] if isinstance(cause, tuple) else cause
    return f"{type(error).__name__}: {error}".split("\n")[0]
