"""Families of models: as many parameters as `transformers` makes of the same config, read from the file alone or counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.sizing.architecture import architecture_of
from cordee.systems.sizing.counted import sizes_of
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.readers import READERS
from cordee.systems.sizing.workload import Workload

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 320, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 2, "first_k_dense_replace": 1,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12, "num_key_value_heads": 4,
}  # fmt: skip
OPT = {"ffn_dim": 96, "word_embed_proj_dim": 64, "max_position_embeddings": 64}
T5 = {"d_model": 64, "d_kv": 8, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4, "vocab_size": 320}
BART = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 320, "max_position_embeddings": 64,
}  # fmt: skip
MAMBA = {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 320}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}), ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}), ("llama", {"tie_word_embeddings": True}),
    ("mistral", {"head_dim": 32}), ("granite", {"attention_bias": True}), ("helium", {"head_dim": 16}), ("smollm3", {}), ("phi3", {}),
    ("qwen2", {}), ("qwen3", {"head_dim": 24}), ("qwen2_moe", {"moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 80}),
    ("qwen3_moe", {"moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 24, "mlp_only_layers": [1]}), ("mixtral", EXPERTS),
    ("granitemoe", EXPERTS), ("olmo", {}), ("olmo2", {}), ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}), ("gemma", {}), ("gemma2", {"head_dim": 32}), ("gemma3_text", {}),
    ("cohere", {}), ("cohere", {"use_qk_norm": True}), ("cohere2", {}), ("glm", {"head_dim": 16}), ("glm4", {"head_dim": 16}),
    ("glm4_moe", {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 48, "first_k_dense_replace": 1, "use_qk_norm": True, "head_dim": 16}),
    ("ernie4_5", {"use_bias": True, "head_dim": 16}), ("exaone4", {"head_dim": 16}), ("deepseek_v3", LATENT), ("deepseek_v3", {**LATENT, "q_lora_rank": None}),
    ("deepseek_v2", LATENT), ("stablelm", {"use_qkv_bias": True}), ("stablelm", {"use_parallel_residual": True}), ("nemotron", {"head_dim": 16}),
    ("gpt_neox", {}), ("gpt_neox", {"attention_bias": False}), ("starcoder2", {}), ("starcoder2", {"use_bias": False}), ("phi", {}), ("gptj", {"rotary_dim": 8}),
    ("codegen", {"rotary_dim": 8}), ("gpt_neo", {"num_layers": 2, "num_hidden_layers": 2, "attention_types": [[["global", "local"], 1]]}),
    ("gpt2", {}), ("gpt_bigcode", {}), ("gpt_bigcode", {"multi_query": False}), ("opt", OPT), ("opt", {**OPT, "word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    ("bloom", {}), ("falcon", {"alibi": False}), ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}), ("falcon", {"multi_query": False, "bias": True, "parallel_attn": False}),
    ("mpt", {}), ("gpt_oss", {**EXPERTS, "head_dim": 16}), ("llama4_text", {**EXPERTS, "num_experts_per_tok": 1, "intermediate_size_mlp": 80, "interleave_moe_layer_step": 2, "head_dim": 16}),
    ("t5", T5), ("t5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}), ("mt5", T5), ("bart", BART), ("mbart", BART), ("pegasus", BART),
    ("mamba", MAMBA), ("mamba", {**MAMBA, "use_bias": True, "time_step_rank": 7, "state_size": 8}), ("falcon_mamba", MAMBA),
    ("mamba2", {**MAMBA, "num_heads": 8, "head_dim": 16, "n_groups": 2}), ("bert", {}), ("roberta", {}), ("distilbert", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}), ("vit", {}),
]  # fmt: skip
OWN_SIZES = ("t5", "mt5", "bart", "mbart", "pegasus", "mamba", "falcon_mamba", "mamba2", "distilbert")


def made(kind: str, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a config as `save_pretrained` writes it, and the parameters of the model of it."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind_of = transformers.CONFIG_MAPPING[kind]
    own = {} if kind in OWN_SIZES else {name: size for name, size in SMALL.items() if hasattr(kind_of(), name)}
    config = kind_of(**own | options)
    autos = {
        **dict.fromkeys(("t5", "mt5", "bart", "mbart", "pegasus"), transformers.AutoModelForSeq2SeqLM),
        **dict.fromkeys(("bert", "roberta", "distilbert"), transformers.AutoModel),
        "vit": transformers.AutoModelForImageClassification,
    }
    with torch.device("meta"):
        model = autos.get(kind, transformers.AutoModelForCausalLM).from_config(config)
    return json.loads(config.to_json_string()), sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(("kind", "options"), CASES, ids=[f"{kind}-{number}" for number, (kind, _) in enumerate(CASES)])
def test_a_family_has_as_many_parameters_as_transformers_makes_of_the_same_config(kind, options):
    config, right = made(kind, options)
    assert architecture_of(config, "").parameters == right


def test_every_family_but_those_that_are_another_by_name_is_compared():
    assert set(READERS) - {kind for kind, _ in CASES} == {"ministral", "olmo3", "hunyuan_v1_dense", "xlm-roberta"}


def test_the_class_that_a_config_names_decides_the_head():
    config, whole = made("llama", {})
    head = 320 * 64
    assert architecture_of({**config, "architectures": ["LlamaModel"]}, "").parameters == whole - head
    labels = {**config, "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    assert architecture_of(labels, "").parameters == whole - head + 3 * 64


def test_latent_attention_windows_and_mamba_keep_less_than_keys_and_values_of_all_tokens():
    def cache(kind: str, options: dict[str, Any]) -> float:
        work = Workload(task="inference", sequence=4096, micro_batch=2)
        return formula_parts(architecture_of(made(kind, options)[0], ""), work).others["cache of keys and values"]

    assert cache("deepseek_v3", LATENT) == 3 * (16 + 4) * 4096 * 2 * 2
    layers = {
        "sliding_window": 1024,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "head_dim": 16,
    }
    each = 2 * 2 * 16 * 2 * 2
    assert cache("gemma2", layers) == pytest.approx(each * (4096 + 2 * 1024))
    assert cache("mamba", MAMBA) == 3 * 128 * (16 + 4) * 2 * 2


def counted(folder: Path, config: dict[str, Any], python: str | None = sys.executable) -> Any:
    (folder / "config.json").write_text(json.dumps(config))
    return sizes_of(folder / "config.json", python)


def test_a_family_without_a_reader_is_counted_by_transformers(tmp_path):
    sizes = {**SMALL, "embedding_size": 32, "max_position_embeddings": 64}
    found = counted(tmp_path, {"model_type": "albert", "architectures": ["AlbertForMaskedLM"], **sizes})
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.AlbertForMaskedLM(transformers.AlbertConfig(**sizes))
    assert found.parameters == sum(one.numel() for one in model.parameters())
    text = {**SMALL, "head_dim": 16}
    vision = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "image_size": 28,
        "patch_size": 14,
    }
    both = counted(
        tmp_path, {"model_type": "gemma3", "text_config": text, "vision_config": vision, "mm_tokens_per_image": 4}
    )
    assert (both.kind, both.layers, both.width, both.extra > 0) == ("decoder", 3, 64, True)


def test_code_of_a_repository_is_not_run_and_nothing_is_with_no_run(tmp_path):
    own = {"model_type": "homemade", "auto_map": {"AutoModelForCausalLM": "modeling.Homemade"}}
    (tmp_path / "modeling.py").write_text("open('ran', 'w')")
    with pytest.raises(DocumentError) as caught:
        counted(tmp_path, own)
    assert "auto_map" in caught.value.text
    assert not (tmp_path / "ran").exists()
    with pytest.raises(DocumentError) as caught:
        counted(tmp_path, {"model_type": "homemade", "n_layer": 12, "d_model": 64, "vocab_size": 320}, None)
    assert "transformers" in str(caught.value.next)
    assert "layers = 12, width = 64, heads = ?, ffn = ?, vocabulary = 320" in str(caught.value.next)


def test_a_config_is_counted_with_numbers_that_json_has_not_and_as_a_whole_model(tmp_path):
    infinite = {
        "model_type": "bamba",
        **SMALL,
        "time_step_limit": [0.0, {"__float__": "Infinity"}],
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
    }
    assert counted(tmp_path, {**infinite, "mamba_n_groups": 1, "attn_layer_indices": [1]}).parameters > 0
    import torch
    import transformers

    whisper = {name: size for name, size in BART.items() if name != "max_position_embeddings"} | {"pad_token_id": 0}
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**whisper))
    assert counted(tmp_path, {"model_type": "whisper", "is_encoder_decoder": True, **whisper}).parameters == sum(
        one.numel() for one in model.parameters()
    )


def test_families_are_read_without_torch():
    code = "import sys, cordee.systems.sizing.counted; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
