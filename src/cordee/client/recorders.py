"""What torch's Flight Recorders hold: that of NCCL, which only builds with CUDA have, and the one of all other libraries."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from typing import Any, Callable

# By the name of the call that dumps it; the second has nothing of what the first records.
_CALLS = ("_dump_nccl_trace", "_dump_fr_trace")
BESIDE = " beside NCCL"  # ends the name of a group that both record: each counts its collectives by itself


def group_status() -> dict[str, dict[str, Any]]:
    """Return how far each process group is, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for call in _calls():
        told = pickle.loads(call(includeCollectives=False, includeStackTraces=False, onlyActive=False))
        for name, status in told["pg_status"].items():
            found[name if name not in found else name + BESIDE] = status
    return found


def dump() -> bytes:
    """Return the dump of this process, of both recorders where both have recorded; empty where nothing was."""
    torch, mark = sys.modules["torch"], _NoCompiler()
    if "_inductor" not in vars(torch):
        torch._inductor = mark  # type: ignore[attr-defined]
    try:
        dumps = [call() for call in _calls()]
    finally:
        if vars(torch).get("_inductor") is mark:
            del torch._inductor  # type: ignore[attr-defined]
    told = [(data, pickle.loads(data)) for data in dumps]
    told = [(data, one) for data, one in told if one["entries"]]
    if len(told) == 2:
        return pickle.dumps(_together(told[0][1], told[1][1]))
    return told[0][0] if told else b""


def _together(of_nccl: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return both dumps as one."""
    twice = {entry["process_group"][0] for entry in other["entries"]} & of_nccl["pg_config"].keys()

    def own(name: str) -> str:
        return name + BESIDE if name in twice else name

    for entry in other["entries"]:
        name, description = entry["process_group"]
        entry["process_group"] = own(name), description
    config = {own(name): {**about, "name": own(name)} for name, about in other["pg_config"].items()}
    status = {own(name): about for name, about in other["pg_status"].items()}
    return {
        **of_nccl,
        "entries": of_nccl["entries"] + other["entries"],
        "pg_config": {**config, **of_nccl["pg_config"]},
        "pg_status": {**status, **of_nccl["pg_status"]},
    }


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


def _calls() -> list[Callable[..., bytes]]:
    from torch._C import _distributed_c10d as recorder

    return [getattr(recorder, name) for name in _CALLS if hasattr(recorder, name)]
