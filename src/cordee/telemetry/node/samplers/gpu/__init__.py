"""Sources of GPU metrics behind one seam, in the order in which they are tried."""

from __future__ import annotations

import importlib
from typing import NamedTuple, Optional, Sequence

from cordee.core.errors import UsageError
from cordee.telemetry.node.samplers.gpu._base import GpuMetricSource, Roots, SourceUnavailable

__all__ = ["SOURCES", "GpuMetricSource", "Roots", "SamplerSource", "SourceUnavailable", "open_gpus"]

AUTO = "auto"
REPLAY = "replay:"


class SamplerSource(NamedTuple):
    """One source: its name, and where its class is, which is imported when it is tried."""

    name: str
    module: str
    kind: str

    def load(self) -> type[GpuMetricSource]:
        """Import the class."""
        found: type[GpuMetricSource] = getattr(importlib.import_module(self.module), self.kind)
        return found


_ROOM = "cordee.telemetry.node.samplers.gpu"
SOURCES = (
    SamplerSource("nvml-gpm", f"{_ROOM}.nvml.gpm", "NvmlGpmSource"),
    SamplerSource("dcgm", f"{_ROOM}.dcgm", "DcgmSource"),
    SamplerSource("nvml", f"{_ROOM}.nvml.basic", "NvmlSampler"),
    SamplerSource("amdsmi", f"{_ROOM}.amd", "AmdSmiSource"),
)


def open_gpus(
    node: str,
    wanted: Optional[Sequence[str]] = None,
    source: str = AUTO,
    interval_s: float = 1.0,
    own: Optional[Roots] = None,
) -> tuple[Optional[GpuMetricSource], dict[str, str]]:
    """Open the first source that measures these GPUs; return it, probed, and why each source before it was refused.

    Library calls may hang with the driver, and a source holds libraries: call it in a process that may be killed.

    Args:
        node: the node's name, which of a recording with many nodes is replayed here.
        wanted: UUIDs of GPUs or MIG instances that belong to the job; None: all that this process may see; empty: none.
            A replay has the GPUs of its recording.
        source: `auto`, the name of one of `SOURCES`, or `replay:DIR`.
        interval_s: seconds between samples.
        own: returns the main process of each rank of the job on this node, to tell whose a GPU is and who else uses it.

    Raises:
        UsageError: there is no such source.
    """
    if source.startswith(REPLAY):
        from cordee.telemetry.node.samplers.gpu.replay import ReplaySource

        replay = ReplaySource(source[len(REPLAY) :], node, None, interval_s, own)
        reason = replay.probe()
        return (replay, {}) if reason is None else (None, {"replay": reason})
    refused: dict[str, str] = {}
    if wanted is not None and not wanted:
        return None, {source: "the job has no GPU"}
    for candidate in _candidates(source):
        try:
            opened = candidate.load()(wanted, interval_s, own)
            reason = opened.probe()
        except Exception as error:  # a library that misbehaves keeps no other source from being tried
            reason = f"its library misbehaves: {type(error).__name__}: {error}"
        if reason is None:
            return opened, refused
        refused[candidate.name] = reason
    return None, refused


def _candidates(source: str) -> Sequence[SamplerSource]:
    if source == AUTO:
        return SOURCES
    found = [candidate for candidate in SOURCES if candidate.name == source]
    if not found:
        allowed = [AUTO, *(candidate.name for candidate in SOURCES), f"{REPLAY}DIR"]
        raise UsageError("there is no such source of GPU metrics", given=source, allowed=allowed)
    return found
