"""Models of Hugging Face transformers: the memory that PyTorch's allocator took on an H200 (benchmarks/results/2026-11-28-plan-on-h200.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cordee.systems.sizing.architecture import Architecture, architecture_of
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.workload import Workload

WIDE = {"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16}
GROUPED = {**WIDE, "intermediate_size": 5632, "num_key_value_heads": 4, "vocab_size": 32000}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "phi3": GROUPED,
    "qwen3": {**GROUPED, "vocab_size": 151936, "head_dim": 128},
    "gemma2": {**GROUPED, "vocab_size": 128000, "head_dim": 128, "sliding_window": 512, "final_logit_softcapping": 30.0},
    "gemma3_text": {**GROUPED, "vocab_size": 128000, "head_dim": 128, "sliding_window": 512},
    "gpt2": {"n_embd": 1600, "n_layer": 16, "n_head": 25, "vocab_size": 50257},
    "opt": {**WIDE, "ffn_dim": 8192, "word_embed_proj_dim": 2048, "vocab_size": 50272},
    "falcon": {**WIDE, "vocab_size": 65024},
    "t5": {"d_model": 1024, "d_ff": 4096, "num_layers": 12, "num_heads": 16, "d_kv": 64, "vocab_size": 32128},
    "bloom": {"hidden_size": 2048, "n_layer": 12, "n_head": 16, "vocab_size": 64000},
    "mixtral": {
        **GROUPED, "hidden_size": 1024, "intermediate_size": 2048, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "gpt_oss": {
        **GROUPED, "hidden_size": 1024, "intermediate_size": 1024, "num_local_experts": 16, "num_experts_per_tok": 4, "head_dim": 64,
    },
}  # fmt: skip
TRAINING = Workload(micro_batch=4, sequence=1024)
CHECKPOINTING = replace(TRAINING, checkpointing="full")
INFERENCE = Workload(task="inference", micro_batch=8, sequence=1024)


def read(kind: str) -> Architecture:
    return architecture_of({"model_type": kind, **CONFIGS[kind]}, "config.json")


def reserved(kind: str, work: Workload) -> float:
    return formula_parts(read(kind), work).reserved


@pytest.mark.parametrize(("kind", "measured"), [("llama", 17.66), ("gemma3_text", 28.25)])
def test_norms_of_single_operations_keep_fp32_and_each_matrix_a_copy_of_what_it_reads(kind, measured):
    assert reserved(kind, TRAINING) == pytest.approx(measured * 1e9, rel=0.05)


def test_an_activation_function_of_several_operations_keeps_what_lies_between_them():
    assert reserved("gpt2", TRAINING) == pytest.approx(21.01e9, rel=0.05)
    assert reserved("opt", TRAINING) == pytest.approx(16.87e9, rel=0.05)  # of one


@pytest.mark.parametrize(
    ("kind", "work", "measured"),
    [
        ("bloom", TRAINING, 22.85), ("bloom", INFERENCE, 5.08), ("gpt_oss", INFERENCE, 2.82), ("falcon", TRAINING, 20.26),
        ("falcon", INFERENCE, 3.01), ("t5", TRAINING, 29.72),
    ],
)  # fmt: skip
def test_attention_without_a_fused_kernel_keeps_its_scores(kind, work, measured):
    assert reserved(kind, work) == pytest.approx(measured * 1e9, rel=0.1)


def test_experts_compute_in_the_precision_of_their_parameters():
    parts = formula_parts(read("mixtral"), TRAINING)
    tensors = parts.reserved - parts.others["fragmentation"]
    assert tensors == pytest.approx(15.73e9, rel=0.03)


def test_logits_that_are_limited_are_kept_once_more():
    parts = formula_parts(read("gemma2"), TRAINING)
    tensors = parts.reserved - parts.others["fragmentation"]
    assert tensors == pytest.approx(25.89e9, rel=0.03)


@pytest.mark.parametrize(("kind", "work", "measured"), [("qwen3", CHECKPOINTING, 30.83), ("opt", CHECKPOINTING, 16.87)])
def test_the_allocator_keeps_what_the_loss_took_while_the_optimizer_steps(kind, work, measured):
    assert reserved(kind, work) == pytest.approx(measured * 1e9, rel=0.03)


@pytest.mark.parametrize(("kind", "measured"), [("llama", 2.08), ("phi3", 2.25), ("qwen3", 3.11)])
def test_inference_holds_the_names_of_a_block_and_all_of_its_mlp_at_once(kind, measured):
    assert reserved(kind, INFERENCE) == pytest.approx(measured * 1e9, rel=0.03)


def test_a_table_and_what_is_compiled_are_planned_for_fused_kernels():
    found = read("llama")
    table = replace(found, eager=None)
    for work in (TRAINING, CHECKPOINTING, INFERENCE):
        assert formula_parts(table, work).peak <= formula_parts(found, work).peak
    compiled = replace(TRAINING, compiled=True)
    assert formula_parts(table, compiled).activations == formula_parts(found, compiled).activations
