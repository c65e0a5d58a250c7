"""Predictions of `cordee plan` for configurations that others published: memory of each GPU, tokens per second, rank of MFU.

`python benchmarks/plan_published.py CONFIGURATIONS.json` prints Markdown; the file is a list of configurations with what their
authors measured. Those in TUNING set the constants of `memory.py` and `step_time.py`; the rest did not.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.step_time import step_time
from cordee.systems.sizing.devices import PlannedGpu, device_of
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.workload import Workload

TUNING = {
    "p01", "p02", "p03", "p07", "p08", "p11", "p15", "p16", "p18", "p21", "p24", "p26", "p28", "p31", "p34", "p35", "p38",
}  # fmt: skip
# The makers' words, as the table of GPUs has them. These H100 are limited to 500 W, their source says.
GPUS = {"RTX4090": "4090", "H100-96GB": "H100 96GB HBM2e"}


class PublishedCase(NamedTuple):
    """One configuration: what was predicted, and what its authors measured; None: not told."""

    name: str
    tuning: bool
    peak: float
    memory: float | None
    fits: bool
    really_fits: bool
    tokens: float | None
    measured_tokens: float | None
    mfu: float | None
    measured_mfu: float | None


def workload_of(entry: dict[str, Any]) -> Workload:
    """Return what a configuration does, as far as it says so."""
    note, layout = entry.get("note", ""), entry["layout"]
    micro = entry["micro_batch"]
    if entry["id"].startswith(
        ("p13", "p14")
    ):  # a batch of a data-parallel rank, in as many micro-batches as there are stages
        micro = max(1, micro // layout["pp"])
    batch = entry.get("global_batch")
    replicas = layout["dp"] * layout["fsdp"]
    # Where torchtune's table is silent its recipe for one GPU speaks: checkpointing is on, the optimizer paged and in backward.
    known = "full" if entry["checkpointing"] == "unknown" else entry["checkpointing"]
    recipe = "torchtune" in entry["source"] and entry["task"] == "full" and entry["gpus"] == 1
    return Workload(
        task={"pretrain": "train", "full": "train"}.get(entry["task"], entry["task"]),
        precision={"bf16-true": "bf16-pure"}.get(entry["precision"], entry["precision"]),
        optimizer="adamw-8bit" if "8-bit" in note or recipe else "adamw-fused",
        micro_batch=micro,
        batch=batch if batch and batch % (replicas * micro) == 0 else None,
        sequence=entry["sequence"],
        checkpointing="selective" if known.startswith("sel") else known,
        compiled="compile" in note or entry["precision"] == "fp8",
        offload="paged" in note or recipe,
        step_in_backward="in backward" in note or recipe,
        chunked_loss="torchtune" in entry["source"],
    )


def layout_of(entry: dict[str, Any]) -> Layout:
    """Return a configuration's layout; pipelines are interleaved by single layers but where their source says otherwise."""
    sizes = entry["layout"]
    parts = 1
    if sizes["pp"] > 1:
        parts = entry["architecture"]["layers"] // sizes["pp"]
        if entry["id"].startswith("p13"):
            parts = 1
        elif entry["id"].startswith("p14"):
            parts = 5
    return Layout(**sizes, zero=entry.get("zero_stage", 0), interleaved=parts)


def case_of(entry: dict[str, Any]) -> PublishedCase:
    """Return what is predicted for one configuration."""
    a = entry["architecture"]
    model = Architecture(
        entry["model"], layers=a["layers"], width=a["hidden"], heads=a["heads"], kv_heads=a["kv_heads"],
        head_width=a["hidden"] // a["heads"], ffn=a["ffn"], vocabulary=a["vocab"], gated=a["gated"], tied=a["tied"],
    )  # fmt: skip
    workload, layout = workload_of(entry), layout_of(entry)
    device: PlannedGpu = device_of(GPUS.get(entry["gpu"], entry["gpu"]))
    device = replace(device, memory=entry["gpu_memory_gb"] * 1e9)
    parts, time = formula_parts(model, workload, layout), step_time(model, workload, layout, device)
    tokens = mfu = measured = measured_mfu = None
    if time is not None and device.flops:
        each = time.flops / time.tokens
        tokens, mfu = time.tokens_per_second / layout.gpus, time.mfu(device)
        measured = entry.get("tokens_s_gpu")
        if measured is None and ("mfu" in entry or "tflops_gpu" in entry):
            reached = entry["mfu"] * device.flops if "mfu" in entry else entry["tflops_gpu"] * 1e12
            measured = reached / each
        measured_mfu = None if measured is None else measured * each / device.flops
    memory = entry.get("memory_per_gpu", {}).get("bytes")
    key = entry["id"].partition("-")[0]
    fits = parts.peak <= device.memory * 1.074  # makers' GB of such cards are GiB
    return PublishedCase(
        entry["id"], key in TUNING, parts.peak, memory, fits, entry["fits"], tokens, measured, mfu, measured_mfu
    )


def correlation(pairs: list[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation."""

    def ranks(values: list[float]) -> list[float]:
        order = sorted(values)
        return [order.index(value) + (order.count(value) - 1) / 2 for value in values]

    first, second = (ranks([pair[side] for pair in pairs]) for side in (0, 1))
    return statistics.correlation(first, second)


def percent(value: float, measured: float | None) -> str:
    """Return by how much a prediction is above what was measured."""
    return "-" if not measured else f"{value / measured - 1:+.0%}"


def main(path: Path) -> None:
    """Print every configuration, and what the halves come to."""
    found = [case_of(entry) for entry in json.loads(path.read_text())]
    print(
        "| configuration | half | memory, GB | measured | | tokens/s of a GPU | measured | | fits, really |\n"
        + "|---" * 9
        + "|"
    )
    for one in found:
        memory = f"{one.memory / 1e9:.1f}" if one.memory else "-"
        pace = f"{one.tokens:.0f}" if one.tokens else "-"
        measured = f"{one.measured_tokens:.0f}" if one.measured_tokens else "-"
        print(
            f"| {one.name} | {'tuning' if one.tuning else 'held-out'} | {one.peak / 1e9:.1f} | {memory} | {percent(one.peak, one.memory)} "
            f"| {pace} | {measured} | {percent(one.tokens or 0, one.measured_tokens)} | {one.fits}, {one.really_fits} |"
        )
    print(
        "\n| half | memory, median error | tokens/s, median error | rank correlation of MFU | fits right |\n"
        + "|---" * 5
        + "|"
    )
    for tuning in (True, False):
        half = [one for one in found if one.tuning is tuning]
        memory = [abs(one.peak / one.memory - 1) for one in half if one.memory]
        pace = [abs(one.tokens / one.measured_tokens - 1) for one in half if one.tokens and one.measured_tokens]
        pairs = [(one.mfu, one.measured_mfu) for one in half if one.mfu and one.measured_mfu]
        right = sum(one.fits == one.really_fits for one in half)
        print(
            f"| {'tuning' if tuning else 'held-out'} | {statistics.median(memory):.1%} of {len(memory)} | {statistics.median(pace):.1%} of {len(pace)} "
            f"| {correlation(pairs):.2f} | {right} of {len(half)} |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
