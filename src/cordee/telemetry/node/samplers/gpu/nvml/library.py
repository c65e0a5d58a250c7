"""NVML by ctypes: nothing to install, nothing to import, and calls that cost about a microsecond. Source: nvml.h."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from cordee.machine.gpus.nvml import REFUSALS, kernel_module
from cordee.telemetry.node.samplers.gpu._base import SourceUnavailable

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NOT_THERE, LOST, RESET = 0, 2, 3, 4, 6, 13, 15, 16
# The GPU as a whole does not answer: it is lost, or waits for a reset.
GONE = (LOST, RESET)
# It will be refused next time as well.
FOR_GOOD = (INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_THERE)
_VERSION_MISMATCH, _LIBRARY_NOT_FOUND = 18, 12


class Nvml:
    """The library, initialised.

    Args:
        library: its name or path.

    Raises:
        SourceUnavailable: it is not there or refuses; the text says why and what to do.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise SourceUnavailable(f"NVML: {REFUSALS[_LIBRARY_NOT_FOUND][1]}") from None
        self._functions: dict[str, Any] = {}
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        code = self.call("nvmlInit_v2")
        if code != SUCCESS:
            advice = REFUSALS.get(code, ("", ""))[1]
            versions = f" ({kernel_module()})" if code == _VERSION_MISMATCH else ""
            raise SourceUnavailable(": ".join(["NVML", self.words(code) + versions, *([advice] if advice else [])]))

    def function(self, name: str) -> Any:
        """Return a function that returns an error code: the library's, or one that says that this driver has none."""
        if name not in self._functions:
            self._functions[name] = getattr(self._library, name, _absent)
        return self._functions[name]

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function and return its error code."""
        return int(self.function(name)(*arguments))

    def words(self, code: int) -> str:
        """Return what the library says of an error code."""
        if code == NOT_THERE:
            return "this driver's NVML has no such function"
        return (self._library.nvmlErrorString(code) or b"error %d" % code).decode(errors="replace")

    def text(self, name: str, *arguments: Any) -> Optional[str]:
        """Return what a function writes into a buffer for text, None when it refuses."""
        buffer = ctypes.create_string_buffer(96)
        code = self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace") if code == SUCCESS else None

    def number(self, name: str, *arguments: Any) -> Optional[int]:
        """Return what a function writes into an unsigned int, None when it refuses."""
        value = ctypes.c_uint()
        return value.value if self.call(name, *arguments, ctypes.byref(value)) == SUCCESS else None

    def close(self) -> None:
        """Give the library back."""
        self.call("nvmlShutdown")


def _absent(*arguments: Any) -> int:
    return NOT_THERE


class Memory(ctypes.Structure):
    """`nvmlMemory_t`, bytes; here the driver's own share counts as used."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    """`nvmlMemory_v2_t`, bytes; the driver's own share is apart."""

    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


class Utilization(ctypes.Structure):
    """`nvmlUtilization_t`, percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Violation(ctypes.Structure):
    """`nvmlViolationTime_t`: when it was read, in microseconds, and for how long clocks were held down, in nanoseconds."""

    _fields_ = [("reference_us", ctypes.c_ulonglong), ("violation_ns", ctypes.c_ulonglong)]


class NvmlProcess(ctypes.Structure):
    """`nvmlProcessInfo_t`."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class FieldValue(ctypes.Structure):
    """`nvmlFieldValue_t`."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


class Attributes(ctypes.Structure):
    """`nvmlDeviceAttributes_t` of a MIG instance."""

    _fields_ = [
        *(
            (name, ctypes.c_uint)
            for name in ("sms", "copy_engines", "decoders", "encoders", "jpegs", "ofas", "slices", "compute_slices")
        ),
        ("memory_mib", ctypes.c_ulonglong),
    ]


class GpmSupport(ctypes.Structure):
    """`nvmlGpmSupport_t`."""

    _fields_ = [("version", ctypes.c_uint), ("supported", ctypes.c_uint)]
