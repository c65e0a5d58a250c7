"""Tries an environment on this machine: what its own check says, then a start, its Python, its GPUs, and a collective."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.core.stats import median
from cordee.core.units import format_size
from cordee.systems.environments.ready.catalogue import fabric_here
from cordee.systems.environments.ready.probe import MARK
from cordee.systems.environments.start import start

SCHEMA = "cordee.environment-doctor/1"
_PATIENCE_S = 240.0
_PYTHON = 'command -v python3 >/dev/null || { echo "there is no python3 inside" >&2; exit 127; }; exec python3 -c "$@"'
# Whose libraries speak of a network by these names.
_TCP = ("Socket", "socket")


@dataclass(frozen=True)
class DoctorTrial:
    """One thing that was tried: `status` is pass, warn, fail or unknown; `rates` are what it reached, per second, one each time;
    `device` is the model of GPU, where there is one."""

    what: str
    status: str
    text: str
    next: str = ""
    rates: tuple[float, ...] = ()
    device: str = ""

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return asdict(self)


def examine(name: str, cluster: str, engine: str | None, ranks: int, environ: Mapping[str, str]) -> list[DoctorTrial]:
    """Return what was found by trying an environment on this machine.

    Args:
        name: of the EDF, or its path.
        cluster: whose profile counts.
        engine: over the profile's.
        ranks: of the collective where there is at most one GPU.
        environ: the host's variables.

    Raises:
        DocumentError: the EDF is not there, or wrong.
    """
    source = Path(__file__).with_name("probe.py").read_text(encoding="utf-8")
    try:
        words = ["/bin/sh", "-c", _PYTHON, "sh", source, str(ranks)]
        ready = start(name, words, cluster=cluster, engine=engine, environ={**environ, "CORDEE_PROBE": source})
        began = time.monotonic()
        done = subprocess.run(
            ready.argv,
            env=ready.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [
            DoctorTrial(
                "start", "fail", f"nothing came to an end within {_PATIENCE_S:g} s", "see what hangs: env run -v"
            )
        ]
    except CordeeError as error:
        if getattr(error, "findings", None):
            raise
        given = f": {error.given}" if error.given else ""
        return [DoctorTrial("start", "fail", f"{error.text}{given}", error.next or "")]
    seconds = time.monotonic() - began
    found = [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if line.startswith(MARK)]
    warned = [DoctorTrial("check", "warn", each.text, each.next or "") for each in ready.findings]
    if not found:
        words_of_it = done.stderr.strip().splitlines()
        text = words_of_it[-1] if words_of_it else f"exit code {done.returncode}"
        return [*warned, DoctorTrial("start", "fail", text, "cordee env check says what this machine lacks")]
    up = DoctorTrial("start", "pass", f"by the engine {ready.choice.engine.name}, all of this in {seconds:.1f} s")
    by_kind = {each["what"]: each for each in found}
    return [*warned, up, *_framework(by_kind), _gpus(by_kind), *_compute(by_kind), collective_trial(by_kind)]


def _framework(found: Mapping[str, Any]) -> list[DoctorTrial]:
    python = found["python"]
    trials = [DoctorTrial("python", "pass", f"{python['version']}, {python['path']}")]
    for name in ("torch", "jax"):
        one = found.get(name)
        if one and "error" in one:
            trials.append(
                DoctorTrial(name, "fail", one["error"], "its libraries do not fit this machine, or each other")
            )
        elif one:
            trials.append(DoctorTrial(name, "pass", f"{one['version']}, {one['built']}"))
    if not {"torch", "jax"} & found.keys():
        trials.append(
            DoctorTrial("framework", "warn", "neither torch nor jax can be imported", "is its Python first on PATH?")
        )
    return trials


def gpus_of(root: str = "") -> int:
    """Return how many GPUs a machine has, by its device files."""
    amd = glob.glob(f"{root}/dev/dri/renderD*") if os.path.exists(f"{root}/dev/kfd") else []
    return len(glob.glob(f"{root}/dev/nvidia[0-9]*")) or len(amd)


def _gpus(found: Mapping[str, Any]) -> DoctorTrial:
    here, seen = gpus_of(), [each["gpus"] for each in found.values() if "gpus" in each]
    if not here:
        return DoctorTrial("GPUs", "unknown", "this machine has none, so that nothing is known of them")
    if not seen:
        return DoctorTrial("GPUs", "unknown", f"this machine has {here}, and no framework was there to see them")
    text = f"{max(seen)} of {here} are seen inside"
    hint = "the driver's libraries are those of the machine: `cordee env explain`, and CUDA_VISIBLE_DEVICES"
    return DoctorTrial("GPUs", "pass", text) if max(seen) == here else DoctorTrial("GPUs", "fail", text, hint)


def _compute(found: Mapping[str, Any]) -> list[DoctorTrial]:
    one = found.get("compute")
    if one is None:
        return []
    model = str(found.get("torch", {}).get("model", ""))
    text = f"{median(one['flops']) / 1e9:,.0f} GFLOP/s by matrices of {one['kind']} on {model or 'the processors'}"
    return [DoctorTrial("compute", "pass", text, rates=tuple(one["flops"]), device=model)]


def collective_trial(found: Mapping[str, Any]) -> DoctorTrial:
    """Return what is to be said of the collective that was tried: TCP where there is a faster fabric is a failure."""
    one, fabric = found.get("collective"), fabric_here()
    if one is None:
        return DoctorTrial("collective", "unknown", "there is no torch inside to try one")
    if "error" in one:
        return DoctorTrial(
            "collective",
            "fail",
            one["error"],
            "NCCL_DEBUG=INFO says more; NCCL_NET names a network that has to be there",
        )
    rates = tuple(one["bytes_per_s"])
    text = f"{one['ranks']} ranks by {one['backend']}, {format_size(median(rates))}/s"
    if one["backend"] != "nccl":
        return DoctorTrial("collective", "pass", f"{text}, by TCP of this machine", rates=rates)
    network = one["network"] or "none named"
    if fabric != "ethernet" and network in _TCP:
        hint = (
            "write NCCL_NET into [env], so that it ends with words in place of that; `cordee env new` has the settings"
        )
        return DoctorTrial("collective", "fail", f"{text}; there is {fabric}, and NCCL fell back to TCP", hint, rates)
    return DoctorTrial("collective", "pass", f"{text}; network: {network}", rates=rates)
