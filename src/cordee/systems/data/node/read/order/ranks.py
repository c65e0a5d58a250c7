"""Which part of every global batch is this process's."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

from cordee.core.errors import UsageError


def own_share(rank: Optional[int] = None, world: Optional[int] = None, mesh: Any = None) -> tuple[int, int]:
    """Return (rank, number of ranks) among those that read different samples.

    What is given counts; else torch.distributed where it is initialised; else RANK and WORLD_SIZE; else (0, 1).

    Args:
        rank, world: given together. Ranks that hold parts of one replica (tensor, pipeline parallel) give the same.
        mesh: instead, the data-parallel dimension of a torch DeviceMesh: `mesh["dp"]`.

    Raises:
        UsageError: they do not fit together.
    """
    if mesh is not None:
        if rank is not None or world is not None or getattr(mesh, "ndim", 1) != 1:
            raise UsageError(
                "the mesh does not say which part is this rank's",
                given=mesh,
                allowed='one dimension, mesh["dp"] for example, and neither rank nor world beside it',
            )
        return int(mesh.get_local_rank()), int(mesh.size())
    if (rank is None) != (world is None):
        raise UsageError("rank and world are given together", given=f"rank={rank}, world={world}")
    if rank is None or world is None:
        rank, world = _found()
    if not 0 <= rank < world:
        raise UsageError(
            "the rank is none of the world's", given=f"rank={rank}, world={world}", allowed="0 <= rank < world"
        )
    return rank, world


def _found() -> tuple[int, int]:
    torch_distributed = sys.modules.get("torch.distributed")
    if torch_distributed is not None and torch_distributed.is_available() and torch_distributed.is_initialized():
        return torch_distributed.get_rank(), torch_distributed.get_world_size()
    try:
        return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    except ValueError:
        raise UsageError(
            "RANK and WORLD_SIZE are no numbers",
            given=f"RANK={os.environ.get('RANK')}, WORLD_SIZE={os.environ.get('WORLD_SIZE')}",
            next="a launcher sets them; or give rank= and world=",
        ) from None


def usable_threads() -> int:
    """Return how many threads this rank should decode in: the processors it may use, shared with the node's other ranks."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if usable == os.cpu_count():  # not bound to a part of them
        usable //= max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    return max(1, min(16, usable))
