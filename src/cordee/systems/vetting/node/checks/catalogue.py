"""The checks that there are, by name, and how one is loaded: ours, or those of other people."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Optional

from cordee.core.errors import UsageError
from cordee.core.words import did_you_mean
from cordee.systems.vetting.node.checks._base import Check

CHECKS = {
    "command": "cordee.systems.vetting.node.checks.command:CommandCheck",
    "gpu.allreduce": "cordee.systems.vetting.node.checks.gpu.allreduce:AllreduceCheck",
    "gpu.copy": "cordee.systems.vetting.node.checks.gpu.copy:CopyCheck",
    "gpu.cuda": "cordee.systems.vetting.node.checks.gpu.cuda:CudaCheck",
    "gpu.gemm": "cordee.systems.vetting.node.checks.gpu.gemm:GemmCheck",
    "gpu.memory_bandwidth": "cordee.systems.vetting.node.checks.gpu.memory_bandwidth:MemoryBandwidthCheck",
    "host.clock": "cordee.systems.vetting.node.checks.host.clock:ClockCheck",
    "gpu.ecc": "cordee.systems.vetting.node.checks.gpu.ecc:EccCheck",
    "gpu.inventory": "cordee.systems.vetting.node.checks.gpu.inventory:GpuInventoryCheck",
    "gpu.nvlink": "cordee.systems.vetting.node.checks.gpu.nvlink:NvlinkCheck",
    "gpu.pcie": "cordee.systems.vetting.node.checks.gpu.pcie:PcieCheck",
    "gpu.residue": "cordee.systems.vetting.node.checks.gpu.residue:ResidueCheck",
    "gpu.temperature": "cordee.systems.vetting.node.checks.gpu.temperature:TemperatureCheck",
    "gpu.throttle": "cordee.systems.vetting.node.checks.gpu.throttle:ThrottleCheck",
    "gpu.xid": "cordee.systems.vetting.node.checks.gpu.xid:XidCheck",
    "host.commands": "cordee.systems.vetting.node.checks.host.commands:CommandsCheck",
    "host.disk": "cordee.systems.vetting.node.checks.host.disk:DiskCheck",
    "host.edac": "cordee.systems.vetting.node.checks.host.edac:EdacCheck",
    "host.environment": "cordee.systems.vetting.node.checks.host.environment:EnvironmentCheck",
    "host.fingerprint": "cordee.systems.vetting.node.checks.host.fingerprint:FingerprintCheck",
    "host.internet": "cordee.systems.vetting.node.checks.host.internet:InternetCheck",
    "host.inventory": "cordee.systems.vetting.node.checks.host.inventory:InventoryCheck",
    "host.load": "cordee.systems.vetting.node.checks.host.load:LoadCheck",
    "host.memory": "cordee.systems.vetting.node.checks.host.memory:MemoryCheck",
    "host.modules": "cordee.systems.vetting.node.checks.host.modules:ModulesCheck",
    "host.processes": "cordee.systems.vetting.node.checks.host.processes:ProcessesCheck",
    "link.errors": "cordee.systems.vetting.node.checks.link.errors:LinkErrorsCheck",
    "link.state": "cordee.systems.vetting.node.checks.link.state:LinkStateCheck",
    "pair.bandwidth": "cordee.systems.vetting.node.checks.pair.bandwidth:PairCheck",
    "storage.free": "cordee.systems.vetting.node.checks.storage.free:FreeCheck",
    "storage.mount": "cordee.systems.vetting.node.checks.storage.mount:MountCheck",
    "storage.read": "cordee.systems.vetting.node.checks.storage.read:ReadCheck",
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
