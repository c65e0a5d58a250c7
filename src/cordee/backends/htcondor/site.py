"""What a pool of HTCondor says of itself, as the values of a cluster's profile."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from cordee.backends.profile_draft import ProfileDraft, name_of_cluster, quoted_text, value_lines
from cordee.core.backends import HERE
from cordee.core.documents.config_paths import profile_folders, profile_names
from cordee.core.documents.toml_text import quoted_key
from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.job.profile import ClusterProfile

POOL = "pool"  # the only partition: machines of a pool are in none
_ANSWER_S = 20.0
_MIB = 1 << 20
_ATTRIBUTES = (
    "Name,Machine,SlotType,State,TotalSlotCpus,TotalSlotMemory,TotalSlotGPUs,Cpus,Memory,GPUs,GPUs_DeviceName,"
    "GPUs_Capability,GPUs_GlobalMemoryMb,CUDADeviceName,CUDACapability,CUDAGlobalMemoryMb,MachineMaxVacateTime"
)
# What a job may get: not the slots that it gets out of one, nor those that only borrow another's resources.
_SLOTS = 'SlotType =!= "Dynamic" && SlotType =!= "Backfill" && BackfillSlot =!= true'
_NOT_UP = ("Owner", "Drained", "Delete", "Shutdown")
_MAKERS = re.compile(r"\b(?:nvidia|amd|tesla|instinct|geforce|quadro|graphics)\b", re.IGNORECASE)
_ASKED = (
    "# [htcondor]               # what every job of this pool is submitted with: requirements and attributes; no pool says it,",
    "# nor its lengths of job ([classes.NAME] max_time, attributes): see its own pages for users",
)


def values_here(environ: Mapping[str, str], most_s: float) -> dict[str, Any]:
    """Return the values of a profile of the pool that answers here.

    Args:
        environ: where its commands and its configuration are looked up.
        most_s: how long it may take; at least 20 s.

    Raises:
        UsageError: no pool answers here.
    """
    return _values(*_asked(environ, most_s))


def discover(name: str | None = None, environ: Mapping[str, str] = os.environ) -> ProfileDraft:
    """Return a profile of the pool that answers here.

    Args:
        name: of the cluster in Cordée; None for the pool's own name.
        environ: where its commands and its configuration are looked up.

    Raises:
        UsageError: no pool answers here, or the name is none.
    """
    pool, slots = _asked(environ, _ANSWER_S)
    chosen = name_of_cluster(name, _own_name(pool), "htcondor")
    found = ClusterProfile.model_validate({**_values(pool, slots), "name": chosen})
    grace = [slot["MachineMaxVacateTime"] for slot in slots if isinstance(slot.get("MachineMaxVacateTime"), int)]
    facts = {
        "pool": pool,
        "htcondor_version": _version(environ),
        "machines": len({slot.get("Machine") for slot in slots}),
        "least_vacate_s": min(grace, default=None),
    }
    findings = tuple(_unknown(found))
    text = "\n".join(_text(found, facts, [finding.text for finding in findings])) + "\n"
    profile = ClusterProfile.model_validate(tomllib.loads(text))
    return ProfileDraft(chosen, text, profile, facts, findings, profile_folders(environ)[-1] / f"{chosen}.toml")


def _asked(environ: Mapping[str, str], most_s: float) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of the pool, and what its slots are."""
    pool = _run(environ, most_s, "condor_config_val", "COLLECTOR_HOST").strip()
    said = _run(environ, most_s, "condor_status", "-json", "-attributes", _ATTRIBUTES, "-constraint", _SLOTS)
    try:
        slots = json.loads(said or "[]")  # a pool without machines prints nothing
    except ValueError:
        raise _no_pool(environ, f"condor_status printed what is no JSON: {said[:80]!r}") from None
    return pool, [slot for slot in slots if isinstance(slot, dict)]


def _run(environ: Mapping[str, str], most_s: float, *argv: str) -> str:
    program = shutil.which(argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise _no_pool(environ, f"not found: {argv[0]} is not on PATH")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(most_s, _ANSWER_S),
            env={**environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _no_pool(environ, f"{argv[0]} gave no answer within {max(most_s, _ANSWER_S):.0f} s") from None
    except OSError as error:
        raise _no_pool(environ, f"{argv[0]}: {error.strerror}") from None
    if done.returncode:
        raise _no_pool(environ, done.stderr.strip() or f"{argv[0]} ended with code {done.returncode}")
    return done.stdout


def _no_pool(environ: Mapping[str, str], said: str) -> UsageError:
    return UsageError(
        f"no pool of HTCondor answers here: {' '.join(said.split())[:300]}",
        given="htcondor",
        allowed=[HERE, *sorted(profile_names(environ) - {HERE})],
        next="run it on an access point of the pool, set CONDOR_CONFIG, or use --on local",
    )


def _version(environ: Mapping[str, str]) -> str | None:
    try:
        found = re.search(r"\d+\.\d+\.\d+", _run(environ, _ANSWER_S, "condor_version"))
    except UsageError:
        return None
    return found[0] if found else None


def _own_name(pool: str) -> str:
    """Return what a pool is called by its collector: `cm.chtc.example.edu` is chtc; an address says nothing."""
    labels = re.split(r"[,:\s]", pool)[0].split(".")
    return "" if labels[-1].isdigit() else labels[1 if len(labels) > 2 else 0]


def _values(pool: str, slots: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of a profile; what no machine said is not in it."""
    groups: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    models: dict[str, dict[str, Any]] = {}
    for slot in slots:
        shape: dict[str, Any] = {"gpus": _whole(slot, "TotalSlotGPUs", "GPUs") or 0}
        if cores := _whole(slot, "TotalSlotCpus", "Cpus"):
            shape["cores"] = cores
        if mebibytes := _whole(slot, "TotalSlotMemory", "Memory"):
            # Machines of one kind differ by some MiB: a kind has what all of them have.
            shape["memory"] = (mebibytes // 1024 * 1024 if mebibytes >= 8192 else mebibytes) * _MIB
        device = slot.get("GPUs_DeviceName") or slot.get("CUDADeviceName")
        if shape["gpus"] and isinstance(device, str):
            model = shape["gpu_model"] = _model(device)
            each = _whole(slot, "GPUs_GlobalMemoryMb", "CUDAGlobalMemoryMb")
            if each:
                known = models.setdefault(model, {"memory": each * _MIB})
                known["memory"] = min(known["memory"], each * _MIB)
                if capability := slot.get("GPUs_Capability") or slot.get("CUDACapability"):
                    known["capability"] = capability
        group = groups.setdefault(tuple(sorted(shape.items())), {"nodes": 0, "up": 0, **shape})
        group["nodes"] += 1
        group["up"] += slot.get("State") not in _NOT_UP
    kinds = sorted(groups.values(), key=lambda group: (group["gpus"], group.get("cores", 0), group.get("memory", 0)))
    partition: dict[str, Any] = {"default": True, "max_nodes": 1}
    partition |= {key: sum(kind[key] for kind in kinds) for key in ("nodes", "up")}
    for key in ("cores", "memory", "gpus"):
        if known_of := [kind[key] for kind in kinds if key in kind]:
            partition[key] = min(known_of)
    if len(kinds) == 1:
        partition |= kinds[0]
    elif kinds:
        partition["groups"] = kinds
    here = {socket.gethostname(), socket.getfqdn()}
    return {
        "scheduler": "htcondor",
        "answering": pool or "unknown",
        "nodes_elsewhere": any(slot.get("Machine") not in here for slot in slots),
        "partitions": {POOL: partition},
        "gpu": models,
    }


def _whole(slot: dict[str, Any], *names: str) -> int | None:
    """Return the first of these attributes that is a number; an expression comes as a text."""
    found = next((slot[name] for name in names if isinstance(slot.get(name), (int, float))), None)
    return int(found) if found is not None and found > 0 else None


def _model(device: str) -> str:
    """Return a device's name as a model: `NVIDIA A100-SXM4-40GB` is `a100-sxm4-40gb`."""
    return re.sub(r"[^a-z0-9.]+", "-", _MAKERS.sub(" ", device).lower()).strip("-.") or device


def _unknown(profile: ClusterProfile) -> Iterator[Finding]:
    """Yield what could not be found out."""
    partition = profile.partitions[POOL]
    if not partition.nodes:
        yield Finding("the pool shows no machines now; they may come when jobs wait", "info", "not-found-out")
    if any(shape.gpus and not shape.gpu_model for shape in partition.shapes):
        text = (
            "machines have GPUs whose model the pool does not say, or of several models; add gpu_model and [gpu.MODEL]"
        )
        yield Finding(text, "info", "not-found-out")
    yield Finding("how long a job may take: no pool says it", "info", "not-found-out")


def _text(profile: ClusterProfile, facts: dict[str, Any], unknown: list[str]) -> Iterator[str]:
    partition = profile.partitions[POOL]
    yield f"# Cluster profile of the pool {facts['pool']}, drafted by `cordee cluster discover`."
    yield "# Where this pool answers, what it says lies under these values: a line that is removed follows the pool."
    yield f"name = {quoted_text(profile.name)}"
    yield 'scheduler = "htcondor"'
    yield '# python = "/usr/bin/python3"  # of the machines, at least 3.9; only where it is another than here'
    yield ""
    yield f"# HTCondor:            {facts['htcondor_version'] or 'unknown'}"
    yield f"# machines:            {facts['machines']}, with {partition.nodes} slots that a job may have"
    if facts["least_vacate_s"] is not None:
        yield f"# time to end:         {facts['least_vacate_s']} s between TERM and KILL on the hastiest machine: [checkpoint] grace"
    yield from ("#", "# Not found out:", *(f"# - {text}" for text in unknown))
    yield from ("#", *_ASKED, "", f"[partitions.{POOL}]", f"# {partition.up} of {partition.nodes} slots take jobs")
    yield from value_lines(partition.model_dump(exclude_defaults=True, exclude={"groups", "up", "state"}))
    if partition.groups:
        yield f"# {len(partition.groups)} kinds of machines; above is the least that one has"
    for group in partition.groups:
        yield f"[[partitions.{POOL}.groups]]"
        yield from value_lines(group.model_dump(exclude_none=True, exclude={"up"}))
    for name, model in profile.gpu_models.items():
        yield from ("", f"[gpu.{quoted_key(name)}]")
        yield from value_lines(model.model_dump(exclude_none=True))
