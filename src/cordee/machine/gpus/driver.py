"""Which driver's library a node's GPUs are asked through."""

from __future__ import annotations

from cordee.machine.gpus.amd import AmdSource
from cordee.machine.gpus.model import GpuSource, GpusUnreadable
from cordee.machine.gpus.nvml import NvmlSource


def open_gpus() -> GpuSource:
    """Open the library of the node's GPUs: NVIDIA's, else AMD's.

    Raises:
        GpusUnreadable: there is neither, or it refuses; of an absent one both are named.
    """
    try:
        return NvmlSource()
    except GpusUnreadable as nvidia:
        if nvidia.cause != "absent":
            raise
        try:
            return AmdSource()
        except GpusUnreadable as amd:
            if amd.cause != "absent":
                raise
            raise GpusUnreadable(f"{nvidia}; {amd}", "absent") from None
