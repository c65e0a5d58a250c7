"""Weights that a config.json, or an option, holds in fewer bits: what they weigh, and what cannot be done with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import DocumentError
from cordee.systems.sizing.architecture import Architecture, read_architecture
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.workload import Workload

LLAMA_3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
MIXTRAL = {**LLAMA_3, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
MATRICES, EMBEDDING = 6_979_321_856, 525_336_576  # of Llama 3 8B: those of its blocks, and the head, which is as large
SERVE = Workload(task="inference")
ONE_GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}}


def written(folder: Path, config: dict[str, object], quantization: dict[str, object] | None = None) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**config, "quantization_config": quantization} if quantization else config))
    return path


@pytest.fixture
def quantized(tmp_path: Path):
    """Return what reads Llama 3 8B, or another config, with a quantization_config."""

    def call(quantization: dict[str, object], config: dict[str, object] = LLAMA_3) -> Architecture:
        return read_architecture(written(tmp_path, config, quantization))

    return call


def weights(model: Architecture, workload: Workload = SERVE) -> float:
    return formula_parts(model, workload).parameters


@pytest.mark.parametrize(
    ("quantization", "each"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, 0.375 + 2.375 / 4096),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, 0.5 + 2 / 64),
        ({"quant_method": "intel/auto-round", "bits": 2, "group_size": 32}, 0.25 + 2.25 / 32),
        ({"load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 0.5 + 4 / 64 / 4),
        ({"quant_method": "bitsandbytes", "_load_in_4bit": True}, 0.5 + 4 / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1 + 4 / 4096),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 128**2),
        ({"quant_method": "fbgemm_fp8"}, 1 + 4 / 4096),
        ({"quant_method": "eetq", "weights": "int8"}, 1 + 4 / 4096),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {"a": ONE_GROUP}}, 0.5 + 2 / 128),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, 0.5 + 1 / 16),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, 0.5 + 4 / 64),
        ({"quant_method": "quanto", "weights": "int4"}, 0.5 + 4 / 128),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, 1 + 2 / 4096),
        (
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}},
            0.5 + 4 / 64,
        ),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, 0.5 + 1 / 32),
        ({"quant_method": "higgs", "bits": 3}, 0.375 + 2 / 512),
        ({"quant_method": "bitnet"}, 0.25),
    ],
)  # fmt: skip
def test_matrices_of_blocks_take_the_bits_of_the_method_and_all_else_16(quantized, quantization, each):
    rest = 2 * (quantized({}).parameters - MATRICES)
    assert weights(quantized(quantization)) == pytest.approx(MATRICES * each + rest, rel=1e-5)


def test_aqlm_has_codebooks_for_every_matrix_and_weighs_what_its_authors_published(tmp_path):
    llama_2 = {**LLAMA_3, "intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
    aqlm = {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16}
    found = weights(read_architecture(written(tmp_path, llama_2, aqlm)))
    assert found == pytest.approx(2.38e9, rel=0.01)  # the file of Llama 2 7B with one codebook of 16 bits


def test_modules_that_a_file_leaves_as_they_are_take_16_bit(quantized):
    whole = weights(quantized({"quant_method": "fp8"}))
    blocks = [f"model.layers.{number}.self_attn" for number in range(32)]
    attention = 32 * 2 * 4096 * (4096 + 1024)
    for kept in (blocks, ["re:.*self_attn.*"], ["model.layers.*.self_attn"], ["*self_attn*"], ["self_attn"]):
        found = weights(quantized({"quant_method": "fp8", "modules_to_not_convert": [*kept, "lm_head"]}))
        assert found == pytest.approx(whole + attention, rel=1e-5), kept
    one = weights(quantized({"quant_method": "fp8", "ignored_layers": ["model.layers.3.mlp", "visual.layers.4.mlp"]}))
    assert one == pytest.approx(whole + 3 * 4096 * 14336, rel=1e-5)


def test_a_head_is_quantized_where_the_method_takes_it_or_the_file_says_so(quantized):
    gptq = {"quant_method": "gptq", "bits": 8, "group_size": -1}
    saved = EMBEDDING * (2 - 1 - 3 / 4096)
    assert weights(quantized(gptq)) - weights(quantized({**gptq, "lm_head": True})) == pytest.approx(saved, rel=1e-5)
    compressed = {"quant_method": "compressed-tensors", "config_groups": {"a": ONE_GROUP}}
    kept = weights(quantized({**compressed, "ignore": ["re:.*lm_head"]}))
    assert kept - weights(quantized(compressed)) == pytest.approx(EMBEDDING * (1.5 - 2 / 128), rel=1e-5)


def test_groups_of_one_file_have_types_of_their_own(quantized):
    eight = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
    four = {"targets": ["re:.*mlp.*"], "weights": ONE_GROUP["weights"]}
    found = quantized({"quant_method": "compressed-tensors", "config_groups": {"a": eight, "b": four}})
    attention, mlp = 32 * 2 * 4096 * (4096 + 1024), 32 * 3 * 4096 * 14336
    rest = 2 * (found.parameters - MATRICES)
    assert weights(found) == pytest.approx(attention + mlp * (0.5 + 2 / 128) + rest, rel=1e-5)


def test_mxfp4_holds_experts_in_4_bit_and_attention_in_16(quantized):
    model = quantized({"quant_method": "mxfp4"}, MIXTRAL)
    experts = 32 * 8 * 3 * 4096 * 14336
    rest = 2 * (model.parameters - experts)
    assert weights(model) == pytest.approx(experts * (0.5 + 1 / 32) + rest, rel=1e-5)
    divided = formula_parts(model, SERVE, Layout(dp=8, ep=8)).parameters
    assert divided == pytest.approx(experts * (0.5 + 1 / 32) / 8 + rest, rel=1e-5)


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({"quant_method": "vptq"}, "quantization_config: the method is not known"),
        ({"bits": 4}, "no quant_method"),
        ("nf4", "no quant_method"),
        ({"quant_method": "gptq"}, "bits of the method gptq"),
        ({"quant_method": "gptq", "bits": "four"}, "bits = four"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*up_proj": {"bits": 8}}}, "dynamic of the method gptq"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit of the method bitsandbytes"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups of the method"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3, "b": []}, "ignore": ["re:("]}, "is not understood"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({"quant_method": "torchao", "quant_type": "autoquant"}, "autoquant"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name_with_what_to_do(quantized, quantization, said):
    with pytest.raises(DocumentError) as caught:
        quantized(quantization)
    words = f"{caught.value.text} {caught.value.given}"
    assert said in words
    assert "quantization_config" in words
    assert "copy without quantization_config" in str(caught.value.next)


def planned(path: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, [str(path), "--gpu", "h100_80gb", *words])
    return done.exit_code, str(done.exception) if isinstance(done.exception, Exception) else done.output


@pytest.mark.parametrize(
    ("precision", "least", "most"), [("int8", 9.0e9, 9.2e9), ("fp8", 9.0e9, 9.2e9), ("int4", 5.6e9, 5.8e9), ("nf4", 5.6e9, 5.8e9)]
)  # fmt: skip
def test_an_option_says_in_what_precision_weights_are_served(tmp_path, precision, least, most):
    done = CliRunner().invoke(
        command, [str(written(tmp_path, LLAMA_3)), "--task", "inference", "--precision", precision, "--json"]
    )
    assert least < json.loads(done.stdout)["parts"]["parameters"] < most


def test_lora_trains_beside_quantized_weights_and_nothing_else_trains_them(tmp_path):
    path = written(tmp_path, LLAMA_3, {"quant_method": "gptq", "bits": 4, "group_size": 128})
    model = read_architecture(path)
    assert weights(model, Workload(task="lora")) == pytest.approx(weights(model), rel=0.01)
    code, said = planned(path)
    assert code != 0
    assert "quantized weights are not trained" in said
    assert "--task lora" in said
    assert "says how its weights are quantized" in planned(path, "--task", "inference", "--precision", "int8")[1]
    plain = written(tmp_path, LLAMA_3)
    assert "not trained" in planned(plain, "--precision", "int4")[1]
    assert "--task qlora holds weights in nf4" in planned(plain, "--task", "qlora", "--precision", "int8")[1]
    assert planned(plain, "--task", "lora", "--precision", "int8", "--checkpointing", "full")[0] == 0
