"""Sizes of known models, the bytes that are known of them, and what a layout makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import DocumentError, UsageError
from cordee.systems.sizing.architecture import Architecture, read_architecture
from cordee.systems.sizing.costs.step_time import collective_seconds
from cordee.systems.sizing.devices import PlannedGpu, device_of
from cordee.systems.sizing.layouts import changes, ranked, smallest, solve
from cordee.systems.sizing.memory import CONTEXT_BYTES, formula_parts
from cordee.systems.sizing.parallelism import Layout, balanced, refusal
from cordee.systems.sizing.workload import Workload

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
LLAMA_3 = {**LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256}
MIXTRAL = {
    **LLAMA_3,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
VIT = {**BERT, "model_type": "vit", "num_labels": 1000}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
PHI_3 = {**LLAMA, "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "vocab_size": 32064}
GEMMA = {
    **LLAMA, "model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
    "num_attention_heads": 16, "vocab_size": 256000,
}  # fmt: skip
QWEN_3_MOE = {
    **LLAMA, "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "head_dim": 128, "vocab_size": 151936, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
}  # fmt: skip
PYTHIA = {**LLAMA, "model_type": "gpt_neox", "intermediate_size": 16384, "vocab_size": 50432}
Read = Callable[[dict[str, Any]], Architecture]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what reads a config.json."""

    def call(config: dict[str, Any]) -> Architecture:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return read_architecture(tmp_path / "config.json")

    return call


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (LLAMA, 6_738_415_616),
        (LLAMA_3, 8_030_261_248),
        (MIXTRAL, 46_702_792_704),
        (GPT2, 124_439_808),
        (BERT, 109_482_240),
        (VIT, 86_567_656),
        (PHI_3, 3_821_079_552),
        (GEMMA, 8_537_680_896),
        (QWEN_3_MOE, 30_532_122_624),
        (PYTHIA, 6_857_302_016),
        (
            {
                **BERT,
                "model_type": "roberta",
                "vocab_size": 50265,
                "max_position_embeddings": 514,
                "type_vocab_size": 1,
            },
            124_645_632,
        ),
    ],
)
def test_models_have_as_many_parameters_as_those_who_published_them_say(read, config, parameters):
    assert read(config).parameters == parameters


def test_default_adamw_takes_20_bytes_for_each_fp32_parameter_and_fused_16(read):
    model, small = read(LLAMA), Workload(precision="fp32", sequence=1)
    for optimizer, each in (("adamw", 20), ("adamw-fused", 16)):
        parts = formula_parts(model, replace(small, optimizer=optimizer))
        states = parts.parameters + parts.gradients + parts.optimizer + parts.others.get("optimizer step", 0)
        assert states == pytest.approx(each * model.parameters, rel=0.001)


def test_the_wikis_example_is_112_gb_of_states_and_28_gb_for_inference(tmp_path):
    (tmp_path / "m.toml").write_text("[model]\nparameters = 7e9\n")
    model = read_architecture(tmp_path / "m.toml")
    training = formula_parts(model, Workload(precision="fp32", optimizer="adamw-fused"))
    assert training.parameters + training.gradients + training.optimizer == 112e9
    assert training.activations is None
    assert formula_parts(model, Workload(precision="fp32", task="inference")).parameters == 28e9


def test_fsdp_divides_states_and_zero_1_only_those_of_the_optimizer(read):
    model, work = read(LLAMA), Workload()
    alone, fsdp = formula_parts(model, work), formula_parts(model, work, Layout(fsdp=8))
    zero = formula_parts(model, work, Layout(dp=8, zero=1))
    assert fsdp.parameters == alone.parameters / 8
    assert fsdp.optimizer == alone.optimizer / 8
    assert zero.parameters > fsdp.parameters
    assert zero.optimizer < alone.optimizer / 5


def test_keys_and_values_of_a_cache_grow_with_batch_and_context(read):
    model = read(LLAMA_3)
    work = Workload(task="inference", precision="bf16", sequence=8192, micro_batch=4)
    cache = formula_parts(model, work).others["cache of keys and values"]
    assert cache == 2 * 32 * 8 * 128 * 2 * 8192 * 4


@pytest.mark.parametrize(
    ("config", "layout", "why"),
    [
        (LLAMA, Layout(tp=5), "32 heads"),
        (LLAMA, Layout(pp=64), "32 layers are too few"),
        (LLAMA, Layout(dp=8, ep=8), "no experts"),
        (MIXTRAL, Layout(dp=16, ep=16), "8 experts"),
        (LLAMA, Layout(cp=3), "cannot be divided into"),
        (LLAMA, Layout(), ""),
    ],
)
def test_impossible_divisions_say_why(read, config, layout, why):
    said = refusal(read(config), Workload(), layout)
    assert why in said
    assert bool(said) == bool(why)


def test_an_unknown_architecture_is_refused_with_those_that_are_known(read):
    with pytest.raises(DocumentError) as error:
        read({"model_type": "albert", "num_hidden_layers": 12})
    assert "llama" in str(error.value.allowed)
    with pytest.raises(DocumentError):
        read({"model_type": "llama", "hidden_size": 4096})
    with pytest.raises(DocumentError):
        read({**LLAMA, "num_key_value_heads": 5})


def test_a_wrong_key_of_a_table_is_refused_with_its_line(tmp_path):
    (tmp_path / "m.toml").write_text("[model]\nlayers = 2\nwidht = 64\n")
    with pytest.raises(DocumentError) as error:
        read_architecture(tmp_path / "m.toml")
    assert (error.value.line, error.value.next) == (3, "did you mean width?")


def test_names_of_gpus_as_people_write_them_find_one_table():
    assert device_of("a100_80gb").memory == pytest.approx(79.1 * (1 << 30), rel=0.003)
    assert device_of("NVIDIA H100 80GB HBM3").flops == 989e12
    assert device_of("h100").sustained == 1.0
    assert device_of("4090").fp8
    assert not device_of("a100").fp8


@pytest.mark.parametrize("name", ["tpu9", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
def test_a_gpu_nobody_knows_and_an_instance_need_their_memory(name):
    with pytest.raises(UsageError) as error:
        device_of(name)
    assert "--gpu-memory" in str(error.value.next)
    assert device_of(name, memory="5GB").memory == 5e9


def test_layouts_are_ranked_by_pace_with_those_that_do_not_fit_behind_and_each_has_a_reason(read):
    found = ranked(read(LLAMA), Workload(sequence=4096), device_of("a100_80gb"), 8)
    fits = [one.fits for one in found]
    assert fits == sorted(fits, reverse=True)
    paces = [one.time.tokens_per_second for one in found if one.fits and one.time]
    assert paces == sorted(paces, reverse=True)
    assert all(one.reason for one in found)
    assert found[0].reason.startswith("the fastest that fits")
    assert {one.layout.gpus for one in found} == {8}


def test_what_does_not_fit_on_one_gpu_fits_on_the_fewest_and_no_fewer(read):
    model, work, device = read(LLAMA), Workload(sequence=4096), device_of("a100_80gb")
    fewest = smallest(model, work, device)
    assert fewest is not None
    assert fewest.layout.gpus > 1
    assert not any(one.fits for one in ranked(model, work, device, fewest.layout.gpus // 2))
    assert solve("gpus", model, work, Layout(), device) == fewest.layout.gpus


def test_more_memory_than_any_number_of_gpus_has_is_said(read):
    tiny = PlannedGpu("tiny", 1e9, most=4)
    assert smallest(read(LLAMA), Workload(), tiny) is None
    assert solve("gpus", read(LLAMA), Workload(), Layout(), tiny) == 0


@pytest.mark.parametrize("what", ["batch", "sequence", "layers"])
def test_the_largest_that_fits_fits_and_one_more_does_not(read, what):
    model, device, layout = read(LLAMA), device_of("a100_80gb"), Layout(fsdp=8)
    most = solve(what, model, Workload(), layout, device)

    def peak(size: int) -> float:
        work = (
            Workload()
            if what == "layers"
            else replace(Workload(), **{"micro_batch" if what == "batch" else what: size})
        )
        return formula_parts(replace(model, layers=size) if what == "layers" else model, work, layout).peak

    assert most > 0
    assert peak(most) <= device.memory < peak(most + 1)


def test_changes_are_named_with_their_peaks_and_those_that_fit_do(read):
    model, device = read(LLAMA), device_of("a100_80gb")
    work = Workload(precision="bf16", micro_batch=8, sequence=4096)
    found = changes(model, work, Layout(fsdp=4), device)
    assert any("accumulation" in one.words for one in found)
    assert any(one.fits and "checkpointing" in one.words for one in found)
    now = formula_parts(model, work, Layout(fsdp=4)).peak
    assert all(one.peak < now for one in found)


def test_an_all_reduce_takes_twice_as_long_as_an_all_gather_and_more_over_nodes():
    device = device_of("h100")
    gather, reduce = (collective_seconds(kind, 1e9, 8, device) for kind in ("all-gather", "all-reduce"))
    assert reduce == pytest.approx(2 * gather, rel=0.1)
    assert collective_seconds("all-gather", 1e6, 64, device) > collective_seconds("all-gather", 1e6, 8, device)
    assert collective_seconds("all-gather", 1e9, 1, device) == 0


def test_pipeline_stages_with_embedding_and_head_get_fewer_layers():
    assert balanced(32, 4, embedding=2.0, head=2.0, block=1.0) == [7, 9, 9, 7]
    assert sum(balanced(30, 4, embedding=0.0, head=1.0, block=1.0)) == 30


def test_a_step_in_backward_holds_a_block_of_gradients_and_a_chunked_loss_an_eighth_of_the_logits(read):
    model, work = read(LLAMA_3), Workload(precision="bf16-pure", optimizer="adamw-8bit", checkpointing="full")
    less = replace(work, step_in_backward=True, chunked_loss=True)
    plain, lean = formula_parts(model, work), formula_parts(model, less)
    assert plain.peak - lean.peak > 0.9 * 2 * model.parameters
    logits = [formula_parts(model, replace(one, task="lora")).logits for one in (work, less)]
    assert logits[0] == 8 * logits[1]


@pytest.mark.parametrize("task", ["train", "lora", "qlora", "inference"])
def test_experts_are_divided_once_among_ranks_that_have_experts_and_shards(task, read):
    model, work = read(MIXTRAL), Workload(task=task)
    held = [
        formula_parts(model, work, layout).parameters
        for layout in (Layout(fsdp=8), Layout(fsdp=8, ep=8), Layout(fsdp=8, ep=2))
    ]
    assert max(held) == pytest.approx(min(held), rel=1e-9)
    assert formula_parts(model, work, Layout(dp=8, ep=8)).parameters > held[0]
    assert 8 * held[0] >= 0.9 * formula_parts(model, work).parameters


def test_a_token_goes_through_shared_experts_and_blocks_without_experts_too(read):
    mixed = replace(read(MIXTRAL), dense_layers=8, dense_ffn=20_000, shared_ffn=3_000)
    plain = replace(read(MIXTRAL), shared_ffn=0)
    assert mixed.token_ffn == 0.25 * 20_000 + 0.75 * (2 * mixed.ffn + 3_000)
    assert plain.token_ffn == 2 * plain.ffn
    assert read(LLAMA).token_ffn == read(LLAMA).ffn


def test_megatrons_optimizer_divides_states_over_ranks_of_context_parallelism_and_no_parameters(read):
    model, work = read(LLAMA_3), Workload()
    alone, both = (
        formula_parts(model, work, Layout(dp=4, zero=1)),
        formula_parts(model, work, Layout(dp=4, zero=1, cp=2)),
    )
    assert both.parameters == alone.parameters
    assert both.optimizer == alone.optimizer / 2


def test_fsdp_in_a_pipeline_keeps_whole_parameters_and_gradients_over_its_micro_batches(read):
    model, work = read(LLAMA_3), Workload(micro_batch=1, batch=64, checkpointing="full")
    parts = formula_parts(model, work, Layout(fsdp=8, pp=2, interleaved=1))
    assert parts.gradients > 4 * model.parameters / 2 * 0.9
    assert parts.others["gathers"] > 2 * model.parameters / 2 * 0.9


# Peaks of LoRA (rank 8, on queries and values) by the allocator, in GB, as LitGPT's resource tables have them for an A100 with 40 GB.
PHI_15 = Architecture(
    "phi-1.5", layers=24, width=2048, heads=32, kv_heads=32, head_width=64, ffn=8192, vocabulary=51200, tied=False, biases=True
)  # fmt: skip
STABLELM = Architecture(
    "stablelm-3b", layers=16, width=4096, heads=32, kv_heads=32, head_width=128, ffn=16384, vocabulary=50688, tied=False, biases=True
)  # fmt: skip
LLAMA_2 = {
    width: Architecture(
        "llama-2", layers=layers, width=width, heads=layers, kv_heads=layers, head_width=128, ffn=ffn, vocabulary=32000,
        gated=True, tied=False,
    )
    for width, layers, ffn in ((4096, 32, 11008), (5120, 40, 13824))
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "sequence", "task", "batch", "measured"),
    [
        (PHI_15, 1044, "lora", 1, 4.82),
        (PHI_15, 1044, "lora", 4, 10.68),
        (PHI_15, 1044, "qlora", 1, 3.78),
        (STABLELM, 1034, "lora", 1, 9.69),
        (STABLELM, 1034, "qlora", 1, 6.35),
        (LLAMA_2[4096], 1304, "lora", 2, 29.07),
        (LLAMA_2[4096], 1304, "qlora", 1, 14.14),
        (LLAMA_2[5120], 1304, "lora", 1, 38.12),
        (LLAMA_2[5120], 1304, "qlora", 1, 23.14),
    ],
)
def test_what_the_allocator_holds_is_what_others_measured(model, sequence, task, batch, measured):
    work = Workload(
        task=task, precision="bf16-pure", sequence=sequence, micro_batch=batch, batch=128, chunked_loss=True
    )
    parts = formula_parts(model, work)
    assert parts.reserved == pytest.approx(measured * 1e9, rel=0.06)
    assert parts.peak - parts.reserved == CONTEXT_BYTES
