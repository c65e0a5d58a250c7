"""Which kind of work the main thread is at, by the files of its frames and by the system call that it waits in."""

from __future__ import annotations

import platform
from typing import Any, Mapping, Optional

COMPUTE, DATA, COMMUNICATION, SAVING, UNKNOWN = range(5)
_MOST_FRAMES = 64
_MOST_FILES = 10_000
_SAVES = "save"  # a part of the function's name, where a file both saves and loads
# Parts of paths with `/`; the first that fits decides.
_FILES = (
    ("/torch/distributed/checkpoint/", SAVING),
    ("/torch/distributed/distributed_c10d.py", COMMUNICATION),
    ("/torch/distributed/_functional_collectives.py", COMMUNICATION),
    ("/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", COMMUNICATION),
    ("/torch/distributed/_composable/fsdp/_fsdp_collectives.py", COMMUNICATION),
    ("/torch/utils/data/", DATA),
    ("/torchdata/", DATA),
    ("/webdataset/", DATA),
    ("/site-packages/datasets/", DATA),
    ("/site-packages/streaming/", DATA),
    ("/nvidia/dali/", DATA),
    ("/site-packages/grain/", DATA),
    ("/cordee/systems/data/", DATA),
    ("/cordee/systems/checkpoints/", SAVING),
    ("/dist_checkpointing/", SAVING),
    ("/deepspeed/runtime/checkpoint_engine/", SAVING),
)
_SAVING_FILES = ("/torch/serialization.py", "/safetensors/torch.py", "/safetensors/numpy.py")
_SOMETIMES = -1
# Numbers of system calls, by machine.
_READS: Mapping[str, frozenset[int]] = {
    "x86_64": frozenset((0, 17, 19, 295, 327)),
    "aarch64": frozenset((63, 65, 67, 69, 286)),
}
_WRITES: Mapping[str, frozenset[int]] = {
    "x86_64": frozenset((1, 18, 20, 26, 74, 75, 82, 162, 277, 296, 306, 328)),
    "aarch64": frozenset((64, 66, 68, 70, 81, 82, 83, 84, 227, 267, 276, 287)),
}
_SLEEPS: Mapping[str, frozenset[int]] = {"x86_64": frozenset((35, 230)), "aarch64": frozenset((101, 115))}
_MACHINE = platform.machine()
_NONE: frozenset[int] = frozenset()

_known: dict[str, Optional[int]] = {}


def kind_of_frames(frame: Any) -> Optional[int]:
    """Return the kind of the innermost frame that tells one, None where none does."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        kind = _kind_of_file(code.co_filename)
        if kind == _SOMETIMES:
            kind = SAVING if _SAVES in code.co_name else None
        if kind is not None:
            return kind
        frame = frame.f_back
    return None


def kind_of_wait(call: int, grouped: bool) -> int:
    """Return the kind of what a thread waits for that no frame tells.

    Args:
        call: the number of the system call that it is in; -1: not known.
        grouped: whether the rank is in a process group of several.
    """
    if call in _READS.get(_MACHINE, _NONE):
        return DATA
    if call in _WRITES.get(_MACHINE, _NONE):
        return SAVING
    if call in _SLEEPS.get(_MACHINE, _NONE) or not grouped:
        return UNKNOWN
    return COMMUNICATION


def _kind_of_file(path: str) -> Optional[int]:
    try:
        return _known[path]
    except KeyError:
        pass
    if len(_known) >= _MOST_FILES:
        _known.clear()
    kind = next((kind for part, kind in _FILES if part in path), None)
    if path.endswith(_SAVING_FILES):
        kind = _SOMETIMES
    _known[path] = kind
    return kind
