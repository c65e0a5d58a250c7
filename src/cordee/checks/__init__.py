"""Questions about a node, each asked in a process that can be killed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Optional

from cordee.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result
from cordee.errors import UsageError

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

__all__ = [
    "CHECKS",
    "CannotTest",
    "Check",
    "Comparison",
    "Context",
    "Parameter",
    "Result",
    "checks_for",
    "load_check",
    "run_checks",
    "unknown_result",
]


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
        import difflib

        near = difflib.get_close_matches(str(name), CHECKS, 1)
        raise UsageError(
            "there is no check of this name",
            given=name,
            allowed=sorted({*CHECKS, *(classes or {})}),
            next=f"did you mean {near[0]}?" if near else "choose one of these",
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


def run_checks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Run all checks of a request side by side and return one result document for each, in the order of the request.

    Args:
        request: `checks` (each with `check`, and perhaps `parameters` and `required`), `deadline_s` for all of them,
            and perhaps `env`, `workdir` and `run_folder` of the ranks, and `asked_at`, the monotonic time at which it was
            asked: the deadline counts from then, however long it took until the checks could begin.

    Raises:
        UsageError: the request is wrong (a mistyped check or parameter); nothing was run.
    """
    from cordee.checks.running import run

    return run(request)


def checks_for(
    vet: dict[str, Any], run_folder: str, python_argv0: str, env: Optional[dict[str, str]] = None
) -> list[dict[str, Any]]:
    """Return the checks that the `vet` table of a plan asks for.

    Args:
        vet: the table.
        run_folder: the run's folder: the ranks must be able to write there.
        python_argv0: first word of the ranks' command; tells which Python must have the modules.
        env: variables on top of the environment that the request gives.
    """
    extra = {"env": env} if env else {}
    wanted: list[dict[str, Any]] = [
        {"check": "host.memory", "parameters": {"min_bytes": vet["min_memory_bytes"]}},
        {"check": "host.disk", "parameters": {"run_folder": run_folder, "min_bytes": vet["min_disk_bytes"], **extra}},
        {"check": "host.load", "parameters": {"max_ratio": vet["max_load_ratio"]}},
    ]
    if vet["commands"]:
        wanted.append({"check": "host.commands", "parameters": {"commands": vet["commands"], **extra}})
    if vet["modules"]:
        modules = {"modules": vet["modules"], "python": python_argv0, **extra}
        wanted.append({"check": "host.modules", "parameters": modules})
    return wanted


def unknown_result(entry: dict[str, Any], evidence: str, cause: str) -> dict[str, Any]:
    """Return the result of a check that did not come to run, as a document.

    Args:
        entry: the check as in a request.
        evidence: why, for a person.
        cause: one of `cordee.checks._base.CAUSES`.
    """
    result = Result(entry["check"], "unknown", evidence=evidence, cause=cause)
    result.name, result.required = entry.get("name") or entry["check"], bool(entry.get("required", True))
    return result.document()
