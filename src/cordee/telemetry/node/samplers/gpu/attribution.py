"""Which GPUs belong to a rank and to the job: told by UUIDs, by what may be opened, by Slurm, or not known.

An index means nothing by itself: with --gpus-per-task every task sees GPU 0. So indices are only read as CUDA reads them,
within what a process of the same control group and container may open. What cannot be known is said, never guessed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Optional, Sequence

from cordee.machine.gpus.presence import GPU_VARIABLES, Listed, listed
from cordee.telemetry.node.samplers.gpu._base import SourceUnavailable, chosen

_PER_TASK = GPU_VARIABLES[-4:]
_TASK = re.compile(r"(/user)?/task_\w+$")
_UUIDS = ("GPU-", "MIG-")


@dataclass(frozen=True)
class SeenGpu:
    """One GPU or MIG instance as the asking process sees it; `minor` is the number of its device file."""

    uuid: str
    model: str = ""
    bus: str = ""
    minor: Optional[int] = None
    parent: str = ""


@dataclass(frozen=True)
class GpuView:
    """What the asking process may open; `hidden` counts GPUs of the node that a cgroup keeps from it."""

    devices: tuple[SeenGpu, ...] = ()
    hidden: int = 0
    remarks: tuple[str, ...] = field(default=())


class Attribution(NamedTuple):
    """UUIDs of GPUs, and by what they are known; None: not known, and why."""

    devices: Optional[list[str]]
    reason: str


def look(library: Optional[str] = None) -> tuple[Optional[GpuView], str]:
    """Return which GPUs this process may open, NVIDIA's or else AMD's; None with the reasons when no library tells."""
    from cordee.telemetry.node.samplers.gpu.nvml.devices import show
    from cordee.telemetry.node.samplers.gpu.nvml.library import LIBRARY, Nvml

    try:
        nvml = Nvml(library or LIBRARY)
    except SourceUnavailable as error:
        amd, reason = _look_amd()
        return amd, "" if amd else f"{error}; {reason}"
    try:
        shown = show(nvml)
    except SourceUnavailable as error:
        return None, str(error)
    finally:
        nvml.close()
    seen = [SeenGpu(gpu.uuid, gpu.model, gpu.bus or "", gpu.minor, gpu.parent) for gpu in shown.devices]
    return GpuView(tuple(seen), shown.hidden, tuple(shown.remarks)), ""


def _look_amd() -> tuple[Optional[GpuView], str]:
    from cordee.machine.gpus.amd import AmdSource
    from cordee.machine.gpus.model import GpusUnreadable

    try:
        gpus = AmdSource().read()
    except GpusUnreadable as error:
        return None, str(error)
    return GpuView(tuple(SeenGpu(gpu.uuid, gpu.name or "", gpu.pci_bus_id or "") for gpu in gpus if gpu.uuid)), ""


def of_rank(
    env: Mapping[str, str], seen: GpuView, ranks: int = 1, pid: Optional[int] = None, proc: str = "/proc"
) -> Attribution:
    """Return the GPUs of one rank.

    Args:
        env: the rank's environment, or `gpu_variables` of it.
        seen: what this process may open.
        ranks: how many ranks of the job this process looks after.
        pid: the rank's main process, which may be kept from other GPUs than this one; None: it is known not to be.
        proc: where /proc is.
    """
    given = listed(env)
    if given is not None:
        found = _listed(given, env, seen)
        by_index = found.devices and not given.text.startswith(_UUIDS)
        if by_index and pid is not None and not _same_view(env, pid, proc):
            words = f"{given.variable}={given.text} counts the GPUs of another control group or container"
            return Attribution(None, words)
        return found
    here = _given(env, seen)
    if here.devices is None or ranks == 1 or not here.devices:
        return here
    if len(here.devices) == 1:
        return Attribution(here.devices, f"{here.reason}; {ranks} ranks share it")
    return Attribution(None, f"{ranks} ranks share {len(here.devices)} GPUs and nothing says which is whose")


def of_job(ranks: Sequence[Mapping[str, str]], seen: GpuView) -> Attribution:
    """Return the GPUs of the job on this node: those of its ranks, else those that all of them may use."""
    each = [of_rank(env, seen, len(ranks)) for env in ranks]
    if each and all(rank.devices is not None for rank in each):
        union = dict.fromkeys(uuid for rank in each for uuid in rank.devices or ())
        return Attribution(list(union), each[0].reason)
    unknown = next((rank for rank, env in zip(each, ranks) if rank.devices is None and listed(env)), None)
    return unknown or _given(ranks[0] if ranks else {}, seen)


def _same_view(env: Mapping[str, str], pid: int, proc: str) -> bool:
    """Return whether a process may open the same GPUs as this one, as far as /proc and Slurm tell.

    Slurm keeps the tasks of a step apart by control groups but lets all of them open the step's GPUs, unless GPUs are
    bound to tasks.
    """
    bound = any(env.get(name) for name in _PER_TASK)
    theirs, ours = ((_devices_group(of, bound, proc), _mounts(of, proc)) for of in (pid, "self"))
    return all(their is None or our is None or their == our for their, our in zip(theirs, ours))


def _devices_group(pid: object, bound: bool, proc: str) -> Optional[str]:
    """Return the control group that says which devices a process may open; None: it cannot be read."""
    try:
        with open(f"{proc}/{pid}/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file if line.count(":") >= 2]
    except OSError:
        return None
    first = [path for _, names, path in lines if "devices" in names.split(",")]
    found = first or [path for _, names, path in lines if not names]
    return None if not found else found[0] if bound else _TASK.sub("", found[0])


def _mounts(pid: object, proc: str) -> Optional[str]:
    try:
        return os.readlink(f"{proc}/{pid}/ns/mnt")
    except OSError:
        return None


def _listed(given: Listed, env: Mapping[str, str], seen: GpuView) -> Attribution:
    """Return what a list of visible devices names: UUIDs as they are, indices within the view as CUDA counts."""
    name, value, entries = given
    if not entries:
        return Attribution([], f"{name} hides all GPUs")
    if all(entry.startswith(_UUIDS) for entry in entries):
        try:
            found, absent = chosen(entries, [gpu.uuid for gpu in seen.devices])
        except SourceUnavailable as error:
            return Attribution(None, f"{name}: {error}")
        return Attribution([*found, *absent], f"UUIDs in {name}")
    if not all(entry.isdigit() for entry in entries):
        return Attribution(None, f"{name}={value} is neither a list of UUIDs nor of indices")
    if any(gpu.parent for gpu in seen.devices):
        return Attribution(None, f"{name}={value} gives indices where GPUs are split (MIG): UUIDs would tell")
    models = {gpu.model for gpu in seen.devices}
    if len(models) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return Attribution(None, f"{name}={value} gives indices, and CUDA orders GPUs of {len(models)} models by speed")
    ordered = sorted(seen.devices, key=lambda gpu: gpu.bus)
    beyond = [entry for entry in entries if int(entry) >= len(ordered)]
    if beyond:
        text = f"{name}={value} names GPU {beyond[0]} where this node shows {len(ordered)}"
        return Attribution(None, f"{text}: it counts the node's GPUs, of which a cgroup hides some")
    return Attribution(
        [ordered[int(entry)].uuid for entry in entries], f"indices in {name} among the GPUs that may be opened"
    )


def _given(env: Mapping[str, str], seen: GpuView) -> Attribution:
    """Return what the job was given as a whole: what a cgroup leaves, else what Slurm names, else all without Slurm."""
    everything = [gpu.uuid for gpu in seen.devices]
    if seen.hidden:
        return Attribution(everything, "the GPUs that the cgroup lets this process open")
    name = next((name for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if env.get(name)), None)
    if name is not None:
        return _by_slurm(name, env[name], seen)
    if env.get("SLURM_JOB_ID"):
        return Attribution(None, "Slurm names no GPUs of this job, and nothing keeps those of others from it")
    return Attribution(everything, "all GPUs that this process may open")


def _by_slurm(name: str, value: str, seen: GpuView) -> Attribution:
    """Return the GPUs that Slurm counts by their device files: `0-2,5`."""
    numbers: set[int] = set()
    for entry in value.split(","):
        first, _, last = entry.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return Attribution(None, f"{name}={value} is no list of device numbers")
        numbers.update(range(int(first), int(last or first) + 1))
    by_minor: dict[int, list[str]] = {}
    for gpu in seen.devices:
        if gpu.minor is not None:
            by_minor.setdefault(gpu.minor, []).append(gpu.uuid)
    absent = sorted(numbers - set(by_minor))
    if absent:
        return Attribution(None, f"{name}={value}, and no GPU that may be opened has the device number {absent[0]}")
    if any(len(by_minor[number]) > 1 for number in numbers):
        return Attribution(None, f"{name}={value} names GPUs that are split (MIG): UUIDs would tell")
    return Attribution([by_minor[number][0] for number in sorted(numbers)], f"{name}, by device number")
