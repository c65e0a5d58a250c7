"""What a model is made of: from a Hugging Face config.json or a short table, without weights and without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.documents.files import read_text, read_toml
from cordee.core.documents.toml_lines import find_line
from cordee.core.errors import DocumentError
from cordee.core.words import did_you_mean
from cordee.machine.foreign_files import parse_json
from cordee.systems.sizing.quantization import StoredWeights, read_quantization

TABLE_KEYS = (
    "layers", "width", "heads", "kv_heads", "head_width", "ffn", "vocabulary", "gated", "tied", "positions", "experts",
    "experts_per_token", "parameters", "name",
)  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """The sizes of a transformer; of a model of which only the number of parameters is known, `layers` is 0.

    Attributes:
        kind: `decoder`, `encoder`, `vision`, or `count`: only its parameters are known.
        width: of the residual stream; `head_width`: of one head; `ffn`: of the MLP, of one expert where there are experts.
        gated: whether the MLP has a gate (SwiGLU), a third matrix.
        tied: whether the head shares the embedding.
        positions: learned ones.
        biases: whether matrices and norms have biases; `qkv_biases`: whether only those of queries, keys and values have.
        experts_per_token: of `experts`, how many a token goes through.
        extra: parameters beside embedding, blocks and head.
        tokens: of one image, for `vision`; `classes`: of its head.
        stored: how its file says that weights are stored; None: as they are computed.
    """

    name: str
    kind: str = "decoder"
    layers: int = 0
    width: int = 0
    heads: int = 1
    kv_heads: int = 1
    head_width: int = 0
    ffn: int = 0
    vocabulary: int = 0
    gated: bool = False
    tied: bool = True
    positions: int = 0
    biases: bool = False
    qkv_biases: bool = False
    experts: int = 0
    experts_per_token: int = 0
    extra: int = 0
    tokens: int = 0
    classes: int = 0
    counted: int = 0
    stored: StoredWeights | None = None

    @property
    def attention_matrix(self) -> int:
        """Parameters of the four matrices of one attention."""
        inner = self.heads * self.head_width
        return 2 * self.width * inner + 2 * self.width * self.kv_heads * self.head_width

    @property
    def mlp_matrix(self) -> int:
        """Parameters of the matrices of one MLP, or of one expert."""
        return (3 if self.gated else 2) * self.width * self.ffn

    @property
    def block(self) -> int:
        """Parameters of one block, all experts among them."""
        norms = 2 * self.width * (2 if self.biases else 1)
        inner, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        biases = inner + 2 * kv if self.biases or self.qkv_biases else 0
        biases += 2 * self.width + self.ffn if self.biases else 0
        return self.attention_matrix + self.mlps + norms + biases

    @property
    def mlps(self) -> int:
        """Parameters of the MLPs of one block, with the router of experts."""
        return self.experts * self.mlp_matrix + self.width * self.experts if self.experts else self.mlp_matrix

    @property
    def embedding(self) -> int:
        """Parameters of the embedding."""
        return self.vocabulary * self.width

    @property
    def head(self) -> int:
        """Parameters of a head that is not the embedding."""
        return self.classes * (self.width + 1) if self.classes else 0 if self.tied else self.embedding

    @property
    def parameters(self) -> int:
        """All parameters."""
        if self.kind == "count":
            return self.counted
        norms = self.width * (2 if self.biases else 1)
        return (
            self.embedding
            + self.head
            + self.positions * self.width
            + self.layers * self.block
            + norms * (self.kind != "encoder")
            + self.extra
        )

    @property
    def multiplied(self) -> int:
        """Parameters that a token is multiplied with: matrices of the experts that it takes, and the head."""
        mlps = max(1, self.experts_per_token) * self.mlp_matrix + self.width * self.experts
        return self.layers * (self.attention_matrix + mlps) + (self.head if self.classes else self.embedding)


def _llama(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = int(config["num_attention_heads"])
    return {
        "layers": config["num_hidden_layers"],
        "width": config["hidden_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or config["hidden_size"] // heads,
        "ffn": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "gated": True,
        "tied": bool(config.get("tie_word_embeddings", False)),
    }


def _qwen(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_llama(config), "qkv_biases": True}


def _qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    found = _llama(config)
    return {**found, "extra": 2 * found["head_width"] * found["layers"]}  # norms of queries and keys


def _mixtral(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_llama(config),
        "experts": config["num_local_experts"],
        "experts_per_token": config["num_experts_per_tok"],
    }


def _qwen3_moe(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_qwen3(config),
        "ffn": config["moe_intermediate_size"],
        "experts": config["num_experts"],
        "experts_per_token": config["num_experts_per_tok"],
    }


def _gemma(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_llama({"head_dim": 256, **config}), "tied": bool(config.get("tie_word_embeddings", True))}


def _neox(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_llama(config), "gated": False, "biases": True}


def _gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    width = config["n_embd"]
    named = {"hidden_size": width, "num_hidden_layers": config["n_layer"], "num_attention_heads": config["n_head"]}
    sizes = {**named, "intermediate_size": config.get("n_inner") or 4 * width, "vocab_size": config["vocab_size"]}
    return {**_neox(sizes), "tied": True, "positions": config.get("n_positions", 1024)}


def _bert(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what encoders of text and of pictures share."""
    return {**_neox({"vocab_size": 0, **config}), "gated": False, "tied": True}


def _encoder(config: Mapping[str, Any]) -> dict[str, Any]:
    found, width = _bert(config), config["hidden_size"]
    # The embedding of types and its norm; the pooler.
    extra = config.get("type_vocab_size", 2) * width + 2 * width + width * width + width
    return {**found, "kind": "encoder", "positions": config["max_position_embeddings"], "extra": extra}


def _vit(config: Mapping[str, Any]) -> dict[str, Any]:
    width, patch = config["hidden_size"], config.get("patch_size", 16)
    labels, tokens = config.get("id2label"), (config.get("image_size", 224) // patch) ** 2 + 1
    return {
        **_bert({**config, "vocab_size": 0}),
        "kind": "vision",
        "positions": tokens,
        "tokens": tokens,
        "classes": len(labels) if isinstance(labels, dict) else config.get("num_labels", 2),
        # The matrix of patches with its bias, and the class token.
        "extra": config.get("num_channels", 3) * patch * patch * width + width + width,
    }


READERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "phi3": _llama,
    "gemma": _gemma,
    "gpt_neox": _neox,
    "gpt2": _gpt2,
    "bert": _encoder,
    "roberta": _encoder,
    "vit": _vit,
}


def read_architecture(path: Path) -> Architecture:
    """Return what a file says of a model: a Hugging Face config.json, or a TOML file with a table `[model]`.

    Raises:
        DocumentError: it cannot be read, or describes a model that is not known; says which are.
    """
    return _of_table(path) if path.suffix == ".toml" else _of_config(path)


def _of_config(path: Path) -> Architecture:
    try:
        config = parse_json(read_text(path, "a config.json"))
    except ValueError as error:
        raise DocumentError(f"cannot be read as JSON: {error}", file=str(path)) from None
    return architecture_of(config, str(path), path.stem)


def architecture_of(config: Any, file: str, name: str = "") -> Architecture:
    """Return the architecture that a Hugging Face config describes.

    Raises:
        DocumentError: it describes none that is known.
    """
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in READERS:
        raise DocumentError(
            "the architecture is not known",
            file=file,
            given=kind,
            allowed=", ".join(READERS),
            next="give a function that makes the model (`cordee plan FILE.py:FUNCTION`), which is traced, or a table [model]",
        )
    try:
        found = Architecture(name=str(config.get("_name_or_path") or kind or name), **READERS[kind](config))
    except KeyError as error:
        raise DocumentError(f"{error} is missing", file=file, given=kind) from None
    except (TypeError, ValueError, ZeroDivisionError):
        raise DocumentError("sizes are whole numbers from 1", file=file, given=kind) from None
    found = _checked(found, file, {})
    return replace(found, stored=read_quantization(config, file, width=found.width, layers=found.layers))


def _of_table(path: Path) -> Architecture:
    text, document = read_toml(path)
    table = document.get("model")
    if not isinstance(table, dict):
        raise DocumentError("there is no table [model]", file=str(path), allowed=", ".join(TABLE_KEYS))
    for key in table:
        if key not in TABLE_KEYS:
            raise DocumentError(
                "there is no such key",
                file=str(path),
                line=find_line(text, ("model", key)),
                given=key,
                allowed=", ".join(TABLE_KEYS),
                next=did_you_mean(key, TABLE_KEYS, "correct it"),
            )
    name = str(table.get("name", path.stem))
    lines = {key: find_line(text, ("model", key)) for key in table}
    if "layers" not in table and "parameters" in table:
        return _checked(Architecture(name, "count", counted=_whole(table, "parameters", path, lines)), str(path), lines)
    sizes = {key: _whole(table, key, path, lines) for key in ("layers", "width", "heads", "vocabulary")}
    optional = {
        key: _whole(table, key, path, lines)
        for key in ("kv_heads", "head_width", "ffn", "positions", "experts", "experts_per_token")
        if key in table
    }
    gated = bool(table.get("gated", True))
    width, heads = sizes["width"], sizes["heads"]
    sizes |= {"kv_heads": heads, "head_width": width // heads, "ffn": 4 * width, **optional}
    made: dict[str, Any] = {"gated": gated, "tied": bool(table.get("tied", False)), **sizes}
    found = Architecture(name, **made)
    return _checked(found, str(path), lines)


def _whole(table: Mapping[str, Any], key: str, path: Path, lines: Mapping[str, int | None]) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != int(value):
        raise DocumentError(
            f"{key} is a whole number from 1", file=str(path), line=lines.get(key), given=value, allowed="1, 2, 3, ..."
        )
    return int(value)


def _checked(found: Architecture, file: str, lines: Mapping[str, int | None]) -> Architecture:
    """Return an architecture that can be.

    Raises:
        DocumentError: sizes that cannot go together.
    """
    if found.kind == "count":
        return found
    sizes = (found.layers, found.width, found.heads, found.kv_heads, found.head_width, found.ffn)
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        names = "layers, width, heads, heads of keys and values, width of a head, MLP"
        raise DocumentError(
            "sizes are whole numbers from 1", file=file, given=f"{', '.join(map(str, sizes))} ({names})"
        )
    if found.heads % found.kv_heads:
        raise DocumentError(
            "heads cannot be divided by the heads of keys and values",
            file=file,
            line=lines.get("kv_heads"),
            given=f"{found.heads} heads, {found.kv_heads} of keys and values",
        )
    if found.experts and not 1 <= found.experts_per_token <= found.experts:
        raise DocumentError(
            "a token goes through at least one and at most all experts",
            file=file,
            line=lines.get("experts_per_token"),
            given=found.experts_per_token,
            allowed=f"1 to {found.experts}",
        )
    return found
