"""GPUs that are not there: a library with NVML's interface, built from C, that answers from a text file.

Whatever asks NVML through `libnvidia-ml.so.1` gets its answers, as it would from a driver's library. The loader looks at
LD_LIBRARY_PATH when a process starts, so the library holds for children that are started with `FakeGpus.env`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from cordee.core.errors import CordeeError, UsageError

SOURCE = Path(__file__).with_name("fake_nvml") / "nvml.c"
LIBRARY = "libnvidia-ml.so.1"
Value = int | float | str | None

_GIB = 1 << 30
# What a healthy, idle device says; clocks in MHz, memory in bytes, temperatures in degrees Celsius.
HEALTHY: dict[str, Value] = {
    "name": "NVIDIA H100 80GB HBM3",
    "mig_mode": 0,
    "memory_total": 80 * _GIB,
    "memory_used": 4 << 20,
    "memory_reserved": 600 << 20,
    "temperature": 35,
    "temperature_slowdown": 87,
    "temperature_shutdown": 92,
    "throttle_reasons": 1,
    "clock_sm": 345,
    "clock_sm_max": 1980,
    "power_mw": 70_000,
    "power_limit_mw": 700_000,
    "utilization_gpu": 0,
    "utilization_memory": 0,
    "ecc_mode": 1,
    "ecc_mode_pending": 1,
    "ecc_corrected": 0,
    "ecc_uncorrectable": 0,
    "ecc_aggregate_corrected": 0,
    "ecc_aggregate_uncorrectable": 0,
    "sram_threshold_exceeded": 0,
    "remap_corrected": 0,
    "remap_uncorrectable": 0,
    "remap_pending": 0,
    "remap_failure": 0,
    "remap_banks": "2560 2560 0 0 0",
    "retired_single_bit": None,
    "retired_double_bit": None,
    "retired_pending": None,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "fabric_state": None,
    "fabric_status": None,
    "fabric_health_mask": None,
    "memory_temperature": 45,
    "recovery_action": 0,
    "energy": 1,
    "violation_power": 0,
    "violation_thermal": 0,
    "cores": 16896,
    "capability_major": 9,
    "capability_minor": 0,
    "gpm": 1,
    "xid": None,
}
_NAMES = ("uuid", "minor", "pci_bus_id", *HEALTHY)
# Values that NVML gives as fields, by their number in nvml.h.
_FIELDS = {"memory_temperature": 82, "recovery_action": 230}
_SYSTEM_NAMES = ("driver_version", "nvml_version", "cuda_driver_version", "count", "gpm_strict")
_INSTANCE_NAMES = ("uuid", "memory_total", "memory_used", "sm_count", "slices")
# An instance of a seventh of an H100 80GB (1g.10gb), as NVIDIA's MIG user guide has it.
_INSTANCE: dict[str, Value] = {"memory_total": 10 * _GIB, "memory_used": 0, "sm_count": 16, "slices": 1}
_LINK_NAMES = ("active", "replay", "recovery", "crc_flit", "crc_data")


def build(folder: Path | str, name: str = LIBRARY) -> Path:
    """Compile the library into `folder`, unless this version of it is there, and return the folder.

    Args:
        name: the library's file and soname: of another one than NVML's own a process may hold many, each with its state.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    folder = Path(folder)
    mark = folder / f".built-{name}"
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    if mark.is_file() and mark.read_text() == version:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=folder, prefix=".library-")
    os.close(descriptor)
    command = ["cc", "-O1", "-std=gnu11", "-Wall", "-Werror", "-Wno-format-truncation", "-fPIC", "-shared"]
    try:
        done = subprocess.run(
            [*command, "-Wl,-soname," + name, "-o", partial, str(SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CordeeError(f"no C compiler: {error}", given="cc", next="install gcc") from None
    if done.returncode:
        raise CordeeError(f"the fake NVML cannot be compiled: {done.stderr.strip()[-2000:]}")
    os.chmod(partial, 0o755)
    os.replace(partial, folder / name)
    mark.write_text(version)
    return folder


class FakeGpus:
    """The GPUs of one node, as a file that the library reads; every method writes it and returns the object.

    Args:
        folder: where the files lie and, below `library`, the library.
        count: healthy devices to begin with.
        node: whose GPUs they are; None: those of every node that has no file of its own.
        library: a folder that `build` returned, to compile it once for many.
    """

    def __init__(
        self, folder: Path | str, count: int = 0, node: str | None = None, library: Path | str | None = None
    ) -> None:
        self.folder = Path(folder)
        self.library = build(library or self.folder / "library")
        self._states = self.folder / "gpus"
        self._states.mkdir(parents=True, exist_ok=True)
        self._node = node
        self._values: dict[str, Value] = {
            "driver_version": "550.54.15",
            "nvml_version": "12.550.54.15",
            "cuda_driver_version": 12040,
            "count": 0,
        }
        for index in range(count):
            self.device(index)
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """The variables that put the library in front of a process that is started with them."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        path = [str(self.library), *([inherited] if inherited else [])]
        return {"FAKE_NVML": str(self._states), "LD_LIBRARY_PATH": os.pathsep.join(path)}

    def on(self, node: str) -> FakeGpus:
        """Return the GPUs of one node, which begin as a copy of these."""
        other = FakeGpus(self.folder, node=node, library=self.library)
        other._values = dict(self._values)
        for key, value in self._values.items():
            if key.endswith(".uuid"):
                other._values[key] = _uuid(f"{node} {value}")
        other._write()
        return other

    def uuid(self, index: int) -> str:
        """Return the UUID of a device."""
        return str(self._values[f"device.{index}.uuid"])

    def system(self, **values: Value) -> FakeGpus:
        """Set `driver_version`, `nvml_version`, `cuda_driver_version`, `count` or `gpm_strict`; None: NVML does not say."""
        _only(values, _SYSTEM_NAMES, "the system")
        return self._set("", values)

    def device(self, index: int, **values: Value) -> FakeGpus:
        """Set what a device says, beginning with a healthy one; "10+5" grows by 5 with every question, None: not supported.

        Raises:
            UsageError: there is no such value; says which there are.
        """
        _only(values, _NAMES, "a device")
        if f"device.{index}.uuid" not in self._values:
            self._values["count"] = max(int(self._values["count"] or 0), index + 1)
            values = {**HEALTHY, **_place(f"{self._node} {index}", index), **values}
        named = {f"field.{_FIELDS[name]}" if name in _FIELDS else name: value for name, value in values.items()}
        return self._set(f"device.{index}.", named)

    def links(self, index: int, count: int = 18) -> FakeGpus:
        """Give a device active NVLinks without errors."""
        for link in range(count):
            self.link(index, link, active=1, replay=0, recovery=0, crc_flit=0, crc_data=0)
        return self

    def link(self, index: int, link: int, **values: Value) -> FakeGpus:
        """Set what a device says of one NVLink: `active`, `replay`, `recovery`, `crc_flit`, `crc_data`."""
        _only(values, _LINK_NAMES, "a link")
        return self._set(f"device.{index}.nvlink.{link}.", values)

    def field(self, index: int, number: int, value: Value, scope: int = 0) -> FakeGpus:
        """Set a field value by its number in nvml.h; `scope` is the link, where it belongs to one."""
        return self._set(f"device.{index}.", {f"field.{number}.{scope}" if scope else f"field.{number}": value})

    def gpm(self, index: int, values: dict[int, Value], instance: int | None = None) -> FakeGpus:
        """Set GPM metrics of a device or of a GPU instance by their ids in nvml.h: percent or MiB/s; None: not supported."""
        prefix = f"device.{index}." if instance is None else f"device.{index}.mig.{instance}."
        return self._set(prefix, {f"gpm.{number}": value for number, value in values.items()})

    def instance(self, index: int, number: int, **values: Value) -> FakeGpus:
        """Set what a GPU instance (MIG) says, beginning with 1g.10gb of an H100; the device's MIG mode is turned on."""
        _only(values, _INSTANCE_NAMES, "a GPU instance")
        prefix = f"device.{index}.mig.{number}."
        if f"{prefix}uuid" not in self._values:
            uuid = "MIG" + _uuid(f"{self._node} {index} {number}").removeprefix("GPU")
            values = {"uuid": uuid, **_INSTANCE, **values}
        self._values[f"device.{index}.mig_mode"] = 1
        return self._set(prefix, values)

    def instance_uuid(self, index: int, number: int) -> str:
        """Return the UUID of a GPU instance."""
        return str(self._values[f"device.{index}.mig.{number}.uuid"])

    def cost(self, function: str, microseconds: int) -> FakeGpus:
        """Have a function of NVML compute for so long in every call, as a driver does."""
        return self._set("", {f"cost_us.{function}": microseconds})

    def process(self, index: int, pid: int, used_bytes: int = 0, graphics: bool = False) -> FakeGpus:
        """Add a process to a device; its memory is not added to `memory_used`."""
        kind = "graphics_process" if graphics else "process"
        there = sum(key.startswith(f"device.{index}.{kind}.") for key in self._values)
        return self._set(f"device.{index}.{kind}.", {str(there): f"{pid} {used_bytes}"})

    def error(self, function: str, code: int | None, device: int | None = None) -> FakeGpus:
        """Have a function of NVML return an error, for all or for one device; the function `*`: all of a device.

        Args:
            function: as the library exports it: `nvmlInitWithFlags`, `nvmlDeviceGetHandleByIndex_v2`.
            code: of nvml.h: 4 no permission, 9 driver not loaded, 15 GPU is lost, 18 version mismatch, 999 unknown; None: no error
                any more.
            device: which.
        """
        return self._set(_of(device), {f"error.{function}": code})

    def hang(self, function: str, device: int | None = None) -> FakeGpus:
        """Have a function of NVML never return."""
        return self._set(_of(device), {f"hang.{function}": 1})

    def _set(self, prefix: str, values: dict[str, Value]) -> FakeGpus:
        self._values.update({prefix + name: value for name, value in values.items()})
        self._write()
        return self

    def _write(self) -> None:
        lines = [f"{key} = {value}\n" for key, value in self._values.items() if value is not None]
        target = self._states / f"{self._node or 'default'}.txt"
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_text("".join(lines))
        partial.replace(target)


def _place(seed: str, index: int) -> dict[str, Value]:
    return {"uuid": _uuid(seed), "minor": index, "pci_bus_id": f"00000000:{16 + index:02X}:00.0"}


def _of(device: int | None) -> str:
    return "" if device is None else f"device.{device}."


def _uuid(seed: str) -> str:
    digits = hashlib.sha256(seed.encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _only(values: dict[str, Value], allowed: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(values) - set(allowed))
    if unknown:
        raise UsageError(
            f"{where} of the fake NVML has no such value", given=", ".join(unknown), allowed=sorted(allowed)
        )
