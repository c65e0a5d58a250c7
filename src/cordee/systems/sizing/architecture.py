"""What a model is made of: from a Hugging Face config.json or a short table, without weights and without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.documents.files import read_text, read_toml
from cordee.core.documents.toml_lines import find_line
from cordee.core.errors import DocumentError
from cordee.core.words import did_you_mean
from cordee.machine.foreign_files import parse_json
from cordee.systems.sizing.eager import EagerBlock
from cordee.systems.sizing.quantization import StoredWeights, read_quantization
from cordee.systems.sizing.readers import READERS, usual_sizes

TABLE_KEYS = (
    "layers", "width", "heads", "kv_heads", "head_width", "ffn", "vocabulary", "gated", "tied", "positions", "experts",
    "experts_per_token", "parameters", "name",
)  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """The sizes of a transformer; of a model of which only the number of parameters is known, `layers` is 0.

    Attributes:
        kind: `decoder`, `encoder`, `vision`, or `count`: only its parameters are known.
        layers: blocks; those of an encoder and of a decoder together.
        width: of the residual stream; `head_width`: of one head, 0 where there is no attention; `ffn`: of the MLP, of one expert where there are experts.
        gated: whether the MLP has a gate (SwiGLU), a third matrix.
        tied: whether the head shares the embedding.
        positions: learned ones.
        biases: whether matrices and norms have biases; `qkv_biases`: whether only those of queries, keys and values have.
        rest: parameters of one block that are in no matrix of attention or MLP; None: two norms and these biases.
        attentions: of one block, in the mean: 1.5 where every second one also has a cross attention.
        experts_per_token: of `experts`, how many a token goes through; `shared_ffn`: the width of those that every token goes through.
        dense_layers: blocks without experts, with an MLP of `dense_ffn`.
        q_rank, kv_rank: of queries, and of keys and values, in latent attention (MLA); 0: whole matrices. `rope_width`, `value_width`: of
            its heads' rotated part, and of their values.
        window: tokens that `windowed` of the layers look back.
        state: numbers of one sequence that a block without attention keeps.
        extra: parameters beside embedding, blocks and head.
        tokens: of one image, for `vision`; `classes`: of its head.
        counted: parameters, where only they are known.
        stored: how its file says that weights are stored; None: as they are computed.
        eager: what its class in `transformers` computes by single operations; None, as of tables: fused kernels do.
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
    rest: int | None = None
    attentions: float = 1.0
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_width: int = 0
    value_width: int = 0
    window: int = 0
    windowed: int = 0
    state: int = 0
    extra: int = 0
    tokens: int = 0
    classes: int = 0
    counted: int = 0
    stored: StoredWeights | None = None
    eager: EagerBlock | None = None

    @property
    def attention_matrix(self) -> float:
        """Parameters of the matrices of one block's attention."""
        inner = self.heads * self.head_width
        if not self.kv_rank:
            return self.attentions * (2 * self.width * inner + 2 * self.width * self.kv_heads * self.head_width)
        queries = self.q_rank * (self.width + inner) if self.q_rank else self.width * inner
        wide = self.head_width - self.rope_width + self.value_width
        keys = self.width * (self.kv_rank + self.rope_width) + self.kv_rank * self.heads * wide
        return queries + keys + self.heads * self.value_width * self.width

    @property
    def mlp_matrix(self) -> int:
        """Parameters of the matrices of one MLP, or of one expert."""
        return self._mlp(self.ffn)

    def _mlp(self, ffn: int) -> int:
        return (3 if self.gated else 2) * self.width * ffn

    @property
    def block(self) -> float:
        """Parameters of one block, all experts among them; the mean where blocks differ."""
        norms = 2 * self.width * (2 if self.biases else 1)
        inner, kv = self.heads * self.head_width, self.kv_heads * self.head_width
        biases = inner + 2 * kv if self.biases or self.qkv_biases else 0
        biases += 2 * self.width + self.ffn if self.biases else 0
        return self.attention_matrix + self.mlps + (norms + biases if self.rest is None else self.rest)

    @property
    def sparse(self) -> float:
        """The share of blocks that has experts."""
        return 1 - min(self.dense_layers, self.layers) / max(1, self.layers) if self.experts else 0.0

    @property
    def experts_matrix(self) -> float:
        """Parameters of the experts of one block, in the mean."""
        return self.sparse * self.experts * self.mlp_matrix

    @property
    def plain_mlps(self) -> float:
        """Parameters of one block's MLPs that every token goes through, in the mean: shared experts, MLPs of blocks without experts."""
        if not self.experts:
            return self.mlp_matrix
        return self.sparse * self._mlp(self.shared_ffn) + (1 - self.sparse) * self._mlp(self.dense_ffn)

    @property
    def token_ffn(self) -> float:
        """The width of all MLPs that a token goes through in one block, in the mean."""
        return self.plain_ffn + self.sparse * self.experts_per_token * self.ffn

    @property
    def plain_ffn(self) -> float:
        """The width of one block's MLPs that every token goes through, in the mean."""
        return self.sparse * self.shared_ffn + (1 - self.sparse) * self.dense_ffn if self.experts else float(self.ffn)

    @property
    def router(self) -> float:
        """Parameters of what chooses experts, in one block."""
        return self.sparse * self.width * self.experts

    @property
    def mlps(self) -> float:
        """Parameters of the MLPs of one block, with the router of experts."""
        return self.experts_matrix + self.plain_mlps + self.router

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
        return round(
            self.embedding
            + self.head
            + self.positions * self.width
            + self.layers * self.block
            + norms * (self.kind != "encoder")
            + self.extra
        )

    @property
    def multiplied(self) -> float:
        """Parameters that a token is multiplied with: matrices of the experts that it takes, and the head."""
        experts = self.sparse * self.experts_per_token * self.mlp_matrix
        mlps = experts + self.plain_mlps + self.router
        return self.layers * (self.attention_matrix + mlps) + (self.head if self.classes else self.embedding)

    @property
    def cache_width(self) -> float:
        """Numbers that a token leaves in the cache of one block: keys and values of all heads, or what MLA makes them of."""
        return self.kv_rank + self.rope_width if self.kv_rank else 2 * self.kv_heads * self.head_width

    def cached_tokens(self, tokens: float) -> float:
        """Return of how many of a sequence's tokens a block keeps keys and values, in the mean: windows bound them."""
        share = self.windowed / max(1, self.layers)
        return share * min(tokens, self.window) + (1 - share) * tokens if self.window else tokens


def read_architecture(path: Path) -> Architecture:
    """Return what a file says of a model: a Hugging Face config.json, or a TOML file with a table `[model]`.

    Raises:
        DocumentError: it cannot be read, or describes a model that is not known; says which are.
    """
    return _of_table(path) if path.suffix == ".toml" else _of_config(path)


class UnknownArchitectureError(DocumentError):
    """The sizes of a config.json cannot be told from it alone."""


def _of_config(path: Path) -> Architecture:
    return architecture_of(read_config(path), str(path), path.stem)


def read_config(path: Path) -> Any:
    """Return what is in a config.json.

    Raises:
        DocumentError: it cannot be read.
    """
    try:
        return parse_json(read_text(path, "a config.json"))
    except ValueError as error:
        raise DocumentError(f"cannot be read as JSON: {error}", file=str(path)) from None


def architecture_of(config: Any, file: str, name: str = "") -> Architecture:
    """Return the architecture that a Hugging Face config describes.

    Raises:
        DocumentError: it describes none that is known.
    """
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in READERS:
        raise UnknownArchitectureError(
            "the architecture is not known",
            file=file,
            given=kind,
            allowed=", ".join(READERS),
            next=_without_reader(config),
        )
    try:
        found = Architecture(name=str(config.get("_name_or_path") or kind or name), **READERS[kind](config))
    except KeyError as error:
        raise UnknownArchitectureError(
            f"{error} is missing",
            file=file,
            given=kind,
            next="add it, or install transformers beside Cordée, which knows its default",
        ) from None
    except (TypeError, ValueError, ZeroDivisionError):
        raise DocumentError("sizes are whole numbers from 1", file=file, given=kind) from None
    return with_stored(_checked(found, file, {}), config, file)


def _without_reader(config: Any) -> str:
    """Return what helps where nobody knows an architecture: a table of what is in its config, among others."""
    said = usual_sizes(config) if isinstance(config, dict) else {}
    names = {"layers": "num_hidden_layers", "width": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
             "ffn": "intermediate_size", "vocabulary": "vocab_size"}  # fmt: skip
    table = ", ".join(
        f"{key} = {said.get(name, '?')}" for key, name in names.items() if name in said or key != "kv_heads"
    )
    return (
        "install torch and a version of transformers that has it beside Cordée (and leave out --no-run), which count it; give a function that makes the model "
        f"(`cordee plan FILE.py:FUNCTION`), which is traced; or a TOML file with a table [model]: {table}"
    )


def with_stored(found: Architecture, config: Mapping[str, Any], file: str) -> Architecture:
    """Return an architecture with how its config says that weights are stored.

    Raises:
        DocumentError: this is not understood.
    """
    sizes = {"width": found.width or 4096, "layers": found.layers}
    return replace(found, stored=read_quantization(config, file, **sizes))


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
    sizes = (found.layers, found.width, found.heads, found.kv_heads, found.head_width or found.state, found.ffn)
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
