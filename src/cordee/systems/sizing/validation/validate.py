"""`cordee plan validate`: each model, traced and then run on a CPU, on a GPU, or by two ranks, and what the predictions miss by."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError, UsageError
from cordee.core.words import did_you_mean
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.memory import RANK_BYTES, formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.snippets import snippet
from cordee.systems.sizing.trace.run import LIMIT_S, trace
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload
from cordee.wire.ports import pick_port

_HERE = Path(__file__).parent
_TRUTH_S, _ALL_S = 180.0, 460.0  # of one child; of all on a GPU, which are to take under eight minutes
_GPU = threading.Lock()  # what one model takes is told from what is free: no other is beside it
_FINDS_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"
PRECISIONS = ("fp32", "bf16", "bf16-pure")
# The halves are by family. A trace has no constants but the copies of oneDNN's convolutions, which the first half set.
TUNING = ("gpt", "llama", "tied", "vit", "resnet", "lstm", "custom_autograd")
HELD_OUT = ("dense_experts", "mamba", "t5", "unet", "bert_lora", "item_in_forward", "dynamic_shapes")
CHECKPOINTED = ("gpt", "llama", "dense_experts", "mamba", "bert_lora")
_SPLIT = "split_llama"
MODELS = (*TUNING, *HELD_OUT, _SPLIT)
_SIZES_APART = 48  # sizes of memory in which `fits_right` asks whether a case fits
RANKS = (("gpt", Layout(dp=2)), ("gpt", Layout(fsdp=2)), ("llama", Layout(fsdp=2)), (_SPLIT, Layout(tp=2)))
# The sizes of `models.py`.
_SIZES: dict[str, Any] = {"layers": 4, "width": 256, "heads": 4, "kv_heads": 4, "head_width": 64, "ffn": 768}
_SPLIT_SIZES = Architecture(_SPLIT, **_SIZES, vocabulary=8000, gated=True, tied=False)


class ValidatedCase(NamedTuple):
    """One model in one precision: what was predicted and what the allocator held, in bytes; None: it could not be told.

    Attributes:
        whole_predicted, whole_measured: with the context and what the allocator kept, on a GPU.
    """

    model: str
    half: str
    precision: str
    predicted: int | None
    measured: int | None
    why: str = ""
    whole_predicted: int | None = None
    whole_measured: int | None = None

    @property
    def error(self) -> float | None:
        """By how much the prediction is above what was measured, as a share."""
        return None if self.predicted is None or not self.measured else self.predicted / self.measured - 1


def cases(models: Sequence[str] = (), *, gpu: bool = False, ranks: bool = True) -> Iterator[ValidatedCase]:
    """Yield every model in every precision, with checkpointing where it has blocks for that, and ranks of Gloo on a CPU.

    Args:
        models: names; empty: all.
        gpu: run on this machine's GPU; what has not ended after eight minutes is told as not run.

    Raises:
        UsageError: there is no GPU, or no such model.
    """
    for name in models:
        if name not in MODELS:
            hint = did_you_mean(name, MODELS, "leave out --model: all are validated")
            raise UsageError("there is no such model", given=name, allowed=", ".join(MODELS), next=hint)
    if gpu and subprocess.run([sys.executable, "-c", _FINDS_GPU], check=False).returncode:
        hint = "run it where `python -c 'import torch; print(torch.cuda.is_available())'` says True, or leave out --gpu"
        raise UsageError("PyTorch finds no GPU here", given="validate --gpu", next=hint)
    until = time.monotonic() + _ALL_S if gpu else float("inf")
    wanted: list[tuple[str, str]] = []
    for half, names in (("tuning", TUNING), ("held-out", HELD_OUT)):
        known = [name for name in names if not models or name in models]
        wanted += [(name, half) for name in [*known, *(f"{one}_checkpointed" for one in known if one in CHECKPOINTED)]]
    # A GPU runs one model at a time, beside the traces of others, which take a core each.
    with ThreadPoolExecutor(min(8, max(1, (os.cpu_count() or 2) // 2)) if gpu else 1) as pool:
        for found in pool.map(lambda one: _of_model(*one, gpu=gpu, until=until), wanted):
            yield from found
    if ranks and not gpu:
        yield from (_of_ranks(name, layout) for name, layout in RANKS if not models or name in models)


def _of_model(name: str, half: str, *, gpu: bool, until: float) -> list[ValidatedCase]:
    if time.monotonic() > until:
        return [ValidatedCase(name, half, one, None, None, "not run: the time was over") for one in PRECISIONS]
    traced: list[tuple[TracedModel | None, str]] = []
    for precision in PRECISIONS:
        try:
            workload, folder = Workload(precision=precision), _HERE
            left_s = max(1.0, min(LIMIT_S, until - time.monotonic()))
            found = trace(
                folder / "models.py", name, (), workload, python=sys.executable, folder=folder, gpu=gpu, limit_s=left_s
            )
            traced.append((found, ""))
        except CordeeError as error:
            traced.append((None, str(error.text)))
    requests = [{**_request(name, precision), **({"device": "cuda"} if gpu else {})} for precision in PRECISIONS]
    with _GPU if gpu else contextlib.nullcontext():
        most_s = max(1.0, min(_TRUTH_S, until - time.monotonic()))
        measured, why = _measured([sys.executable, str(_HERE / "truth.py"), json.dumps(requests)], most_s=most_s)
    result = []
    for number, (precision, (model, said)) in enumerate(zip(PRECISIONS, traced, strict=True)):
        truth: dict[str, Any] = measured[number] if number < len(measured) else {"peak": None, "kept": None, "why": why}
        peak = max(model.peak, model.step_peak) if model else None
        whole = round(model.parts(Workload(precision=precision)).peak) if model and gpu else None
        result.append(
            ValidatedCase(name, half, precision, peak, truth["peak"], said or truth["why"], whole, truth["kept"])
        )
    return result


def _request(name: str, precision: str) -> dict[str, Any]:
    return {
        "path": str(_HERE / "models.py"), "function": name, "trains": True, "precision": precision, "optimizer": "adamw",
        "micro_batch": 1, "sequence": 1, "task": "train", "rank": 8, "checkpointing": "none",
    }  # fmt: skip


def _measured(
    command: list[str], env: dict[str, str] | None = None, most_s: float = _TRUTH_S
) -> tuple[list[dict[str, Any]], str]:
    """Return what a child printed, a document for each line, and why there are no more."""
    environ = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, check=False, env=environ)
        told = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        told = _text(late.stdout), f"more than {most_s:.0f} s"
    lines = [line for line in told[0].splitlines() if line.startswith('{"peak"')]
    last = told[1].strip().splitlines()[-1:] or [""]
    return [json.loads(line) for line in lines], f"could not be run: {last[0][:120]}"


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _of_ranks(name: str, layout: Layout) -> ValidatedCase:
    """Return the larger of two ranks' peaks beside the prediction: a trace that is divided, or formulas for TP."""
    what = f"{name}, {layout.name}"
    work = Workload(precision="fp32", optimizer="adamw-fused")
    code = "" if layout.tp > 1 else snippet("fsdp2", layout, work)
    port = pick_port("127.0.0.1")
    request = json.dumps({"path": str(_HERE / "models.py"), "function": name, "code": code})
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(_HERE / "rank.py"), request]
    worlds = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda world: _measured(command, world), worlds))
    peaks = [one["peak"] for found, _ in both for one in found]
    if layout.tp > 1:
        sized = Workload(precision="fp32", optimizer="adamw-fused", micro_batch=4, sequence=128)
        parts = formula_parts(_SPLIT_SIZES, sized, layout)
        allocators = ("context", "workspaces", "communication buffers", "fragmentation")
        predicted = parts.peak - sum(parts.others.get(one, 0.0) for one in allocators)
    else:
        found = trace(_HERE / "models.py", name, (), work, python=sys.executable, folder=_HERE, gpu=False)
        predicted = found.parts(work, layout).peak - RANK_BYTES
    whole = len(peaks) == 2
    return ValidatedCase(
        what, "ranks", "fp32", round(predicted), max(peaks) if whole else None, "" if whole else both[0][1]
    )


def summary(found: Sequence[ValidatedCase]) -> dict[str, Any]:
    """Return what is published of a validation."""
    errors = [one.error for one in found if one.error is not None]
    return {
        "cases": len(found),
        "traced": sum(one.predicted is not None for one in found),
        "median_error": statistics.median(map(abs, errors)) if errors else None,
        "worst_error": max(map(abs, errors)) if errors else None,
        "least": min(errors) if errors else None,
        "under_by_more_than_3_percent": sum(error < -0.03 for error in errors),
        "fits_right": fits_right([(one.predicted, one.measured) for one in found if one.predicted and one.measured]),
    }


def fits_right(peaks: Sequence[tuple[float, float]]) -> float | None:
    """Return how often it is told right whether a case fits, as a share: into memories of half to twice what it takes, 3 % apart.

    Args:
        peaks: predicted and measured, in bytes.
    """
    scales = [2 ** ((step + 0.5) / _SIZES_APART * 2 - 1) for step in range(_SIZES_APART)]
    right = [(said <= scale * taken) == (scale >= 1) for said, taken in peaks for scale in scales]
    return sum(right) / len(right) if right else None
