"""What NVIDIA's driver says of its GPUs, through NVML; values and their meaning are those of nvml.h."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, Iterable, Optional

from cordee.machine.gpus.model import Gpu, GpuSource, GpusUnreadable, MissingValue, bus_id
from cordee.machine.gpus.nvml_parts import READERS

_NO_PERMISSION, _LIBRARY_NOT_FOUND = 4, 12
# Why a value is missing, by NVML's error code: invalid argument (there is no such link), not supported, no such function.
_CAUSES = {2: "absent", 3: "absent", 13: "absent", 4: "closed"}
_LOST = {15: "GPU is lost", 16: "the GPU must be reset"}
_XID_EVENT, _MOST_XIDS = 8, 100
_RECOVERY_ACTION_FIELD = 230
_RECOVERY_ACTIONS = (
    "none",
    "reset",
    "reboot",
    "drain P2P",
    "drain and reset",
    "recover IMEX domain",
    "reset",
    "reboot",
)
_VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
# What is said when NVML cannot be opened, by its error code: cause and what to do.
REFUSALS = {
    4: ("closed", "this user may not open /dev/nvidiactl"),
    9: ("absent", "NVIDIA's kernel module is not loaded: no GPU on this node, or its driver did not start"),
    12: (
        "absent",
        "libnvidia-ml.so.1 is not there (no NVIDIA driver on this node, or not passed into the container)",
    ),
    18: (
        "error",
        "the library and the kernel module are of different versions: the driver was updated; reboot the node",
    ),
}


class NvmlSource(GpuSource):
    """NVML, opened.

    Raises:
        GpusUnreadable: NVML or its Python module is missing (`absent`), does not let us in (`closed`) or refuses (`error`).
    """

    vendor = "NVIDIA"

    def __init__(self) -> None:
        self._nvml = _module()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            cause, advice = REFUSALS.get(error.value, ("error", ""))
            versions = f" ({kernel_module()})" if error.value == 18 else ""
            words = [] if error.value == _LIBRARY_NOT_FOUND else [f"{error}{versions}"]
            raise GpusUnreadable(": ".join(["NVML", *words, *([advice] if advice else [])]), cause) from None
        self.driver_version = self._text("nvmlSystemGetDriverVersion")
        self.library_version = self._text("nvmlSystemGetNVMLVersion")
        self._events: Any = None
        self._uuids: dict[Optional[int], str] = {}

    def read(self, parts: Iterable[str] = ()) -> list[Gpu]:
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            cause = REFUSALS.get(error.value, ("error", ""))[0]
            raise GpusUnreadable(f"NVML does not tell the number of GPUs: {error}", cause) from None
        found = [self._read(index, tuple(parts)) for index in range(count)]
        return [gpu for gpu in found if gpu is not None]

    def xids(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        try:
            if self._events is None:
                self._listen()
            while self._events is not None and len(found) < _MOST_XIDS:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = self._uuids.get(ctypes.cast(event.device, ctypes.c_void_p).value)
                if uuid is not None and event.eventType == _XID_EVENT:
                    found.append((uuid, int(event.eventData)))
        except self._nvml.NVMLError:  # none is left, or this driver tells none
            pass
        return found

    def _listen(self) -> None:
        events = self._nvml.nvmlEventSetCreate()
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(self._nvml.nvmlDeviceGetUUID(handle))
                self._nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
            except self._nvml.NVMLError:  # it is not this job's, or has no events
                continue
            self._uuids[ctypes.cast(handle, ctypes.c_void_p).value] = uuid
        self._events = events

    def _read(self, index: int, parts: Iterable[str]) -> Optional[Gpu]:
        """Return a GPU, or None when it is not this job's: a container or a cgroup hides it."""
        gpu = Gpu(index)
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            if error.value == _NO_PERMISSION:
                return None
            gpu.lost = _LOST.get(error.value, str(error))
            return gpu
        device = NvmlDevice(self._nvml, handle, gpu)
        device.identify()
        for part in parts:
            READERS[part](device)
        return gpu

    def _text(self, function: str) -> Optional[str]:
        try:
            return str(getattr(self._nvml, function)())
        except self._nvml.NVMLError:
            return None


class NvmlDevice:
    """One GPU as it is read: values go into `gpu`, reasons for those that are missing into `gpu.missing`."""

    def __init__(self, nvml: Any, handle: Any, gpu: Gpu) -> None:
        self.nvml, self.handle, self.gpu = nvml, handle, gpu

    def identify(self) -> None:
        """Read what tells the GPU from others, and whether the driver wants it repaired."""
        self.take("uuid", "nvmlDeviceGetUUID")
        self.take("name", "nvmlDeviceGetName")
        self.take("pci_bus_id", "nvmlDeviceGetPciInfo", convert=lambda info: bus_id(info.busId))
        self.take("mig", "nvmlDeviceGetMigMode", convert=lambda mode: bool(mode[0]))
        self.take_field("recovery_action", _RECOVERY_ACTION_FIELD, convert=_recovery_action)

    def ask(self, name: str, function: str, *arguments: Any) -> Any:
        """Return what a function says of this GPU; None with a reason under `name` when it does not."""
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except AttributeError:
            self.gpu.missing[name] = MissingValue(f"this nvidia-ml-py has no {function}", "absent")
        except self.nvml.NVMLError as error:
            if error.value in _LOST:
                self.gpu.lost = _LOST[error.value]
            self.gpu.missing[name] = MissingValue(f"NVML: {error}", _CAUSES.get(error.value, "error"))
        return None

    def take(self, name: str, function: str, *arguments: Any, convert: Optional[Callable[[Any], Any]] = None) -> None:
        """Set an attribute of the GPU to what a function says."""
        answer = self.ask(name, function, *arguments)
        if answer is not None:
            setattr(self.gpu, name, convert(answer) if convert else answer)

    def field(self, name: str, field: int, scope: int = 0) -> Optional[int]:
        """Return a field value; `scope` is the link, where it belongs to one."""
        answer = self.ask(name, "nvmlDeviceGetFieldValues", [(field, scope)])
        if answer is None:
            return None
        value = answer[0]
        if value.nvmlReturn or value.valueType >= len(_VALUE_TYPES):
            words = self.nvml.NVMLError(value.nvmlReturn) if value.nvmlReturn else f"value of type {value.valueType}"
            self.gpu.missing[name] = MissingValue(f"NVML: {words}", "absent")
            return None
        return int(getattr(value.value, _VALUE_TYPES[value.valueType]))

    def take_field(self, name: str, field: int, convert: Optional[Callable[[int], Any]] = None) -> None:
        """Set an attribute of the GPU to a field value."""
        answer = self.field(name, field)
        if answer is not None:
            setattr(self.gpu, name, convert(answer) if convert else answer)


def _recovery_action(number: int) -> str:
    return _RECOVERY_ACTIONS[number] if number < len(_RECOVERY_ACTIONS) else f"action {number}"


def _module() -> Any:
    """Return nvidia-ml-py, or the copy of it that travels in a run's zip."""
    try:
        import pynvml  # deferred: only a check that asks GPUs needs it

        return pynvml
    except ImportError:
        pass
    import importlib

    try:
        return importlib.import_module("cordee.machine._bundled_pynvml")
    except ImportError:
        text = f"nvidia-ml-py, which asks NVML, is not installed for {sys.executable}: pip install nvidia-ml-py"
        raise GpusUnreadable(text, "absent") from None


def kernel_module() -> str:
    """Return the first line of what NVIDIA's kernel module says of its version, or words when it says nothing."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().strip()
    except OSError:
        return "the kernel module does not tell its version"
