"""What a plan says beside a GPU's peak: serving, goals, the host's memory, disk, a picture, and what past runs have taught."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.costs.goal import read_goal
from cordee.systems.sizing.costs.host_memory import disk_bytes, host_parts
from cordee.systems.sizing.costs.inference import serving
from cordee.systems.sizing.costs.step_time import step_time, traced_time
from cordee.systems.sizing.devices import device_of
from cordee.systems.sizing.layouts import checkpoint_bytes, examined, largest_that, parts_of
from cordee.systems.sizing.measured import calibration
from cordee.systems.sizing.measured.calibration import MeasuredPeak, calibrated, keep_calibration
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.picture import trade_off
from cordee.systems.sizing.snippets import snippet
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

MODEL = "[model]\nlayers = 32\nwidth = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n"
LLAMA = Architecture(
    "llama", layers=32, width=4096, heads=32, kv_heads=8, head_width=128, ffn=14336, vocabulary=128256, gated=True, tied=False
)  # fmt: skip
H100 = device_of("h100_80gb")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of Llama-2-7B's sizes, no cluster but this machine, and a cache of its own."""
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calibration.known_calibration.cache_clear()
    (tmp_path / "llama.toml").write_text(MODEL)
    yield tmp_path / "llama.toml"
    calibration.known_calibration.cache_clear()


def test_tokens_come_as_fast_as_weights_and_cache_are_read_and_more_sequences_serve_more():
    work = Workload(task="inference", micro_batch=1, sequence=4096)
    one, many = (serving(LLAMA, replace(work, micro_batch=size), Layout(), H100, largest_that) for size in (1, 32))
    assert one is not None
    assert many is not None
    assert one.token_s is not None
    assert many.tokens_per_second is not None
    assert one.tokens_per_second is not None
    assert one.token_s > 2 * LLAMA.parameters / H100.bandwidth
    assert many.tokens_per_second > 10 * one.tokens_per_second
    assert formula_parts(LLAMA, replace(work, micro_batch=one.most_sequences)).peak <= H100.memory
    assert one.instances == int(H100.memory // formula_parts(LLAMA, work).peak) > 1


@pytest.mark.parametrize(
    ("text", "amount", "unit"), [("300B", 3e11, "tokens"), ("20k steps", 2e4, "steps"), ("1e6 samples", 1e6, "samples")]
)
def test_goals_are_read_as_people_write_them(text, amount, unit):
    assert (read_goal(text).amount, read_goal(text).unit) == (amount, unit)


@pytest.mark.parametrize("text", ["", "many tokens", "0", "5 epochs", "1.2.3"])
def test_what_is_no_goal_says_what_is(text):
    with pytest.raises(UsageError) as error:
        read_goal(text)
    assert "tokens" in str(error.value.allowed)


def test_a_goal_takes_its_share_of_steps_and_energy():
    one = examined(LLAMA, Workload(checkpointing="full"), Layout(fsdp=8), H100)
    found = read_goal("1B").document(one, H100)
    assert one.time is not None
    assert found["seconds"] == pytest.approx(1e9 / one.time.tokens_per_second)
    assert found["gpu_hours"] == pytest.approx(8 * found["seconds"] / 3600)
    assert found["energy_joules"] == pytest.approx(8 * found["seconds"] * H100.power)
    assert read_goal("10 samples").document(one, H100)["seconds"] is None


def test_the_host_holds_snapshot_loader_and_what_is_offloaded_and_the_disk_checkpoints():
    work = Workload(offload=True)
    plain = host_parts(LLAMA, replace(work, offload=False), Layout(fsdp=16), H100)
    found = host_parts(LLAMA, work, Layout(fsdp=16), H100)
    assert found["offloaded optimizer states"] == pytest.approx(8 * LLAMA.parameters / 2)  # of the 8 ranks of one node
    assert plain["checkpoint snapshot"] == pytest.approx(checkpoint_bytes(LLAMA, work) / 2)
    assert set(plain) == {"ranks", "loader", "checkpoint snapshot"}
    assert disk_bytes(LLAMA, work, kept=1) == 2 * checkpoint_bytes(LLAMA, work)


def test_offloaded_activations_leave_two_blocks_on_the_gpu_and_cost_time():
    work, layout = Workload(micro_batch=4, sequence=4096), Layout(fsdp=8)
    moved = replace(work, offload_activations=True)
    here, there = (formula_parts(LLAMA, one, layout).activations or 0 for one in (work, moved))
    assert 0 <= there < here / 8
    assert host_parts(LLAMA, moved, layout, H100)["offloaded activations"] == pytest.approx(8 * here * 30 / 32)
    times = [step_time(LLAMA, one, layout, H100) for one in (work, moved)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[1].seconds >= times[0].seconds


def test_a_traced_step_takes_as_long_as_its_work_and_half_a_batch_half_of_it():
    model = TracedModel(
        "a", 800, 800, 1600, 0, 90, 800, 3290, 4000, 100, batch=8, blocks=4, half_flops=1e14, moved_bytes=1e11
    )  # fmt: skip
    whole, half = (traced_time(model, Workload(micro_batch=size), Layout(), H100) for size in (8, 4))
    assert whole is not None
    assert half is not None
    assert whole.matrices > 1e14 / (H100.flops or 0)
    assert half.seconds == pytest.approx(whole.seconds / 2, rel=0.01)
    assert whole.tokens == 8
    assert traced_time(replace(model, moved_bytes=0.0), Workload(), Layout(), H100) is None


def test_a_picture_has_a_dot_for_each_layout_and_is_written_as_a_page(model, tmp_path):
    page = tmp_path / "p.html"
    done = CliRunner().invoke(command, [str(model), "--gpu", "h100_80gb", "--gpus", "8", "--picture", str(page)])
    assert done.exit_code == 0, done.output
    assert page.read_text().count("<path") >= 4
    assert trade_off([{"name": "a", "pace": 1.0, "unit": "tokens", "peak_bytes": 5, "fits": True}], 9.0) == ""
    done = CliRunner().invoke(
        command, [str(model), "--gpu", "h100_80gb", "--gpus", "8", "--picture", "/proc/no/p.html"]
    )
    assert "cannot be written" in str(done.exception)


def test_predictions_are_corrected_by_the_median_of_at_least_three_runs_of_their_kind(model):
    runs = [MeasuredPeak(f"r{n}", "gpu-formula", 100, size, True) for n, size in enumerate((110, 120, 400))]
    assert calibrated(runs[:2]) == {}
    before = parts_of(LLAMA, Workload()).peak
    assert keep_calibration(runs) == {"gpu-formula": 1.2}
    assert parts_of(LLAMA, Workload()).peak == pytest.approx(1.2 * before)
    assert parts_of(LLAMA, Workload(on_gpu=False)).others.get("calibration") is None
    assert keep_calibration([]) == {}
    assert parts_of(LLAMA, Workload()).peak == before


def test_calibrate_says_how_many_runs_it_takes(model, monkeypatch):
    monkeypatch.setenv("CORDEE_RUNS", str(model.parent / "runs"))
    done = CliRunner().invoke(command, ["calibrate"])
    assert (done.exit_code, "3 finished runs" in done.output) == (0, True)


# The keys of DeepSpeed's configuration that are written, with the types of its own models (deepspeed/runtime/zero/config.py and
# runtime/constants.py, 0.19.8, whose reader has taken such files).
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": int, "gradient_accumulation_steps": int, "train_batch_size": int,
    "gradient_clipping": float, "zero_optimization": dict, "bf16": dict, "fp16": dict, "activation_checkpointing": dict,
}  # fmt: skip
ZERO = {"stage": int, "overlap_comm": bool, "offload_optimizer": dict}


@pytest.mark.parametrize(("layout", "stage"), [(Layout(fsdp=8), 3), (Layout(dp=4, zero=2), 2), (Layout(dp=4), 0)])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_deepspeeds_file_has_only_keys_of_its_schema_and_batches_that_agree(layout, stage, precision):
    work = Workload(precision=precision, micro_batch=2, batch=layout.replicas * 6, checkpointing="full", offload=True)
    found = json.loads(snippet("deepspeed", layout, work))
    assert {key: type(value) for key, value in found.items()}.items() <= DEEPSPEED.items()
    zero = found["zero_optimization"]
    assert {key: type(value) for key, value in zero.items()}.items() <= ZERO.items()
    assert zero["stage"] == stage
    assert found["train_batch_size"] == 2 * found["gradient_accumulation_steps"] * layout.replicas
    assert snippet("deepspeed", Layout(dp=2, fsdp=8), work).startswith("# No code for HSDP 2 x 8")
    assert ("bf16" in found, "fp16" in found) == (precision == "bf16", precision == "fp16")


# Of Megatron-LM's megatron/training/arguments.py: options with a number, with a word of a list, and alone.
NUMBERS = {
    "num-layers", "hidden-size", "num-attention-heads", "ffn-hidden-size", "seq-length", "max-position-embeddings",
    "micro-batch-size", "global-batch-size", "tensor-model-parallel-size", "pipeline-model-parallel-size",
    "context-parallel-size", "expert-model-parallel-size", "num-query-groups", "kv-channels", "num-experts",
    "moe-router-topk", "recompute-num-layers", "num-layers-per-virtual-pipeline-stage",
}  # fmt: skip
WORDS = {
    "recompute-granularity": {"full", "selective"}, "recompute-method": {"uniform", "block"}, "fp8-format": {"e4m3", "hybrid"},
    "position-embedding-type": {"learned_absolute", "rope", "none"},
}  # fmt: skip
ALONE = {
    "group-query-attention", "swiglu", "disable-bias-linear", "untie-embeddings-and-output-weights", "sequence-parallel",
    "use-distributed-optimizer", "bf16", "fp16", "optimizer-cpu-offload",
}  # fmt: skip


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "layout", [Layout(dp=2, zero=1, tp=4, pp=4, interleaved=2), Layout(fsdp=4, cp=2), Layout(dp=8, ep=8)]
)
def test_megatrons_arguments_are_those_of_its_parser_and_multiply_to_the_batch(layout, checkpointing):
    model = replace(LLAMA, experts=8, experts_per_token=2) if layout.ep > 1 else LLAMA
    work = Workload(micro_batch=1, sequence=8192, checkpointing=checkpointing, precision="fp8")
    found = dict(
        (line.strip(" \\").removeprefix("--") + " ").split(" ", 1)
        for line in snippet("megatron", layout, work, model).splitlines()
    )
    for name, value in found.items():
        if name in WORDS:
            assert value.strip() in WORDS[name]
        else:
            assert name in (ALONE if not value.strip() else NUMBERS)
    assert int(found["global-batch-size"]) % (layout.replicas * int(found["micro-batch-size"])) == 0
    assert int(found["tensor-model-parallel-size"]) == layout.tp
    assert ("moe-router-topk" in found) == (layout.ep > 1)
    assert "No arguments" in snippet("megatron", layout, work, replace(model, kind="vision"))
