"""What to ask for, by what runs used: each change with its reason and what may go wrong. Pure decisions.

One run tells little about the next: from one or two no more than half is taken away at a time. From three on, peaks decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cordee.core.units import format_duration, format_size
from cordee.core.words import counted
from cordee.systems.sizes.used import RunUse

SCHEMA = "cordee.size/1"
# Margins over what was seen: a job that runs out of one loses all of it.
MEMORY_MARGIN, _TIME_MARGIN, _CORES_MARGIN = 1.3, 1.3, 1.2
_ENOUGH_RUNS = 3
_LEAST_BYTES, _LEAST_S = 256_000_000, 300.0
# Smaller changes are not worth a word.
_WORTH = 0.9
_IDLE_RATIO = 0.05


@dataclass(frozen=True)
class SizeReason:
    """Why one value changes: `risk` is what may go wrong with the new one."""

    what: str
    before: Any
    after: Any
    text: str
    risk: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return vars(self)


@dataclass(frozen=True)
class RightSize:
    """The next request, what it changes and why, what is not known, for how long each run waited for its nodes, and what GPUs brought."""

    runs: tuple[str, ...]
    request: dict[str, Any]
    reasons: tuple[SizeReason, ...]
    unknown: tuple[str, ...]
    waited_s: tuple[float, ...] = ()
    cpu_or_gpu: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """Return the document of `cordee size`."""
        reasons = [reason.document() for reason in self.reasons]
        return {
            "schema": SCHEMA,
            "runs": list(self.runs),
            "request": self.request,
            "reasons": reasons,
            "unknown": list(self.unknown),
            "waited_s": list(self.waited_s),
            "cpu_or_gpu": self.cpu_or_gpu,
        }

    def lines(self) -> list[str]:
        """Return what `cordee size` prints: the table for the document, then why."""
        if not self.reasons:
            lines = [f"{', '.join(self.runs)}: nothing to change"]
        else:
            lines = ["[need]", *(f"{reason.what} = {_toml(reason.after)}" for reason in self.reasons), ""]
            for reason in self.reasons:
                lines += [f"{reason.what}: {reason.text}", f"  risk: {reason.risk}"]
        if self.waited_s:
            usual, most = median(self.waited_s), max(self.waited_s)
            waits = f", {format_duration(most)} at most" if len(self.waited_s) > 1 else ""
            lines.append(f"queue: waited {format_duration(usual)} for nodes{waits}")
        if self.cpu_or_gpu is not None:
            told = [
                f"{name} GPUs {format_duration(one['seconds'])} after {format_duration(one['waited_s'])} in the queue"
                f"{f', {hours:.2g} GPU hours' if (hours := one['gpu_hours']) else ''}"
                for name, one in (("with", self.cpu_or_gpu["with"]), ("without", self.cpu_or_gpu["without"]))
            ]
            lines.append(f"CPU or GPU: {'; '.join(told)}: done sooner {self.cpu_or_gpu['sooner']}")
        return lines + [f"unknown: {text}" for text in self.unknown]


def right_size(uses: Sequence[RunUse]) -> RightSize:
    """Return what to ask for next time, by the newest request and all that was used.

    Args:
        uses: of runs of one job, the newest last.
    """
    request = uses[-1].request
    several = len(uses) >= _ENOUGH_RUNS
    found, unknown = [], []
    for reason, missing in (_memory(uses, request, several), _time(uses, request, several), _cores(uses, request)):
        found += [reason] if reason else []
        unknown += [missing] if missing else []
    found += _gpus(uses, request)
    changed = {reason.what: reason.after for reason in found}
    waited = tuple(round(use.waited_s, 1) for use in uses if use.waited_s is not None)
    request = {**_as_needed(request), **changed}
    return RightSize(tuple(use.run for use in uses), request, tuple(found), tuple(unknown), waited, cpu_or_gpu(uses))


def cpu_or_gpu(uses: Sequence[RunUse]) -> dict[str, Any] | None:
    """Return what runs with GPUs and runs without took, waited and cost, by their medians; None: not both are there.

    Args:
        uses: of runs that did the same work; those that did not finish do not count.
    """
    found: dict[str, Any] = {}
    for name in ("with", "without"):
        known = [
            (use.seconds, use.waited_s, use.seconds * use.request["gpus_per_node"] * use.request["nodes"] / 3600)
            for use in uses
            if use.finished and use.seconds is not None and use.waited_s is not None
            if bool(use.request["gpus_per_node"]) == (name == "with")
        ]
        if not known:
            return None
        seconds, waited_s, gpu_hours = (round(median(values), 3) for values in zip(*known, strict=True))
        found[name] = {"seconds": seconds, "waited_s": waited_s, "gpu_hours": gpu_hours}
    whole = {name: one["seconds"] + one["waited_s"] for name, one in found.items()}
    return {**found, "sooner": min(whole, key=lambda name: whole[name])}


def _memory(uses: Sequence[RunUse], request: dict[str, Any], several: bool) -> tuple[SizeReason | None, str]:
    known = [use.memory_bytes / use.request["ranks_per_node"] for use in uses if use.memory_bytes]
    if not known:
        return None, "memory: no samples of ranks"
    peak = max(known) * request["ranks_per_node"]
    asked = request["memory_bytes"]
    if asked is None:
        return None, ""
    wanted = max(_LEAST_BYTES, MEMORY_MARGIN * peak)
    shown = f"the ranks of a node held {format_size(peak)} at most, without the page cache, of {format_size(asked)}"
    if wanted > asked:
        text = f"{shown}: too near to what was asked for"
        return SizeReason("memory", _bytes(asked), _bytes(wanted), text, "a larger job may wait longer"), ""
    after = wanted if several else max(wanted, asked / 2)
    if after > _WORTH * asked:
        return None, ""
    text = f"{shown}{_cautious(several, wanted, after, len(uses))}"
    risk = "a run with more data in memory is ended by the kernel or the scheduler"
    return SizeReason("memory", _bytes(asked), _bytes(after), text, risk), ""


def _time(uses: Sequence[RunUse], request: dict[str, Any], several: bool) -> tuple[SizeReason | None, str]:
    asked = request["time_s"]
    known = [use.seconds for use in uses if use.finished and use.seconds is not None]
    if asked is None:
        return None, ""
    if not known:
        return None, "time: none of the runs finished"
    wanted = max(_LEAST_S, _TIME_MARGIN * max(known))
    shown = f"the longest run took {format_duration(max(known))} of {format_duration(asked)}"
    if wanted > asked and max(known) > _WORTH * asked:
        after = _minutes(wanted)
        return SizeReason(
            "time", _minutes(asked), after, f"{shown}: too near to the limit", "a longer job may wait longer"
        ), ""
    after_s = wanted if several else max(wanted, asked / 2)
    if after_s > _WORTH * asked:
        return None, ""
    text = f"{shown}{_cautious(several, wanted, after_s, len(uses))}"
    risk = "a run that takes longer needs another segment, or ends there without checkpoints"
    return SizeReason("time", _minutes(asked), _minutes(after_s), text, risk), ""


def _cores(uses: Sequence[RunUse], request: dict[str, Any]) -> tuple[SizeReason | None, str]:
    asked = request["cpus_per_rank"]
    known = [use.cores for use in uses if use.cores is not None]
    if not asked or not known:
        return None, "" if known else "cores: no samples of ranks"
    after = max(1, math.ceil(_CORES_MARGIN * max(known)), math.ceil(asked / 2) if len(uses) < _ENOUGH_RUNS else 1)
    if after >= asked:
        return None, ""
    text = f"the busiest rank used {max(known):.2g} of {counted(asked, 'core')}, in the busiest tenth of its time"
    risk = "workers of the loader share what is left; more memory for each core may be charged"
    return SizeReason("cpus_per_rank", asked, after, text, risk), ""


def _gpus(uses: Sequence[RunUse], request: dict[str, Any]) -> list[SizeReason]:
    asked = request["gpus_per_node"]
    newest = uses[-1]
    if not asked or newest.gpus_used is None:
        return []
    used = math.ceil(newest.gpus_used / max(1, request["nodes"]))
    if newest.gpu_busy_ratio is not None and newest.gpu_busy_ratio < _IDLE_RATIO and used:
        text = f"the GPUs were busy for {newest.gpu_busy_ratio:.0%} of the time"
        risk = "without GPUs each step may take longer: run it once without, and give both runs to `cordee size`"
        return [SizeReason("gpus_per_node", asked, 0, text, risk)]
    if used >= asked:
        return []
    text = f"{newest.gpus_used} of {newest.gpus} GPUs ever held memory of the job"
    return [SizeReason("gpus_per_node", asked, used, text, "none that was seen: the others did nothing")]


def _cautious(several: bool, wanted: float, after: float, count: int) -> str:
    if several or after <= wanted:
        return ""
    return (
        f"; {'one run tells' if count == 1 else f'{count} runs tell'} little, so that half is taken away, and no more"
    )


def _as_needed(request: dict[str, Any]) -> dict[str, Any]:
    """Return a planned request in the keys of `[need]`, without what was not asked for."""
    found = {key: request[key] for key in ("nodes", "ranks_per_node", "gpus_per_node", "cpus_per_rank")}
    if request["memory_bytes"] is not None:
        found["memory"] = _bytes(request["memory_bytes"])
    if request["time_s"] is not None:
        found["time"] = _minutes(request["time_s"])
    return {key: value for key, value in found.items() if value is not None}


def _bytes(size: float) -> str:
    return f"{math.ceil(size / 1e8) / 10:g}GB" if size >= 1e9 else f"{math.ceil(size / 1e6)}MB"


def _minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60 - 1e-9)
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}min"


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
