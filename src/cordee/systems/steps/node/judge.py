"""What a test has shown, held against what the job asks for. Pure decisions."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.systems.steps.node.learned import Learned

# A prediction from some steps is this far off at times: less is no ground to refuse a job.
_DOUBT = 1.1
_FAR_TOO_LARGE = 4.0
_SMALL_BYTES = 1 << 30
_SAVE_MARGIN = 1.25
_IDLE_RATIO = 0.05
_GPU_MARGIN, _RESERVED_RATIO, _FULL_RATIO = 1.2, 0.7, 0.97
TOO_SMALL, TOO_LARGE = "request-too-small", "request-too-large"


class JobRequest(NamedTuple):
    """What the job asks for.

    Attributes:
        time_s: in all; `limit_s` of one segment, of which `grace_s` is for saving.
        memory_bytes: of a node with `ranks_per_node`; None: what the site gives.
        every_s: between two checkpoints; `keep`: how many stay.
        gpu_memory_bytes: that each GPU is to have at least; None: the document does not say.
    """

    nodes: int
    ranks_per_node: int
    gpus_per_node: int
    memory_bytes: Optional[int]
    time_s: Optional[float]
    limit_s: Optional[float]
    grace_s: float
    most_segments: int
    every_s: Optional[float]
    keep: int
    resumes: bool
    gpu_memory_bytes: Optional[int] = None

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> JobRequest:
        """Return what a plan's document asks for."""
        step = plan["steps"][0]
        request, segment, checkpoint = step["request"], step["segment"], step["checkpoint"]
        return cls(
            request["nodes"],
            request["ranks_per_node"],
            request["gpus_per_node"],
            request["memory_bytes"],
            request["time_s"],
            segment["limit_s"],
            segment["grace_s"],
            segment["max_segments"],
            checkpoint["every_s"],
            checkpoint["keep"],
            bool(checkpoint["resume"]) or checkpoint["own_folder"],
        )


def predicted(learned: Learned, asked: JobRequest, steps: Optional[int]) -> Dict[str, Any]:
    """Return `{total_s, segments, steps}` of the job, None where the test did not show it.

    Args:
        steps: how many the job takes, where the document says so; else what the test's script told, if that is more than it did.
    """
    told = learned.total if learned.total is not None and learned.total > learned.steps else None
    count = steps or told
    if count is None or learned.step_s is None:
        return {"total_s": None, "segments": None, "steps": count}
    saves_s = 0.0
    if asked.every_s and learned.save_s:
        saves_s = learned.save_s * math.floor(count * learned.step_s / asked.every_s)
    total_s = (learned.start_s or 0.0) + (count - 1) * learned.step_s + saves_s
    segments: Optional[int] = 1
    if asked.limit_s is not None and total_s > asked.limit_s:
        useful_s = asked.limit_s - asked.grace_s - (learned.start_s or 0.0)
        segments = math.ceil(total_s / useful_s) if useful_s > 0 else None
    return {"total_s": total_s, "segments": segments, "steps": count}


def judged(learned: Learned, asked: JobRequest, steps: Optional[int], where: Optional[str] = None) -> List[Finding]:
    """Return what is to be said of the job's request: an error is too small, a warning far too large or of no use."""
    return [
        *_memory(learned, asked),
        *_time(learned, asked, steps),
        *_saves(learned, asked, where),
        *_gpus(learned, asked),
        *_gpu_memory(learned, asked),
    ]


def _memory(learned: Learned, asked: JobRequest) -> List[Finding]:
    if learned.memory_bytes is None or asked.memory_bytes is None or not learned.ranks:
        return []
    one = learned.memory_bytes / (learned.ranks / learned.nodes)
    node = one * asked.ranks_per_node
    shown = f"the ranks of the test held {format_size(one)} each at most"
    if node > asked.memory_bytes:
        text = f"memory is too small: {shown}; {asked.ranks_per_node} on a node need {format_size(node)}"
        what = f'need.memory = "{_gigabytes(1.2 * node)}"'
        return [Finding(text, "error", TOO_SMALL, given=f"memory = {format_size(asked.memory_bytes)}", next=what)]
    if asked.memory_bytes > _FAR_TOO_LARGE * node + _SMALL_BYTES:
        text = f"memory is far too large: {shown}; {asked.ranks_per_node} on a node need {format_size(node)}"
        what = f'need.memory = "{_gigabytes(1.5 * node)}": smaller jobs start sooner'
        return [Finding(text, "warn", TOO_LARGE, given=f"memory = {format_size(asked.memory_bytes)}", next=what)]
    return []


def _time(learned: Learned, asked: JobRequest, steps: Optional[int]) -> List[Finding]:
    found = predicted(learned, asked, steps)
    total_s = found["total_s"]
    if total_s is None or asked.time_s is None:
        return []
    step = f"{learned.step_s:.3g} s a step, {found['steps']} steps"
    given = f"time = {format_duration(asked.time_s)}"
    if total_s > _DOUBT * asked.time_s:
        text = f"the time is too short: {step} are {format_duration(round(total_s))}"
        what = f'need.time = "{_minutes(1.2 * total_s)}"'
        return [Finding(text, "error", TOO_SMALL, given=given, next=what)]
    if asked.time_s > _FAR_TOO_LARGE * total_s + 600:
        text = f"the time is far too long: {step} are {format_duration(round(total_s))}"
        what = f'need.time = "{_minutes(1.3 * total_s)}": short jobs fill gaps in the queue'
        return [Finding(text, "warn", TOO_LARGE, given=given, next=what)]
    if found["segments"] and found["segments"] > 1 and not asked.resumes:
        text = f"the job takes {found['segments']} segments, and its script is not told how to continue"
        what = 'add [checkpoint] with resume = "--resume {checkpoint}"'
        return [Finding(text, "error", TOO_SMALL, given=given, next=what)]
    return []


def _saves(learned: Learned, asked: JobRequest, where: Optional[str]) -> List[Finding]:
    found = []
    if learned.save_s is not None and asked.limit_s is not None and learned.save_s > asked.grace_s:
        text = f"the grace is too short: a checkpoint took {learned.save_s:.3g} s to save"
        what = f'checkpoint.grace = "{math.ceil(2 * learned.save_s)}s"'
        given = f"grace = {format_duration(asked.grace_s)}"
        found.append(Finding(text, "error", TOO_SMALL, given=given, next=what))
    if learned.checkpoint_bytes is not None and learned.free_bytes is not None:
        count = asked.keep if asked.every_s else 1
        needed = _SAVE_MARGIN * (count + 1) * learned.checkpoint_bytes
        if needed > learned.free_bytes:
            size = format_size(learned.checkpoint_bytes)
            text = f"the disk is too full: {count + 1} checkpoints of {size} go where {format_size(learned.free_bytes)} are free"
            what = "make room, or write checkpoint.path on a larger file system"
            found.append(Finding(text, "error", TOO_SMALL, given=where, next=what))
    return found


def _gpus(learned: Learned, asked: JobRequest) -> List[Finding]:
    if not asked.gpus_per_node:
        return []
    given = f"gpus_per_node = {asked.gpus_per_node}"
    if learned.gpus_unused:
        text = f"{learned.gpus_unused} GPUs were never used by the test"
        what = 'ask for fewer GPUs, or start one rank for each: need.ranks_per_node = "gpu"'
        return [Finding(text, "warn", TOO_LARGE, given=given, next=what)]
    if learned.gpu_busy_ratio is not None and learned.gpu_busy_ratio < _IDLE_RATIO:
        text = f"the GPUs were busy for {learned.gpu_busy_ratio:.0%} of the test"
        what = "`cordee score` of the test says what they wait for; without GPUs the job starts sooner"
        return [Finding(text, "warn", TOO_LARGE, given=given, next=what)]
    return []


def _gpu_memory(learned: Learned, asked: JobRequest) -> List[Finding]:
    """Hold the most that a GPU of the test held against what the request is met by, and against what that GPU has."""
    used, total, least = learned.gpu_memory_bytes, learned.gpu_total_bytes, asked.gpu_memory_bytes
    if not asked.gpus_per_node or not used:
        return []
    of = f" of its {format_size(total)}" if total else ""
    shown = f"a GPU of the test held {format_size(used)}{of} at most"
    given = f"gpu = memory >= {format_size(least)}" if least else f"gpus_per_node = {asked.gpus_per_node}"
    if least and used > least:
        text = f"the memory of GPUs is too small: {shown}; GPUs with {format_size(least)} meet the request"
        what = f'need.gpu = "memory >= {_gigabytes(_GPU_MARGIN * used)}"'
        if total and used > _RESERVED_RATIO * total:
            # JAX and TensorFlow take three quarters and more of a GPU, whatever they need.
            what += "; where the program reserves what there is (XLA_PYTHON_CLIENT_PREALLOCATE), nothing is known"
            return [Finding(text, "warn", TOO_SMALL, given=given, next=what)]
        return [Finding(text, "error", TOO_SMALL, given=given, next=what)]
    if least and least > _FAR_TOO_LARGE * used + _SMALL_BYTES:
        text = f"the memory of GPUs is far too large: {shown}"
        what = f'need.gpu = "memory >= {_gigabytes(_GPU_MARGIN * used)}": more nodes have such GPUs, or a share of one would do'
        return [Finding(text, "warn", TOO_LARGE, given=given, next=what)]
    if total and used > _FULL_RATIO * total:
        text = f"the memory of GPUs is nearly full: {shown}"
        what = "a longer sequence or a last batch may not fit: try a smaller batch, or say need.gpu"
        return [Finding(text, "warn", TOO_SMALL, given=given, next=what)]
    return []


def _gigabytes(size_bytes: float) -> str:
    return f"{math.ceil(size_bytes / 1e9)}GB" if size_bytes > 2e9 else f"{math.ceil(size_bytes / 1e8) * 100}MB"


def _minutes(seconds: float) -> str:
    return f"{math.ceil(seconds / 3600)}h" if seconds > 36000 else f"{max(1, math.ceil(seconds / 60))}min"
