"""Predictions of `cordee plan` that are written down before anybody looks at what was measured, and then what they miss by.

    python benchmarks/plan_blind.py predict CONFIGURATIONS.json > PREDICTIONS.tsv
    python benchmarks/plan_blind.py compare CONFIGURATIONS.json PREDICTIONS.tsv MEASURED.json

The first file has configurations that others published, without a figure of theirs; the last has their figures by `id`. The
predictions name the digest of the first, and are committed before the last is opened: a change of either is seen.
"""

from __future__ import annotations

import csv
import hashlib
import json
import statistics
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from plan_published import correlation

from cordee.core.errors import CordeeError
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.step_time import step_time
from cordee.systems.sizing.devices import device_of
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout, refusal
from cordee.systems.sizing.workload import Workload

GIB = 1 << 30
COLUMNS = ("id", "memory_bytes", "tokens_per_second", "mfu", "flops_per_token", "peak_flops", "why")
# Megatron as BigScience had it, in 2021: attention by matrices of sequence times sequence.
WITHOUT_FLASH = ("s14", "s15", "s16", "s17")
PURE = ("litgpt (bf16-true)", "torchtune")


def architecture_of(entry: dict[str, Any]) -> Architecture:
    """Return the model of a configuration."""
    a = entry["model"]
    learned = a.get("positions") == "learned"
    return Architecture(
        a["name"], layers=a["layers"], width=a["hidden"], heads=a["heads"], kv_heads=a["kv_heads"],
        head_width=a.get("head_dim") or a["hidden"] // a["heads"], ffn=a["ffn"], vocabulary=a["vocab"], gated=a["gated"],
        tied=a["tied"], positions=entry["sequence"] if learned else 0, biases=not a["gated"] and not a["name"].startswith("MPT"),
        experts=a.get("experts") or 0, experts_per_token=a.get("experts_per_token") or 0,
    )  # fmt: skip


def layout_of(entry: dict[str, Any]) -> Layout:
    """Return the layout of a configuration; ZeRO 3 is FSDP."""
    sizes = dict(entry["layout"])
    zero = sizes["zero"]
    if zero == 3 and sizes["fsdp"] == 1:
        sizes["fsdp"], sizes["dp"] = sizes["dp"], 1
    sizes = {name: sizes[name] for name in ("dp", "fsdp", "tp", "pp", "cp", "ep")}
    return Layout(
        **sizes, zero=0 if zero == 3 or sizes["fsdp"] > 1 else zero, interleaved=entry["layout"].get("vpp") or 1
    )


def workload_of(entry: dict[str, Any], layout: Layout) -> Workload:
    """Return what a configuration does."""
    extras = " ".join(entry.get("extras", ()))
    batch, micro = entry["global_batch"], entry["micro_batch"]
    pure = entry["framework"].startswith(PURE) and entry["precision"] == "bf16"
    return Workload(
        task=entry["task"].replace("finetune", "train"),
        precision="bf16-pure" if pure else entry["precision"],
        optimizer="adamw-8bit" if "8" in entry["optimizer"] else "adamw-fused",
        micro_batch=micro,
        batch=batch if batch and batch % (layout.replicas * micro) == 0 else None,
        sequence=entry["sequence"],
        checkpointing=entry["checkpointing"],
        rank=(entry.get("lora") or {}).get("rank", 8),
        compiled=bool(entry["compile"]) or entry["precision"] == "fp8",
        offload="CPU offload of parameters" in extras,
        offload_activations="activation offload" in extras or "kept in CPU memory" in extras,
        step_in_backward="in backward" in extras,
        chunked_loss="chunked" in extras,
        flash=not entry["id"].startswith(WITHOUT_FLASH),
    )


def predicted(entry: dict[str, Any]) -> dict[str, Any]:
    """Return one line: what is predicted for a configuration, or why nothing is."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {"id": entry["id"]}
    model, layout = architecture_of(entry), layout_of(entry)
    workload = workload_of(entry, layout)
    try:
        device = device_of(entry["gpu"])
    except CordeeError as error:
        return row | {"why": str(error.text)}
    domain = 72 if "NVL72" in entry.get("gpu_detail", "") else entry["gpus_per_node"]
    device = replace(device, per_node=domain)
    why = refusal(model, workload, layout)
    if why:
        return row | {"why": why}
    parts, time = formula_parts(model, workload, layout), step_time(model, workload, layout, device)
    row["memory_bytes"] = round(parts.peak)
    if time is not None and device.flops:
        row["tokens_per_second"] = f"{time.tokens_per_second / layout.gpus:.6g}"
        row["mfu"] = f"{time.mfu(device):.4g}"
        row["flops_per_token"], row["peak_flops"] = f"{time.flops / time.tokens:.6g}", f"{device.flops:.6g}"
    return row


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def predict(configurations: Path) -> None:
    """Print a table of predictions."""
    print(f"# configurations {digest(configurations)}")
    writer = csv.DictWriter(sys.stdout, COLUMNS, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    for entry in json.loads(configurations.read_text()):
        writer.writerow(predicted(entry))


def measured_tokens(truth: dict[str, Any], entry: dict[str, Any], row: dict[str, str]) -> float | None:
    """Return the tokens per second of one GPU that somebody measured, by whichever figure they told."""
    if truth.get("tokens_per_s_per_gpu"):
        return float(truth["tokens_per_s_per_gpu"])
    if truth.get("step_s") and entry["global_batch"]:
        return float(entry["global_batch"] * entry["sequence"] / truth["step_s"] / entry["gpus"])
    if truth.get("mfu_percent"):
        return float(truth["mfu_percent"]) / 100 * float(row["peak_flops"]) / float(row["flops_per_token"])
    if truth.get("tflops_per_gpu") and "hardware" not in str(truth.get("tflops_kind", "")).lower():
        return float(truth["tflops_per_gpu"]) * 1e12 / float(row["flops_per_token"])
    return None


def measured_memory(truth: dict[str, Any]) -> float | None:
    """Return the bytes of one GPU that somebody measured."""
    held = truth.get("memory_gb_per_gpu")
    return None if not held else float(held) * (1e9 if truth.get("memory_unit") == "GB" else GIB)


def middle(values: list[float]) -> str:
    """Return the median of errors, how many are within 20 %, and how many there are."""
    if not values:
        return "-"
    near = sum(abs(value) <= 0.2 for value in values) / len(values)
    return f"{statistics.median(abs(value) for value in values):.1%} ({statistics.median(values):+.1%}), {near:.0%} within 20 %, of {len(values)}"


def compare(configurations: Path, predictions: Path, measured: Path) -> None:
    """Print what the predictions miss by: for each source, over all, and with each source counted once."""
    lines = predictions.read_text().splitlines()
    if lines[0].split()[-1] != digest(configurations):
        sys.exit("the predictions are of other configurations")
    rows = {row["id"]: row for row in csv.DictReader(lines[1:], delimiter="\t")}
    truths = json.loads(measured.read_text())
    memory, pace, shares, fits = (defaultdict(list) for _ in range(4))
    for entry in json.loads(configurations.read_text()):
        row, truth, source = rows[entry["id"]], truths.get(entry["id"], {}), entry["id"].split("-")[0]
        if entry.get("repeat_of") or not row["memory_bytes"]:
            continue
        held = measured_memory(truth)
        if held:
            memory[source].append(float(row["memory_bytes"]) / held - 1)
        if "fits" in truth:
            room = device_of(entry["gpu"]).memory
            fits[source].append(float(float(row["memory_bytes"]) <= room) == float(bool(truth["fits"])))
        tokens = measured_tokens(truth, entry, row) if row["tokens_per_second"] else None
        if tokens:
            pace[source].append(float(row["tokens_per_second"]) / tokens - 1)
            reached = tokens * float(row["flops_per_token"]) / float(row["peak_flops"])
            shares[source].append((float(row["mfu"]), reached))
    print("| source | memory | tokens/s of a GPU | rank correlation of MFU | fits right |\n" + "|---" * 5 + "|")
    sources = sorted({*memory, *pace, *fits})
    for source in [*sources, "all"]:
        keys = sources if source == "all" else [source]
        pairs = [pair for key in keys for pair in shares[key]]
        right = [one for key in keys for one in fits[key]]
        rank = f"{correlation(pairs):.2f}" if len({pair[1] for pair in pairs}) > 4 else "-"
        cells = [middle([value for key in keys for value in found[key]]) for found in (memory, pace)]
        print(f"| {source} | {' | '.join(cells)} | {rank} | {f'{sum(right)} of {len(right)}' if right else '-'} |")
    for name, found in (("memory", memory), ("tokens/s", pace)):
        medians = [statistics.median(abs(value) for value in found[key]) for key in found if found[key]]
        print(f"\n{name}: the median of the {len(medians)} sources' medians is {statistics.median(medians):.1%}")


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[2:]]
    predict(*paths) if sys.argv[1] == "predict" else compare(*paths)
