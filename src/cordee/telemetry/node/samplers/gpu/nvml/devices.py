"""Which GPUs and MIG instances NVML shows, and what they are."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

from cordee.machine.gpus.model import bus_id
from cordee.telemetry.node.samplers.gpu._base import SourceUnavailable, chosen
from cordee.telemetry.node.samplers.gpu.nvml.library import NO_PERMISSION, SUCCESS, Attributes, Memory, Nvml

_UNSEEN = "NVML does not show it: it fell off the bus, or a cgroup or container hides it"


@dataclass
class SampledDevice:
    """One GPU or MIG instance.

    Attributes:
        handle: NVML's, None while it cannot be had.
        whole: the handle of the GPU that it is a part of; its own for a whole GPU.
        instance: the id of the GPU instance, None for a whole GPU.
        parent: the UUID of the GPU that an instance is part of.
        share: the part of the GPU's SMs that it has.
        lost: why it does not answer, None when it does.
    """

    uuid: str
    handle: Optional[ctypes.c_void_p] = None
    whole: Optional[ctypes.c_void_p] = None
    index: Optional[int] = None
    minor: Optional[int] = None
    model: str = ""
    bus: Optional[str] = None
    instance: Optional[int] = None
    parent: str = ""
    share: Optional[float] = 1.0
    memory_bytes: Optional[int] = None
    lost: Optional[str] = None
    facts: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return the facts of the device; those that are not known are left out."""
        known = {
            "uuid": self.uuid,
            "model": self.model or None,
            "index": self.index,
            "pci_bus_id": self.bus,
            "parent": self.parent or None,
            "instance": self.instance,
            "share": self.share,
            "memory_bytes": self.memory_bytes,
        }
        return {
            **{name: value for name, value in known.items() if value is not None},
            **self.facts,
            "lost": self.lost or "",
        }


@dataclass
class ShownDevices:
    """What NVML shows to this process.

    Attributes:
        devices: whole GPUs, or their instances where MIG is on.
        hidden: how many GPUs of the node this process may not open (a cgroup keeps them from it).
        remarks: what is odd.
    """

    devices: list[SampledDevice]
    hidden: int
    remarks: list[str]


def show(nvml: Nvml) -> ShownDevices:
    """Return all devices that this process may use.

    Raises:
        SourceUnavailable: not even their number is told.
    """
    count = nvml.number("nvmlDeviceGetCount_v2")
    if count is None:
        raise SourceUnavailable("NVML does not tell the number of GPUs")
    shown = ShownDevices([], 0, [])
    for index in range(count):
        handle = ctypes.c_void_p()
        code = nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        if code == NO_PERMISSION:
            shown.hidden += 1
        elif code != SUCCESS:
            shown.remarks.append(f"GPU {index} of this node does not answer ({nvml.words(code)}) and is not measured")
        else:
            _add(nvml, shown, index, handle)
    return shown


def select(nvml: Nvml, wanted: Optional[Sequence[str]]) -> tuple[list[SampledDevice], list[str]]:
    """Return the wanted devices and remarks; one that NVML does not show now is there as lost, as long as one is not.

    Raises:
        SourceUnavailable: there is none.
    """
    shown = show(nvml)
    by_uuid = {device.uuid: device for device in shown.devices}
    found, absent = chosen(_instances_of(wanted, shown.devices), list(by_uuid))
    if not found:
        raise SourceUnavailable("NVML shows no GPU" + _instead(wanted, shown))
    devices = [by_uuid[uuid] for uuid in found]
    devices += [SampledDevice(uuid, share=None, lost=_UNSEEN) for uuid in absent]
    return devices, shown.remarks + [f"{uuid} was given to the job and is not measured: {_UNSEEN}" for uuid in absent]


def find_again(nvml: Nvml, device: SampledDevice) -> bool:
    """Take new handles of a device that was lost; return whether there are any."""
    for place in select_one(nvml, device.uuid):
        device.handle, device.whole, device.lost = place.handle, place.whole, None
        device.index, device.model, device.bus = place.index, place.model, place.bus
        device.share, device.memory_bytes = place.share, place.memory_bytes
        device.instance, device.parent = place.instance, place.parent
        return True
    return False


def select_one(nvml: Nvml, uuid: str) -> list[SampledDevice]:
    """Return the device of this UUID, or none."""
    try:
        return [device for device in show(nvml).devices if device.uuid == uuid]
    except SourceUnavailable:
        return []


def _add(nvml: Nvml, shown: ShownDevices, index: int, handle: ctypes.c_void_p) -> None:
    uuid = nvml.text("nvmlDeviceGetUUID", handle)
    if uuid is None:
        shown.remarks.append(f"GPU {index} of this node does not tell its UUID and is not measured")
        return
    gpu = SampledDevice(
        uuid,
        handle,
        handle,
        index,
        minor=nvml.number("nvmlDeviceGetMinorNumber", handle),
        model=nvml.text("nvmlDeviceGetName", handle) or "",
        bus=_bus(nvml, handle),
        memory_bytes=_memory_bytes(nvml, handle),
    )
    gpu.facts.update(_numa(gpu.bus))
    if not _mig(nvml, handle):
        shown.devices.append(gpu)
        return
    parts = _instances(nvml, gpu)
    if not parts:
        shown.remarks.append(
            f"GPU {index} ({uuid}) is in MIG mode and has no instance for this job: it is not measured"
        )
    shown.devices += parts


def _mig(nvml: Nvml, handle: ctypes.c_void_p) -> bool:
    now, next_boot = ctypes.c_uint(), ctypes.c_uint()
    code = nvml.call("nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(next_boot))
    return code == SUCCESS and now.value == 1


def _instances(nvml: Nvml, gpu: SampledDevice) -> list[SampledDevice]:
    found: list[SampledDevice] = []
    for number in range(nvml.number("nvmlDeviceGetMaxMigDeviceCount", gpu.handle) or 0):
        handle = ctypes.c_void_p()
        if nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, ctypes.c_uint(number), ctypes.byref(handle)):
            continue
        uuid = nvml.text("nvmlDeviceGetUUID", handle)
        instance = nvml.number("nvmlDeviceGetGpuInstanceId", handle)
        if uuid is None or instance is None:
            continue
        part = SampledDevice(uuid, handle, gpu.handle, gpu.index, gpu.minor, gpu.model, gpu.bus, instance, gpu.uuid)
        part.facts.update(gpu.facts)
        _size(nvml, part)
        found.append(part)
    shared = {part.instance for part in found if sum(part.instance == other.instance for other in found) > 1}
    for part in found:
        if part.instance in shared:
            part.facts["scope"] = "counters are those of the whole GPU instance, which several compute instances share"
    return found


def _size(nvml: Nvml, part: SampledDevice) -> None:
    """Set the instance's memory and its share of the SMs; by slices where the number of SMs is not told."""
    attributes = Attributes()
    part.share = None
    if nvml.call("nvmlDeviceGetAttributes_v2", part.handle, ctypes.byref(attributes)) != SUCCESS:
        part.memory_bytes = _memory_bytes(nvml, part.handle)
        return
    part.memory_bytes = attributes.memory_mib << 20
    sms = _sms(nvml, part.whole)
    slices = nvml.number("nvmlDeviceGetMaxMigDeviceCount", part.whole)
    if sms and attributes.sms:
        part.share = min(1.0, attributes.sms / sms)
    elif slices and attributes.slices:
        part.share = min(1.0, attributes.slices / slices)


def _sms(nvml: Nvml, handle: Optional[ctypes.c_void_p]) -> Optional[int]:
    """Return the SMs of a GPU: its cores by the cores of an SM, which are 64 on compute capability 8.0, else 128."""
    cores = nvml.number("nvmlDeviceGetNumGpuCores", handle)
    major, minor = ctypes.c_int(), ctypes.c_int()
    asked = nvml.call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    if not cores or asked != SUCCESS or major.value < 8:
        return None
    return cores // (64 if (major.value, minor.value) == (8, 0) else 128)


def _memory_bytes(nvml: Nvml, handle: Optional[ctypes.c_void_p]) -> Optional[int]:
    memory = Memory()
    return int(memory.total) if nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory)) == SUCCESS else None


def _bus(nvml: Nvml, handle: ctypes.c_void_p) -> Optional[str]:
    """Return the PCI address; nvmlPciInfo_t: 16 bytes of an older address, five unsigned ints, 32 bytes of the address."""
    info = ctypes.create_string_buffer(16 + 5 * 4 + 32)
    if nvml.call("nvmlDeviceGetPciInfo_v3", handle, info) != SUCCESS:
        return None
    return bus_id(info.raw[36:].split(b"\0", 1)[0].decode(errors="replace"))


def _numa(bus: Optional[str]) -> dict[str, int]:
    """Return the NUMA node that the GPU is near to, as `numa`; nothing where the machine has none or does not tell."""
    try:
        with open(f"/sys/bus/pci/devices/{bus}.0/numa_node") as file:
            node = int(file.read())
    except (OSError, ValueError):
        return {}
    return {"numa": node} if node >= 0 else {}


def _instances_of(wanted: Optional[Sequence[str]], devices: Sequence[SampledDevice]) -> Optional[list[str]]:
    """Return the wanted names, those of a GPU in MIG mode replaced by its instances, older names of instances by UUIDs."""
    if wanted is None:
        return None
    found: list[str] = []
    for name in wanted:
        older = name[len("MIG-") :].split("/") if name.startswith("MIG-GPU-") else []
        parts = [
            device.uuid
            for device in devices
            if device.parent
            and (device.parent == name or (len(older) == 3 and [device.parent, str(device.instance)] == older[:2]))
        ]
        found += parts or [name]
    return found


def _instead(wanted: Optional[Sequence[str]], shown: ShownDevices) -> str:
    words = [] if wanted is None else [f" of those given to this job ({', '.join(wanted) or 'none'})"]
    if shown.devices:
        words.append(f"; it shows {', '.join(device.uuid for device in shown.devices)}")
    if shown.hidden:
        words.append(f"; {shown.hidden} of the node may not be opened by this process (a cgroup keeps them from it)")
    return "".join(words + [f"; {remark}" for remark in shown.remarks])
