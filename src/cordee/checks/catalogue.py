"""The checks that there are, by name, and how one is loaded: ours, or those of other people."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Optional

from cordee.checks._base import Check
from cordee.errors import UsageError
from cordee.words import did_you_mean

CHECKS = {
    "command": "cordee.checks.command:CommandCheck",
    "gpu.allreduce": "cordee.checks.allreduce:AllreduceCheck",
    "gpu.copy": "cordee.checks.copy:CopyCheck",
    "gpu.cuda": "cordee.checks.cuda:CudaCheck",
    "gpu.gemm": "cordee.checks.gemm:GemmCheck",
    "gpu.memory_bandwidth": "cordee.checks.memory_bandwidth:MemoryBandwidthCheck",
    "host.clock": "cordee.checks.clock:ClockCheck",
    "gpu.ecc": "cordee.checks.gpu_ecc:EccCheck",
    "gpu.inventory": "cordee.checks.gpu_inventory:InventoryCheck",
    "gpu.nvlink": "cordee.checks.gpu_nvlink:NvlinkCheck",
    "gpu.pcie": "cordee.checks.gpu_pcie:PcieCheck",
    "gpu.residue": "cordee.checks.gpu_residue:ResidueCheck",
    "gpu.temperature": "cordee.checks.gpu_temperature:TemperatureCheck",
    "gpu.throttle": "cordee.checks.gpu_throttle:ThrottleCheck",
    "gpu.xid": "cordee.checks.gpu_xid:XidCheck",
    "host.commands": "cordee.checks.commands:CommandsCheck",
    "host.disk": "cordee.checks.disk:DiskCheck",
    "host.edac": "cordee.checks.edac:EdacCheck",
    "host.environment": "cordee.checks.environment:EnvironmentCheck",
    "host.fingerprint": "cordee.checks.fingerprint:FingerprintCheck",
    "host.internet": "cordee.checks.internet:InternetCheck",
    "host.inventory": "cordee.checks.inventory:InventoryCheck",
    "host.load": "cordee.checks.load:LoadCheck",
    "host.memory": "cordee.checks.memory:MemoryCheck",
    "host.modules": "cordee.checks.modules:ModulesCheck",
    "host.processes": "cordee.checks.processes:ProcessesCheck",
    "link.errors": "cordee.checks.link_errors:LinkErrorsCheck",
    "link.state": "cordee.checks.link_state:LinkStateCheck",
    "pair.bandwidth": "cordee.checks.pair:PairCheck",
    "storage.free": "cordee.checks.storage_free:FreeCheck",
    "storage.mount": "cordee.checks.storage_mount:MountCheck",
    "storage.read": "cordee.checks.storage_read:ReadCheck",
}


def load_check(name: str, classes: Optional[dict[str, str]] = None) -> Check:
    """Return the check of this name.

    Args:
        name: as in `CHECKS` or in `classes`.
        classes: checks of other people: by name, `module:Class` or `/path/to/file.py:Class`.

    Raises:
        UsageError: there is none (says the nearest name), or it cannot be loaded.
    """
    place = (classes or {}).get(name) or CHECKS.get(name)
    if place is None:
        raise UsageError(
            "there is no check of this name",
            given=name,
            allowed=sorted({*CHECKS, *(classes or {})}),
            next=did_you_mean(str(name), CHECKS, "choose one of these"),
        )
    module_name, _, attribute = place.rpartition(":")
    try:
        module = _load_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
        check: Check = getattr(module, attribute)()
    except Exception as error:
        if name in CHECKS:
            raise
        raise UsageError(f"the check {name} cannot be loaded: {type(error).__name__}: {error}", given=place) from None
    return check


def _load_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"cordee_check_{abs(hash(path))}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
