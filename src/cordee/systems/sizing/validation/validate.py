"""`cordee plan validate`: each model, traced and then run, and what the predictions miss by."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.systems.sizing.trace.run import trace
from cordee.systems.sizing.workload import Workload

_HERE = Path(__file__).parent
_TRUTH_S = 120
PRECISIONS = ("fp32", "bf16", "bf16-pure")
# The halves are by family. Nothing was set by either: a trace has no constants.
TUNING = ("gpt", "llama", "tied", "vit", "resnet", "lstm", "custom_autograd")
HELD_OUT = ("dense_experts", "mamba", "t5", "unet", "bert_lora", "item_in_forward", "dynamic_shapes")
CHECKPOINTED = ("gpt", "llama", "dense_experts", "mamba", "bert_lora")


class ValidatedCase(NamedTuple):
    """One model in one precision: what was predicted and what the allocator held, in bytes; None: it could not be told."""

    model: str
    half: str
    precision: str
    predicted: int | None
    measured: int | None
    why: str = ""

    @property
    def error(self) -> float | None:
        """By how much the prediction is above what was measured, as a share."""
        return None if self.predicted is None or not self.measured else self.predicted / self.measured - 1


def cases(models: Sequence[str] = ()) -> Iterator[ValidatedCase]:
    """Yield every model in every precision, with checkpointing where it has blocks for that."""
    for half, names in (("tuning", TUNING), ("held-out", HELD_OUT)):
        wanted = [name for name in names if not models or name in models]
        for name in [*wanted, *(f"{one}_checkpointed" for one in wanted if one in CHECKPOINTED)]:
            for precision in PRECISIONS:
                yield _case(name, half, precision)


def _case(name: str, half: str, precision: str) -> ValidatedCase:
    workload = Workload(precision=precision)
    predicted: int | None = None
    why = ""
    try:
        found = trace(_HERE / "models.py", name, (), workload, python=sys.executable, folder=_HERE, gpu=False)
        predicted = max(found.peak, found.step_peak)
    except CordeeError as error:
        why = str(error.text)
    request = {
        "path": str(_HERE / "models.py"), "function": name, "trains": True, "precision": precision, "optimizer": "adamw",
        "micro_batch": 1, "sequence": 1,
    }  # fmt: skip
    command = [sys.executable, str(_HERE / "truth.py"), json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRUTH_S, check=False)
        measured = int(json.loads(done.stdout.splitlines()[-1])["peak"])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return ValidatedCase(name, half, precision, predicted, None, why or "the model could not be run")
    return ValidatedCase(name, half, precision, predicted, measured, why)


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
    }
