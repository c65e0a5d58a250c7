"""vetnode's evaluation classes as aliases: what each becomes here.

Names, parameters, defaults and thresholds are those of vetnode 0.1.5. Its texts of sizes and bandwidths are powers of 1024
("4 GB", "15 GB/s"), and a plain number of `min_bandwidth` is in GB/s as in its published protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cordee.systems.vetting.node.checks import Parameter
from cordee.systems.vetting.protocol.values import Converter, WrongValue

_MOST_AT_ONCE = 256 << 20
_SIZE = re.compile(r"\s*(\d*\.?\d+)\s*([KMGTPE]?B|)\s*\Z", re.IGNORECASE)
_RATE = re.compile(r"\s*(\d*\.?\d+)\s*([KMGTPE]?B)/s\s*\Z", re.IGNORECASE)
_SIZE_FORMS = 'a number of bytes, or a size such as "4 GB" (powers of 1024 here, as in vetnode)'
_RATE_FORMS = 'a number of GB/s, or a text such as "15 GB/s" (powers of 1024 here, as in vetnode)'


@dataclass
class Expansion:
    """What an eval becomes: (check, parameters), settings of the test of pairs, and what is not quite the same."""

    checks: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    pairs: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Alias:
    """A class of vetnode: the question it asks, the types it becomes, its parameters, and how they become ours."""

    title: str
    becomes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    expand: Callable[[dict[str, Any]], Expansion]
    converters: Mapping[str, Converter] = field(default_factory=dict)


def _power(unit: str) -> int:
    return 1024 ** " KMGTPE".index(unit[0].upper()) if len(unit) == 2 else 1


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        match = _SIZE.match(value)
        if match:
            return int(float(match[1]) * _power(match[2]))
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60:
        return value
    raise WrongValue("is not a size", _SIZE_FORMS)


def _bytes_per_s(value: Any) -> float:
    if isinstance(value, str):
        match = _RATE.match(value)
        if match:
            return float(match[1]) * _power(match[2])
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
        return value * 1e9
    raise WrongValue("is not a bandwidth", _RATE_FORMS)


def _gpu(given: dict[str, Any]) -> Expansion:
    return Expansion(
        [
            ("gpu.inventory", {}),
            ("gpu.temperature", {"max_c": given["max_temp"]}),
            ("gpu.residue", {"max_used_ratio": given["max_used_memory"]}),
        ]
    )


def _cuda(given: dict[str, Any]) -> Expansion:
    return Expansion([("gpu.cuda", given)])


def _environment(given: dict[str, Any]) -> Expansion:
    return Expansion([("host.environment", {"expected": given.get("expected", {})})])


def _internet(given: dict[str, Any]) -> Expansion:
    return Expansion([("host.internet", given)])


def _nccl(given: dict[str, Any]) -> Expansion:
    """All GPUs of a node become gpu.allreduce; what goes over the network, the test of pairs."""
    topology, method = given.get("topology", "full"), given["method"]
    threshold, payload = given["min_bandwidth"], given["payload"]
    found = Expansion()
    on_nodes = {"device": "gpu", "min_bandwidth": threshold, "payload": payload}
    between = {"backend": "torch", "payload": min(payload, _MOST_AT_ONCE)}
    if topology == "internode" or method == "roundrobin":
        found.pairs = {**between, "min_bandwidth": threshold}
    elif topology == "intranode":
        found.checks.append(("gpu.allreduce", on_nodes))
        found.notes.append("it runs on every node, not on the first alone")
    else:
        found.checks.append(("gpu.allreduce", on_nodes))
        found.pairs = between
        found.notes.append(
            "min_bandwidth holds for the GPUs of each node; between nodes, pairs are compared with all other pairs, so "
            "that a slow node can be named (an eval pair.bandwidth sets a threshold for them)"
        )
    if method not in ("allreduce", "roundrobin"):
        found.notes.append(f"method {method} is measured as an all-reduce")
    if found.pairs and payload > _MOST_AT_ONCE:
        found.notes.append(f"between nodes {_MOST_AT_ONCE >> 20} MiB are sent at once, again and again")
    if given.get("warmup"):
        found.notes.append("warmup is not used: the check warms up by itself")
    return found


def _nccl_parameters(*more: Parameter) -> tuple[Parameter, ...]:
    return (
        Parameter("min_bandwidth", "bandwidth", "slowest bus bandwidth", default=15.0 * 1024**3, unit="bytes/s"),
        Parameter("payload", "size", "bytes of one message", default=4 << 30),
        Parameter("method", "text", "the collective", default="allreduce", choices=_METHODS),
        Parameter("warmup", "any", "payload and runs before it is measured"),
        Parameter("scheduler", "text", "who made the allocation", choices=("slurm", "openPBS", "standalone")),
        *more,
    )


_METHODS = ("broadcast", "roundrobin", "allreduce", "gather", "allreduce-gather")
_TOPOLOGY = Parameter("topology", "text", "which ranks take part", "full", choices=("intranode", "internode", "full"))
_NCCL_TITLE = "Do the GPUs reach the bandwidth of a collective, on each node and between nodes?"
GIBIBYTES_PER_S: Converter = _bytes_per_s
_SIZES: Mapping[str, Converter] = {"size": _bytes}
_NCCL = Alias(_NCCL_TITLE, ("gpu.allreduce", "pair.bandwidth"), _nccl_parameters(_TOPOLOGY), _nccl, _SIZES)
_PACKAGE = "vetnode.evaluations."

VETNODE: dict[str, Alias] = {
    f"{_PACKAGE}gpu_eval.GPUEval": Alias(
        "Are the GPUs there, cool and free?",
        (
            "gpu.inventory",
            "gpu.temperature",
            "gpu.residue",
        ),
        (
            Parameter("max_temp", "number", "temperature that is too hot", unit="°C", needed=True),
            Parameter("max_used_memory", "ratio", "largest share of memory in use", needed=True),
        ),
        _gpu,
    ),
    f"{_PACKAGE}nccl_pytorch_eval.NcclPytorchEval": _NCCL,
    f"{_PACKAGE}nccl_lib_eval.NcclLibEval": _NCCL,
    f"{_PACKAGE}rccl_lib_eval.RcclLibEval": _NCCL,
    f"{_PACKAGE}nccl_eval.NCCLEval": _NCCL,
    f"{_PACKAGE}nccl_eval.NCCEval": _NCCL,
    f"{_PACKAGE}cuda_eval.CUDAEval": Alias(
        "Does every GPU compute a saxpy right?",
        ("gpu.cuda",),
        (Parameter("cuda_home", "text", "folder of the CUDA toolkit"),),
        _cuda,
    ),
    f"{_PACKAGE}env_var_eval.EnvVarEval": Alias(
        "Are the environment variables as expected?",
        ("host.environment",),
        (Parameter("expected", "map", "variables with their values; null: any value"),),
        _environment,
    ),
    f"{_PACKAGE}internet_access.InternetAccessEval": Alias(
        "Can a host on the internet be reached?",
        ("host.internet",),
        (
            Parameter("host", "text", "name or address", needed=True),
            Parameter("port", "count", "TCP port", default=53),
            Parameter("timeout", "duration", "patience", default=3.0, unit="s"),
        ),
        _internet,
    ),
}
REFUSED = {f"{_PACKAGE}random.RandomEval": "RandomEval rolls dice: it says nothing about a node"}
