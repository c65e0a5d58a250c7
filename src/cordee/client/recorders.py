"""What torch's Flight Recorders hold: NCCL has one of its own, which only builds with CUDA know, and Gloo another."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from typing import Any, Callable, Iterator, Optional

from cordee.wire.pulse import GroupProgress

# By the library, the call that dumps its recorder.
_CALLS = {"nccl": "_dump_nccl_trace", "gloo": "_dump_fr_trace"}


def group_progress(world: Any) -> list[GroupProgress]:
    """Return how far this process is in each of its process groups, as the recorders have it; of a single one, else as it counts.

    Args:
        world: what torch.distributed keeps of all groups.
    """
    known = [group for group in dict(world.pg_map) if group in world.pg_names]
    found = [progress for library in _CALLS for progress in _recorded(world, known, library)]
    if found or len(known) != 1:  # of several, nobody would know in which of them it waits
        return found
    (group,) = known
    count = group._get_sequence_number_for_group()
    return [GroupProgress(world.pg_names[group], len(world.pg_group_ranks[group]), count, -1)]


def dump() -> bytes:
    """Return the dump of NCCL's recorder, of Gloo's where no call of NCCL was recorded; empty where nothing was.

    NCCL asks the GPU how far its calls are, and nobody else runs Python in this process meanwhile.
    """
    torch, mark = sys.modules["torch"], _NoCompiler()
    if "_inductor" not in vars(torch):
        torch._inductor = mark  # type: ignore[attr-defined]
    try:
        for library in _CALLS:
            data = _answer(library)
            if data and pickle.loads(data)["entries"]:
                return data
        return b""
    finally:
        if vars(torch).get("_inductor") is mark:
            del torch._inductor  # type: ignore[attr-defined]


def _recorded(world: Any, known: list[Any], library: str) -> Iterator[GroupProgress]:
    """Yield what a library's recorder knows of these groups.

    It numbers the groups of its library as they were made, those too that are gone: then nobody knows which is which.
    """
    configs = {group: str(world.pg_backend_config.get(group, "")) for group in known}
    own = [group for group in known if library in configs[group]]
    if not own or (library == "nccl" and sys.modules["torch"].version.hip):  # RCCL asks each GPU, and may wait for it
        return
    data = _answer(library, includeCollectives=False, includeStackTraces=False, onlyActive=False)
    status = {int(number): told for number, told in pickle.loads(data)["pg_status"].items()} if data else {}
    if max(status, default=0) >= len(own):
        return
    for number, told in status.items():
        group = own[number]
        name = world.pg_names[group]
        if library == "gloo" and "nccl" in configs[group]:
            name = f"{name} of Gloo"  # each library counts its own calls
        enqueued, completed = told.get("last_enqueued_collective", -1), told.get("last_completed_collective", -1)
        yield GroupProgress(name, len(world.pg_group_ranks[group]), int(enqueued), int(completed))


class _NoCompiler:
    """Stands where torch would import its compiler to name lines of a dump, for the thread that dumps; all others get the compiler.

    Two threads that import parts of it at a time make one of them fail (ImportError): a script must not, because it was asked where it stands.
    """

    def __init__(self) -> None:
        self._dumps = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._dumps:
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


def _answer(library: str, **asked: bool) -> bytes:
    """Return what a recorder says, empty where this torch has none, or it fails: the other one may answer."""
    try:
        call = _call(library)
        return call(**asked) if call is not None else b""
    except Exception:
        return b""


def _call(library: str) -> Optional[Callable[..., bytes]]:
    from torch._C import _distributed_c10d as recorder

    call: Optional[Callable[..., bytes]] = getattr(recorder, _CALLS[library], None)
    return call
