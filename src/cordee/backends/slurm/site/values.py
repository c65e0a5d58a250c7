"""What Slurm says of itself as the values of a cluster profile."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

from cordee.backends.slurm.node.commands import parse_records
from cordee.backends.slurm.site.ask import Answers
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes
from cordee.core.units import parse_duration

_ENDLESS = frozenset(["", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "-1"])
_NOT_UP = frozenset(
    ["down", "drained", "draining", "drain", "fail", "failing", "error", "unknown", "inval", "future", "maint"]
)
_MARKS = "*~#!%$@^-+"
_GRES = re.compile(r"gpu(?::([^:=]+?))?(?::(\d+)([KMG]?))?\Z", re.IGNORECASE)
_MIB = 1 << 20
_STATES = {"UP": "up", "DOWN": "down", "DRAIN": "drain", "INACTIVE": "inactive"}


def site_values(answers: Answers) -> dict[str, Any]:
    """Return the values of a profile for what Slurm said; what it did not say is not in it."""
    config = config_of(answers)
    name = config.get("ClusterName", "")
    values: dict[str, Any] = {
        "scheduler": "slurm",
        "answering": name or "unknown",
        "slurm_version": config.get("SLURM_VERSION"),
        "partitions": _partitions(answers, config),
        "nodes_elsewhere": _elsewhere(answers),
    }
    enforced = config.get("AccountingStorageEnforce", "none").split(",")
    if "reservations" in answers.texts:
        records = parse_records(answers.texts["reservations"])
        values["reservations"] = [record["ReservationName"] for record in records if "ReservationName" in record]
    if "user" in answers.texts and "associations" in enforced:
        values["accounts"] = accounts_of(answers, limits="limits" in enforced)
    if "qos" in answers.texts and "qos" in enforced:
        values["qos"] = qos_of(answers, limits="limits" in enforced)
    return values


def config_of(answers: Answers) -> dict[str, str]:
    """Return `scontrol show config` as a dictionary."""
    pairs = (line.partition("=") for line in answers.texts["config"].splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def accounts_of(answers: Answers, *, limits: bool = True) -> dict[str, Any]:
    """Return `[accounts]` of this person; rows of one account for several partitions are joined."""
    cluster = config_of(answers).get("ClusterName", "")
    found: dict[str, dict[str, Any]] = {}
    open_to_all: set[str] = set()
    for row in _rows(answers.texts.get("user", ""), 11):
        _, default, at, account, partition, qos, default_qos, wall, submit, jobs, tres = row
        if not account or (cluster and at.lower() != cluster.lower()):
            continue
        entry = found.setdefault(account, {"qos": [], "default": account == default})
        entry["qos"] = list(dict.fromkeys([*entry["qos"], *_names(qos)]))
        if default_qos and "default_qos" not in entry:
            entry["default_qos"] = default_qos
        if partition:
            entry["partitions"] = [*entry.get("partitions", []), partition]
            continue
        open_to_all.add(account)
        if limits:
            entry.update(_limits(wall, submit, jobs, tres))
    for account in open_to_all:
        found[account].pop("partitions", None)
    return found


def qos_of(answers: Answers, *, limits: bool = True) -> dict[str, Any]:
    """Return `[qos]` with the limits of one job and of one person."""
    found: dict[str, Any] = {}
    for name, wall, submit, jobs, tres, _, flags in _rows(answers.texts.get("qos", ""), 7):
        found[name] = _limits(wall, submit, jobs, tres) if limits else {}
        if "PartitionTimeLimit" in flags:
            found[name]["over_partition"] = True
    return found


def duration_of(text: str) -> float | None:
    """Return the seconds of a time limit as Slurm writes it, None when there is none."""
    if text.strip().upper() in _ENDLESS or text.strip() in _ENDLESS:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _partitions(answers: Answers, config: dict[str, str]) -> dict[str, Any]:
    groups = _groups(answers)
    found: dict[str, Any] = {}
    for record in parse_records(answers.texts["partitions"]):
        name = record.get("PartitionName", "")
        if not name:
            continue
        kinds = _capped(groups.get(name, []), record, config)
        entry: dict[str, Any] = {
            "default": record.get("Default") == "YES",
            "state": _STATES.get(record.get("State", "UP"), "up"),
            "nodes": sum(kind["nodes"] for kind in kinds),
            "up": sum(kind["up"] for kind in kinds),
            **_smallest(kinds),
        }
        if len(kinds) > 1:
            entry["groups"] = kinds
        optional = {
            "max_time": duration_of(record.get("MaxTime", "")),
            "default_time": duration_of(record.get("DefaultTime", "")),
            "max_nodes": _count(record.get("MaxNodes", "")) or None,
            "qos": None if record.get("QoS", "N/A") in _ENDLESS else record["QoS"],
            "accounts": _allowed(record.get("AllowAccounts", "ALL")),
            "allow_qos": _allowed(record.get("AllowQos", "ALL")),
        }
        found[name] = {**entry, **{key: value for key, value in optional.items() if value is not None}}
    return found


def _elsewhere(answers: Answers) -> bool | None:
    """Return whether a node is another machine than this one; None when no node was described."""
    here = socket.gethostname().partition(".")[0]
    samples = {record.get("NodeName", ""): record for record in parse_records(answers.texts.get("samples", ""))}
    known = None
    for *_, names in _rows(answers.texts["nodes"], 8):
        sample = samples.get(_first(names))
        if sample is None:
            continue
        host = sample.get("NodeHostName", "").partition(".")[0]
        several = host == sample["NodeName"] and len(expand_nodes(names)) > 1
        if several or (host != here and not sample.get("NodeAddr", "").startswith(("127.", "localhost"))):
            return True
        known = False
    return known


def _smallest(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what every node of a partition has at least; what is not known of one of them is left out."""
    found: dict[str, Any] = {}
    for key in ("cores", "memory", "gpus"):
        values = [kind[key] for kind in kinds if key in kind]
        if values and len(values) == len(kinds):
            found[key] = min(values)
    models = {kind.get("gpu_model") for kind in kinds if kind["gpus"]}
    if len(models) == 1 and None not in models:
        found["gpu_model"] = models.pop()
    common = [name for name in kinds[0]["features"] if all(name in kind["features"] for kind in kinds)] if kinds else []
    return {**found, "features": common}


def _groups(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """Return the groups of nodes that are alike by partition; what the system keeps of a node is taken off."""
    samples = {record.get("NodeName", ""): record for record in parse_records(answers.texts.get("samples", ""))}
    found: dict[str, dict[tuple, dict[str, Any]]] = {}
    for partition, count, state, cpus, memory, gres, features, names in _rows(answers.texts["nodes"], 8):
        sample = samples.get(_first(names), {})
        gpus, model = gpus_of(gres)
        cores = _count(sample.get("CPUEfctv", "")) or _count(cpus)
        kept_mib = _count(sample.get("MemSpecLimit", "")) or 0
        number = _count(count) or 0
        group: dict[str, Any] = {"gpus": gpus, "features": [] if features in _ENDLESS else features.split(",")}
        if cores:
            group["cores"] = cores
        mebibytes = (_count(memory) or 0) - kept_mib
        if mebibytes > 1:  # 1 is what Slurm says when nobody gave RealMemory
            group["memory"] = mebibytes * _MIB
        if model:
            group["gpu_model"] = model
        key = tuple(sorted((name, str(value)) for name, value in group.items()))
        group = found.setdefault(partition, {}).setdefault(key, {"nodes": 0, "up": 0, **group})
        group["nodes"] += number
        group["up"] += number if _is_up(state) else 0
    return {partition: list(kinds.values()) for partition, kinds in found.items()}


def _capped(groups: list[dict[str, Any]], record: dict[str, str], config: dict[str, str]) -> list[dict[str, Any]]:
    """Return the groups with no more cores and memory than a job may have of one node."""
    cores = _count(record.get("MaxCPUsPerNode", ""))
    mebibytes = _count(record.get("MaxMemPerNode", "")) or _count(config.get("MaxMemPerNode", ""))
    capped = []
    for group in groups:
        copy = dict(group)
        if cores and "cores" in copy:
            copy["cores"] = min(cores, copy["cores"])
        if mebibytes and "memory" in copy:
            copy["memory"] = min(mebibytes * _MIB, copy["memory"])
        capped.append(copy)
    return capped


def gpus_of(gres: str) -> tuple[int, str | None]:
    """Return the number of GPUs of one node, and their model when all have one: `gpu:a100:4(S:0-1)` is (4, "a100")."""
    total, models = 0, set()
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        match = _GRES.match(part.strip())
        if match is None:
            continue
        model, count, _ = match.groups()
        if model is not None and count is None and model.isdigit():
            model, count = None, model
        total += int(count) if count else 1
        models.add(model)
    return total, models.pop() if len(models) == 1 else None


def _is_up(state: str) -> bool:
    """Return whether jobs may start on nodes in this state of sinfo; `*` is a node that does not answer."""
    return "*" not in state and state.rstrip(_MARKS).lower() not in _NOT_UP


def _limits(wall: str, submit: str, jobs: str, tres: str) -> dict[str, Any]:
    parts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    gpus = [value for key, value in parts.items() if key == "gres/gpu"]
    limits = {
        "max_time": duration_of(wall),
        "max_submit": _count(submit),
        "max_jobs": _count(jobs),
        "max_nodes": _count(parts.get("node", "")),
        "max_cpus": _count(parts.get("cpu", "")),
        "max_gpus": _count(gpus[0]) if gpus else None,
    }
    return {key: value for key, value in limits.items() if value is not None}


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == columns:
            yield cells


def _count(text: str) -> int | None:
    match = re.match(r"\d+", text.strip())
    return int(match.group()) if match else None


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _allowed(text: str) -> list[str] | None:
    return None if text in ("ALL", "") or text in _ENDLESS else _names(text)


def _first(names: str) -> str:
    try:
        return expand_nodes(names)[0]
    except (CordeeError, IndexError):
        return ""
