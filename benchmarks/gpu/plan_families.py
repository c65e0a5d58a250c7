"""What `cordee plan` says of a config.json, beside what the model takes of a real GPU.

    python benchmarks/gpu/plan_families.py predict h100 [others] > PREDICTIONS.json
    python benchmarks/gpu/plan_families.py measure [others] > MEASURED.json
    python benchmarks/gpu/plan_families.py compare PREDICTIONS.json MEASURED.json

`predict` needs no GPU; `measure` needs one, PyTorch with CUDA and transformers, and no Cordée. Each model is made of its config
with random weights, and used as transformers uses it: `model(ids, labels=ids)`, autocast to bfloat16 and PyTorch's AdamW; for
inference `generate` in bfloat16. `others` are other models, sizes and lengths, which were not looked at while the plan was mended.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_WIDE = {"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16}
_GROUPED = {**_WIDE, "intermediate_size": 5632, "num_key_value_heads": 4}
_SMALL = {**_GROUPED, "vocab_size": 32000}
_Models = dict[str, dict[str, Any]]
_Uses = dict[str, tuple[list[str], int, int]]
FAMILIES: _Models = {
    "llama": _SMALL,
    "mistral": {**_SMALL, "sliding_window": None},
    "qwen2": _SMALL,
    "qwen3": {**_SMALL, "vocab_size": 151936, "head_dim": 128},
    "phi3": {**_SMALL, "pad_token_id": 0},
    "olmo2": _SMALL,
    "granite": _SMALL,
    "glm4": {**_SMALL, "head_dim": 128, "pad_token_id": 0},
    "cohere": {**_SMALL, "vocab_size": 128000},
    "starcoder2": {**_SMALL, "intermediate_size": 8192},
    "gemma": {**_GROUPED, "head_dim": 128, "vocab_size": 128000},
    "gemma2": {**_GROUPED, "head_dim": 128, "vocab_size": 128000, "sliding_window": 512},
    "gemma3_text": {**_GROUPED, "head_dim": 128, "vocab_size": 128000, "sliding_window": 512},
    "gpt2": {"n_embd": 1600, "n_layer": 16, "n_head": 25},
    "gpt_neox": {**_WIDE, "intermediate_size": 8192, "vocab_size": 50304},
    "opt": {**_WIDE, "ffn_dim": 8192, "word_embed_proj_dim": 2048},
    "falcon": {**_WIDE, "vocab_size": 65024},
    "bloom": {"hidden_size": 2048, "n_layer": 12, "n_head": 16, "vocab_size": 64000},
    "mixtral": {**_SMALL, "hidden_size": 1024, "intermediate_size": 2048, "num_local_experts": 8},
    "qwen3_moe": {
        **_SMALL, "hidden_size": 1024, "head_dim": 64, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 512,
    },
    "deepseek_v3": {
        **_WIDE, "hidden_size": 1024, "num_key_value_heads": 16, "intermediate_size": 2816, "moe_intermediate_size": 512,
        "n_routed_experts": 32, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 2,
        "q_lora_rank": 384, "kv_lora_rank": 256, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64,
        "vocab_size": 32000,
    },
    "gpt_oss": {
        **_SMALL, "hidden_size": 1024, "intermediate_size": 1024, "num_local_experts": 16, "num_experts_per_tok": 4, "head_dim": 64,
    },
    "t5": {"d_model": 1024, "d_ff": 4096, "num_layers": 12, "num_heads": 16, "d_kv": 64, "decoder_start_token_id": 0},
    "bart": {},
}  # fmt: skip
_BASE = {"hidden_size": 1536, "num_hidden_layers": 20, "num_attention_heads": 12}
_WITH_GROUPS = {**_BASE, "intermediate_size": 6144, "num_key_value_heads": 2, "vocab_size": 49152}
OTHERS: _Models = {
    "llama": {**_WITH_GROUPS, "tie_word_embeddings": True},
    "qwen3": {**_WITH_GROUPS, "head_dim": 64, "hidden_size": 768},
    "gemma3_text": {**_WITH_GROUPS, "head_dim": 256, "hidden_size": 1152, "vocab_size": 262144, "num_hidden_layers": 8},
    "smollm3": {**_WITH_GROUPS, "pad_token_id": 0},
    "olmo": _WITH_GROUPS,
    "olmo3": _WITH_GROUPS,
    "exaone4": _WITH_GROUPS,
    "glm": {**_WITH_GROUPS, "head_dim": 128, "pad_token_id": 0},
    "nemotron": {**_WITH_GROUPS, "head_dim": 128},
    "stablelm": _WITH_GROUPS,
    "cohere2": {**_WITH_GROUPS, "pad_token_id": 0},
    "helium": {**_WITH_GROUPS, "head_dim": 128, "pad_token_id": 0},
    "phi": {**_WITH_GROUPS, "num_key_value_heads": 12},
    "gpt_neo": {"hidden_size": 1536, "max_position_embeddings": 4096, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]},
    "gptj": {"n_embd": 2048, "n_positions": 4096, "n_layer": 12, "n_head": 16, "rotary_dim": 64},
    "gpt_bigcode": {"n_embd": 1536, "n_positions": 4096, "n_layer": 16, "n_head": 12},
    "gpt_neox": {**_BASE, "max_position_embeddings": 4096, "intermediate_size": 6144, "vocab_size": 50304},
    "gpt_oss": {**_WITH_GROUPS, "hidden_size": 768, "intermediate_size": 768, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 64},
    "olmoe": {**_WITH_GROUPS, "hidden_size": 768, "intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 2},
    "granitemoe": {**_WITH_GROUPS, "hidden_size": 768, "intermediate_size": 512, "num_local_experts": 8},
    "deepseek_v2": {
        **_BASE, "hidden_size": 768, "num_key_value_heads": 12, "intermediate_size": 2048, "moe_intermediate_size": 384,
        "n_routed_experts": 16, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 256, "kv_lora_rank": 256, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64, "vocab_size": 49152,
    },
    "t5": {"d_model": 768, "d_ff": 3072, "num_layers": 10, "num_heads": 12, "decoder_start_token_id": 0},
    "pegasus": {"d_model": 1024, "max_position_embeddings": 4096, "vocab_size": 96103},
}  # fmt: skip
# How it is used, the options of `cordee plan`, sequences and tokens of each.
USES = {
    "train": ([], 4, 1024),
    "checkpointing": (["--checkpointing", "full"], 4, 1024),
    "inference": (["--task", "inference"], 8, 1024),
}
# Of the others: fewer sequences, which are longer.
OTHER_USES = {use: (options, batch // 4 or 1, 3072) for use, (options, batch, _) in USES.items()}
_WARM, _STEPS, _NEW = 2, 5, 32


def predict(gpu: str, models: _Models, uses: _Uses) -> dict[str, Any]:
    """Return what is planned, by family and use: bytes of the allocator, tokens in a second, or why there is no plan."""
    from transformers import AutoConfig

    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family, sizes in models.items():
            config = AutoConfig.for_model(family, **sizes)
            path = Path(folder) / family / "config.json"
            path.parent.mkdir()
            path.write_text(json.dumps(config.to_dict(), default=str))
            for use, (options, batch, sequence) in uses.items():
                words = ["cordee", "plan", str(path), "--gpu", gpu, "--gpus", "1", "--json", *options]
                words += ["--micro-batch", str(batch), "--sequence", str(sequence)]
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                try:
                    plan = json.loads(done.stdout)
                    told[f"{family} {use}"] = {
                        "reserved": plan["reserved_bytes"], "tokens": plan.get("tokens_per_second"), "whole": plan,
                    }  # fmt: skip
                except (ValueError, KeyError):
                    told[f"{family} {use}"] = {"why": (done.stderr or done.stdout)[-300:]}
    return told


def measure(models: _Models, uses: _Uses) -> dict[str, Any]:
    """Return what was seen, by family and use: bytes at most, of tensors and of the allocator, and tokens in a second."""
    import torch

    seen: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for family, sizes in models.items():
        for use, (_, batch, sequence) in uses.items():
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            try:
                rate = (
                    _infer(family, sizes, batch, sequence)
                    if use == "inference"
                    else _train(family, sizes, use, batch, sequence)
                )
                found = {
                    "tensors": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "tokens": rate,
                }  # fmt: skip
            except Exception as error:
                found = {"why": f"{type(error).__name__}: {error}"[:300]}
            seen[f"{family} {use}"] = found
            print(family, use, found, file=sys.stderr, flush=True)
    return seen


def _model(family: str, sizes: dict[str, Any]) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(family, **sizes)
    kind = (
        transformers.AutoModelForSeq2SeqLM if family in ("t5", "bart", "pegasus") else transformers.AutoModelForCausalLM
    )
    with torch.device("cuda"):
        return kind.from_config(config, dtype=torch.float32)


def _train(family: str, sizes: dict[str, Any], use: str, batch: int, sequence: int) -> float:
    import torch

    model = _model(family, sizes).train()
    if use == "checkpointing":
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(3, 20000, (batch, sequence), device="cuda")
    for step in range(_WARM + _STEPS):
        if step == _WARM:
            torch.cuda.synchronize()
            began = time.monotonic()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return batch * sequence * _STEPS / (time.monotonic() - began)


def _infer(family: str, sizes: dict[str, Any], batch: int, sequence: int) -> float:
    import torch

    model = _model(family, sizes).to(torch.bfloat16).eval()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    prompt = torch.randint(3, 20000, (batch, sequence - _NEW), device="cuda")
    with torch.no_grad():
        began = time.monotonic()
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=_NEW, min_new_tokens=_NEW, do_sample=False
        )
        torch.cuda.synchronize()
    return batch * _NEW / (time.monotonic() - began)


def compare(predicted: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return a table of both, and what their median and worst differ by."""
    lines, errors = ["| model | use | predicted | measured | error |", "|---|---|---:|---:|---:|"], {}
    for name, seen in measured.items():
        told = predicted.get(name, {})
        if isinstance(seen, dict):
            row = "| {} | {} ".format(*name.split())
            if "why" in told or "why" in seen:
                lines.append(f"{row}| {told.get('why', '')} | {seen.get('why', '')} | |")
                continue
            errors[name] = told["reserved"] / seen["reserved"] - 1
            lines.append(f"{row}| {told['reserved'] / 1e9:.2f} | {seen['reserved'] / 1e9:.2f} | {errors[name]:+.0%} |")
    for use in USES:
        of_use = [abs(error) for name, error in errors.items() if name.endswith(use)]
        lines.append(f"\n{use}: median {statistics.median(of_use):.1%}, worst {max(of_use):.0%} of {len(of_use)}")
    return "\n".join(lines)


if __name__ == "__main__":
    given = (OTHERS, OTHER_USES) if sys.argv[-1] == "others" else (FAMILIES, USES)
    match [word for word in sys.argv[1:] if word != "others"]:
        case ["predict", gpu]:
            print(json.dumps(predict(gpu, *given), indent=1))
        case ["measure"]:
            print(json.dumps(measure(*given), indent=1))
        case ["compare", first, second]:
            print(compare(*(json.loads(Path(path).read_text()) for path in (first, second))))
        case _:
            sys.exit(__doc__)
