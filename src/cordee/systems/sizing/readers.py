"""What the config.json of a family of models says of its sizes: its names for them, its defaults, its norms and biases.

A file has only what differs from the defaults of its class in `transformers`, so that these are part of what is known of a family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from cordee.systems.sizing.eager import eager_both, eager_decoder

Config = Mapping[str, Any]
_ALIASES = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads",),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions",),
}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


class Family(NamedTuple):
    """Decoders of one model_type; a flag that is a text is a key of the config, true where it says so.

    Attributes:
        norms: of one block; `norm_bias`: whether they have biases; `final`: whether there is one behind the blocks.
        qkv_bias, out_bias, mlp_bias, head_bias: of matrices.
        qk_norm: of queries and keys: of each `head`, or of the `width` of all; empty: none.
        positions: learned ones beside those that the config names; -1: none. `embedding_norm`: whether there is one behind the embedding.
        defaults: of the class, where a file may leave them out.
    """

    norms: int = 2
    norm_bias: bool = False
    final: bool = True
    gated: bool = True
    qkv_bias: bool | str = "attention_bias"
    out_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    head_bias: bool = False
    qk_norm: str = ""
    positions: int = -1
    embedding_norm: bool = False
    tied: bool = False
    defaults: Mapping[str, Any] = {}

    def said(self, config: Config, flag: bool | str) -> bool:
        """Return whether a flag, or the key of the config that it names, is true."""
        return bool(config.get(flag, False)) if isinstance(flag, str) else flag


_PLAIN = Family()
_OLD = Family(norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True)
_ROTARY_J = _OLD._replace(norms=1, qkv_bias=False, out_bias=False, head_bias=True)
_GEMMA = Family(tied=True, defaults={"head_dim": 256})
_QWEN = Family(qkv_bias=True, out_bias=False)
_GLM = Family(out_bias=False, defaults={"head_dim": 128, "attention_bias": True})
_COHERE = Family(norms=1, tied=True)
FAMILIES: dict[str, Family] = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "ministral": _PLAIN,
    "mixtral": _PLAIN,
    "granite": _PLAIN,
    "granitemoe": _PLAIN,
    "helium": _PLAIN._replace(defaults={"head_dim": 128}),
    "smollm3": _PLAIN,
    "phi3": _PLAIN,
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen3": Family(qk_norm="head", defaults={"head_dim": 128}),
    "qwen3_moe": Family(qk_norm="head"),
    "olmo": Family(norms=0, final=False),
    "olmo2": Family(qk_norm="width"),
    "olmo3": Family(qk_norm="width"),
    "olmoe": Family(qk_norm="width"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(norms=4, defaults={"head_dim": 256, "sliding_window": 4096}),
    "gemma3_text": _GEMMA._replace(norms=4, qk_norm="head", defaults={"head_dim": 256, "sliding_window": 4096}),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(defaults={"sliding_window": 4096}),
    "glm": _GLM,
    "glm4": _GLM._replace(norms=4),
    "glm4_moe": Family(out_bias=False, defaults={"n_shared_experts": 1, "first_k_dense_replace": 1}),
    "ernie4_5": Family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True, defaults={"head_dim": 128}),
    "exaone4": Family(qk_norm="head"),
    "hunyuan_v1_dense": Family(qk_norm="head"),
    "deepseek_v2": Family(
        defaults={"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                  "n_shared_experts": 2, "num_experts_per_tok": 6},
    ),
    "deepseek_v3": Family(
        defaults={"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                  "n_shared_experts": 1, "first_k_dense_replace": 3, "num_experts_per_tok": 8},
    ),
    "stablelm": Family(norm_bias=True, qkv_bias="use_qkv_bias", out_bias=False),
    "nemotron": Family(norm_bias=True, gated=False),
    "gpt_neox": _OLD._replace(qkv_bias="attention_bias", out_bias="attention_bias", defaults={"attention_bias": True}),
    "starcoder2": _OLD._replace(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True, defaults={"use_bias": True}),
    "phi": _OLD._replace(norms=1, head_bias=True),
    "gptj": _ROTARY_J,
    "codegen": _ROTARY_J,
    "gpt_neo": _OLD._replace(qkv_bias=False, tied=True, positions=0),
    "gpt2": _OLD._replace(tied=True, positions=0, defaults={"n_positions": 1024}),
    "gpt_bigcode": _OLD._replace(tied=True, positions=0, defaults={"n_positions": 1024, "multi_query": True}),
    "opt": _OLD._replace(
        qkv_bias="enable_bias", out_bias="enable_bias", mlp_bias="enable_bias", tied=True, positions=2,
        defaults={"enable_bias": True, "max_position_embeddings": 2048},
    ),
    "bloom": _OLD._replace(tied=True, embedding_norm=True),
    "falcon": Family(norm_bias=True, gated=False, qkv_bias="bias", out_bias="bias", mlp_bias="bias", tied=True,
                     defaults={"multi_query": True, "parallel_attn": True}),
    "mpt": Family(gated=False, qkv_bias=False, out_bias=False, mlp_bias=False, tied=True),
    "gpt_oss": Family(qkv_bias=True, out_bias=True, defaults={"head_dim": 64, "sliding_window": 128}),
    "llama4_text": Family(defaults={"head_dim": 128, "intermediate_size_mlp": 16384}),
}  # fmt: skip


def usual_sizes(config: Config) -> dict[str, Any]:
    """Return a config with the names of sizes that most have beside its own."""
    found = dict(config)
    for name, others in _ALIASES.items():
        for other in others:
            if found.get(name) is None and found.get(other) is not None:
                found[name] = found[other]
    return found


def _decoder(kind: str, config: Config) -> dict[str, Any]:
    family = FAMILIES[kind]
    c = usual_sizes({**family.defaults, **config})
    width, layers, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    kv = c.get("num_key_value_heads") or heads
    norms = family.norms
    if kind == "falcon":
        new = bool(c.get("new_decoder_architecture"))
        kv = c.get("num_key_value_heads", heads) if new else 1 if c["multi_query"] else heads
        two = c.get("num_ln_in_parallel_attn") or (2 if new else None)
        norms = (two or 1) if new or c["parallel_attn"] else 2
    elif kind == "gpt_bigcode":
        kv = 1 if c["multi_query"] else heads
    elif kind == "stablelm" and c.get("use_parallel_residual"):
        norms = 1
    head_width = c.get("head_dim") or width // heads
    ffn = c.get("intermediate_size") or (4 * width if not family.gated else c["intermediate_size"])
    if kind == "mpt":
        ffn = c.get("expansion_ratio", 4) * width
    vocabulary = c["vocab_size"]
    found: dict[str, Any] = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv, "head_width": head_width, "ffn": ffn,
        "vocabulary": vocabulary, "gated": family.gated, "tied": bool(c.get("tie_word_embeddings", family.tied)),
        "biases": family.said(c, family.mlp_bias) and family.norm_bias, "qkv_biases": family.said(c, family.qkv_bias),
    }  # fmt: skip
    inner, keys = heads * head_width, kv * head_width
    each = width * (2 if family.norm_bias else 1)
    rest = norms * each
    rest += (inner + 2 * keys) * family.said(c, family.qkv_bias) + width * family.said(c, family.out_bias)
    norms_of_heads = _norms_of_heads(kind, family, c, head_width, inner, keys)
    rest += norms_of_heads
    if "kv_lora_rank" in c:
        rope = c["qk_rope_head_dim"]
        found |= {
            "q_rank": c["q_lora_rank"] or 0,
            "kv_rank": c["kv_lora_rank"],
            "rope_width": rope,
            "value_width": c["v_head_dim"],
        }
        found |= {"head_width": c["qk_nope_head_dim"] + rope, "kv_heads": heads}
        rest += found["q_rank"] + found["kv_rank"]
    experts = _experts(kind, c, layers)
    if experts:
        found |= experts
        rest += width * (kind == "qwen2_moe")  # the gate of the shared expert
        if kind == "gpt_oss":  # biases of experts and their router, a sink for each head
            rest += experts["experts"] * (2 * ffn + width + 1) + heads
    else:
        rest += ((2 if family.gated else 1) * ffn + width) * family.said(c, family.mlp_bias)
    if family.positions >= 0:
        found["positions"] = c["max_position_embeddings"] + family.positions
    counted = width * (2 if found["biases"] else 1)  # what `Architecture` counts for the last norm
    extra = each * (1 + family.embedding_norm) - counted if family.final else -counted
    extra += vocabulary * family.head_bias
    if kind == "opt":
        extra += _opt(c, width, each)
    found |= _windows(c, layers)
    head = _head(config)
    if head is not None:
        found["tied"] = True
        extra += head * width - vocabulary * family.head_bias
    read = inner + keys if norms_of_heads else 0
    found["eager"] = eager_decoder(kind, c, found, norms, read, fused=family.norm_bias)
    return {**found, "rest": rest, "extra": extra}


def _opt(c: Config, width: int, each: int) -> int:
    """Return what an OPT has beside others: matrices between an embedding of its own width and the blocks, and no last norm then."""
    inner = c.get("word_embed_proj_dim") or width
    less = 0 if c.get("do_layer_norm_before", True) and not c.get("_remove_final_layer_norm") else each
    return (2 * inner * width + c["vocab_size"] * (inner - width) if inner != width else 0) - less


def _norms_of_heads(kind: str, family: Family, c: Config, head_width: int, inner: int, keys: int) -> int:
    said = c.get("use_qk_norm" if kind in ("cohere", "glm4_moe") else "qk_layernorm")
    if family.qk_norm == "head" or (kind == "glm4_moe" and said):
        return 2 * head_width
    if family.qk_norm == "width" or (kind in ("cohere", "stablelm") and said):
        return inner + keys
    return 4 * head_width if kind == "phi" and said else 0


def _experts(kind: str, c: Config, layers: int) -> dict[str, Any]:
    """Return the sizes of a mixture of experts, empty where the family has none."""
    count = next((c[name] for name in _EXPERTS if c.get(name)), 0)
    if not count:
        return {}
    dense = c["intermediate_size"]
    one = c.get("moe_intermediate_size") or dense
    shared = c.get("shared_expert_intermediate_size", 0) or (c.get("n_shared_experts") or 0) * one
    sparse = layers - min(layers, c.get("first_k_dense_replace") or 0)
    if kind == "llama4_text":
        step = c.get("interleave_moe_layer_step", 1)
        listed = c.get("moe_layers")
        sparse = len(listed) if listed is not None else len(range(step - 1, layers, step))
        shared, dense = one, c["intermediate_size_mlp"]
    elif c.get("mlp_only_layers") or c.get("decoder_sparse_step", 1) > 1:
        step, plain = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers") or ()
        sparse = sum(layer not in plain and (layer + 1) % step == 0 for layer in range(layers))
    found = {"experts": count, "experts_per_token": c.get("num_experts_per_tok") or 1, "ffn": one, "shared_ffn": shared}
    return {**found, "dense_layers": layers - sparse, "dense_ffn": dense}


def _head(config: Config) -> int | None:
    """Return of how many labels the class that the config names has a head, 0 where it has none; None: its head is one of words."""
    name = str((config.get("architectures") or [""])[0])
    if name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        labels = config.get("id2label")
        return len(labels) if isinstance(labels, dict) else int(config.get("num_labels", 2))
    return 0 if name.endswith("Model") and not name.endswith("LMHeadModel") else None


def _windows(c: Config, layers: int) -> dict[str, Any]:
    """Return the window of attention, and how many layers have it."""
    window, kinds = c.get("sliding_window"), c.get("layer_types")
    if not window or c.get("use_sliding_window") is False:
        return {}
    if kinds is None:  # in the order of each class: two of three, five of six, all
        step = c.get("sliding_window_pattern") or {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6, "cohere2": 4}.get(
            c["model_type"], 0
        )
        return {"window": window, "windowed": layers - layers // step if step else layers}
    return {"window": window, "windowed": sum(kind == "sliding_attention" for kind in kinds)}


def _t5(config: Config) -> dict[str, Any]:
    encoder = config["num_layers"]
    decoder = config.get("num_decoder_layers") or encoder
    width, heads, inner = config["d_model"], config["num_heads"], config["num_heads"] * config.get("d_kv", 64)
    layers, gated = encoder + decoder, str(config.get("feed_forward_proj", "relu")).startswith("gated")
    return {
        "layers": layers, "width": width, "heads": heads, "kv_heads": heads, "head_width": inner // heads, "ffn": config["d_ff"],
        "vocabulary": config["vocab_size"], "gated": gated, "tied": bool(config.get("tie_word_embeddings", True)),
        "attentions": 1 + decoder / layers, "rest": 2 * width,
        # The norms of cross attention, that of the encoder's end, and biases of relative positions.
        "extra": decoder * width + width + 2 * config.get("relative_attention_num_buckets", 32) * heads,
        "eager": eager_both(width, inner, decoder / layers, fused=False, biased=True),
    }  # fmt: skip


def _bart(config: Config) -> dict[str, Any]:
    encoder, decoder, width = config["encoder_layers"], config["decoder_layers"], config["d_model"]
    heads, layers, norms = config["encoder_attention_heads"], encoder + decoder, 2 * width
    ends = 4 if config["model_type"] == "mbart" else 2  # BART's norms of both embeddings, Pegasus's behind both ends
    return {
        "layers": layers, "width": width, "heads": heads, "kv_heads": heads, "head_width": width // heads,
        "ffn": config["encoder_ffn_dim"], "vocabulary": config["vocab_size"], "gated": False, "biases": True, "tied": True,
        "attentions": 1 + decoder / layers, "positions": 2 * (config["max_position_embeddings"] + (0 if config["model_type"] == "pegasus" else 2)),
        # Norms and biases of cross attention; norms of embeddings and ends, of which `Architecture` counts one.
        "extra": decoder * (norms + 4 * width) + (ends - 1) * norms,
        "eager": eager_both(width, width, decoder / layers, fused=True),
    }  # fmt: skip


def _mamba(config: Config) -> dict[str, Any]:
    """Return a Mamba's: what goes in and out is a gated MLP's, all else is small."""
    width = config["hidden_size"]
    inner = config.get("intermediate_size") or int(config.get("expand", 2) * width)
    state, taps = config.get("state_size", 16), config.get("conv_kernel", 4)
    rank = config.get("time_step_rank", "auto")
    rank = -(-width // 16) if rank == "auto" else rank
    biases = (2 * inner + width) * bool(config.get("use_bias")) + inner * bool(config.get("use_conv_bias", True))
    rest = width + inner * (taps + rank + 2 * state + rank + 1 + state + 1) + biases
    return {**_without_attention(config, width, inner), "rest": rest, "state": inner * (state + taps)}


def _mamba2(config: Config) -> dict[str, Any]:
    width, heads, groups = config["hidden_size"], config.get("num_heads", 128), config.get("n_groups", 8)
    inner, state, taps = (
        int(config.get("expand", 2) * width),
        config.get("state_size", 128),
        config.get("conv_kernel", 4),
    )
    mixed = inner + 2 * groups * state
    biases = (inner + mixed + heads + width) * bool(config.get("use_bias")) + mixed * bool(
        config.get("use_conv_bias", True)
    )
    rest = width + width * (2 * groups * state + heads) + mixed * taps + 3 * heads + inner + biases
    found = _without_attention(config, width, inner)
    tied = bool(config.get("tie_word_embeddings", False))
    return {**found, "rest": rest, "state": inner * state + mixed * taps, "tied": tied}


def _without_attention(config: Config, width: int, inner: int) -> dict[str, Any]:
    return {
        "layers": config["num_hidden_layers"], "width": width, "heads": width, "kv_heads": width, "ffn": inner, "gated": True,
        "vocabulary": config["vocab_size"], "tied": bool(config.get("tie_word_embeddings", True)),
    }  # fmt: skip


def _blocks(config: Config) -> dict[str, Any]:
    """Return the blocks that encoders of text and of pictures share."""
    heads = config["num_attention_heads"]
    return {
        "layers": config["num_hidden_layers"], "width": config["hidden_size"], "heads": heads, "kv_heads": heads,
        "head_width": config["hidden_size"] // heads, "ffn": config["intermediate_size"], "biases": True,
        "eager": eager_both(config["hidden_size"], config["hidden_size"], 0.0, fused=True),
    }  # fmt: skip


def _encoder(config: Config) -> dict[str, Any]:
    width = config["hidden_size"]
    # The embedding of types and its norm; the pooler.
    extra = config.get("type_vocab_size", 2) * width + 2 * width + width * width + width
    own = {"vocabulary": config["vocab_size"], "positions": config["max_position_embeddings"], "extra": extra}
    return {**_blocks(config), "kind": "encoder", **own}


def _distilbert(config: Config) -> dict[str, Any]:
    sizes = {
        "hidden_size": config["dim"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
    }
    own = {"vocabulary": config["vocab_size"], "positions": config.get("max_position_embeddings", 512)}
    blocks = _blocks({**sizes, "intermediate_size": config["hidden_dim"]})
    return {**blocks, "kind": "encoder", **own, "extra": 2 * config["dim"]}


def _vit(config: Config) -> dict[str, Any]:
    width, patch = config["hidden_size"], config.get("patch_size", 16)
    labels, tokens = config.get("id2label"), (config.get("image_size", 224) // patch) ** 2 + 1
    return {
        **_blocks(config),
        "kind": "vision",
        "positions": tokens,
        "tokens": tokens,
        "classes": len(labels) if isinstance(labels, dict) else config.get("num_labels", 2),
        # The matrix of patches with its bias, and the class token.
        "extra": config.get("num_channels", 3) * patch * patch * width + width + width,
    }


READERS: dict[str, Callable[[Config], dict[str, Any]]] = {
    **{kind: partial(_decoder, kind) for kind in FAMILIES},
    "t5": _t5,
    "mt5": _t5,
    "bart": _bart,
    "mbart": _bart,
    "pegasus": _bart,
    "mamba": _mamba,
    "falcon_mamba": _mamba,
    "mamba2": _mamba2,
    "bert": _encoder,
    "roberta": _encoder,
    "xlm-roberta": _encoder,
    "distilbert": _distilbert,
    "vit": _vit,
}
