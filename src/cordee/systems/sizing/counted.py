"""Architectures that no reader knows: `transformers` makes them, their parameters are counted, and their usual sizes are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cordee.core.errors import DocumentError
from cordee.systems.sizing.architecture import (
    Architecture,
    UnknownArchitectureError,
    read_architecture,
    read_config,
    with_stored,
)
from cordee.systems.sizing.eager import eager_decoder
from cordee.systems.sizing.trace.run import TraceError, count_config

# The share of the counted parameters that blocks of the usual form, embedding and head may make for their sizes to be believed; of a
# model of text and pictures its text may be less.
_EXPLAINED, _EXPLAINED_OF_TEXT, _MOST = 0.8, 0.5, 1.05
_GENERATES = ("CausalLM", "ConditionalGeneration", "LMHeadModel")


def sizes_of(path: Path, python: str | None) -> Architecture:
    """Return the sizes in a file, counted by `transformers` where they cannot be told from the file alone.

    Args:
        python: that may have `transformers`; None: nothing is run.

    Raises:
        DocumentError: the file cannot be read, or nobody knows its architecture.
    """
    try:
        return read_architecture(path)
    except UnknownArchitectureError as error:
        config = read_config(path)
        if python is None or not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise
        try:
            found = count_config(config, path, python=python)
        except TraceError as failed:
            raise DocumentError(
                f"{error.text}, and cannot be counted: {failed.text.removeprefix('cannot be traced: ')}",
                file=str(path),
                given=error.given,
                allowed=error.allowed,
                next=error.next,
            ) from None
        return with_stored(counted_architecture(config, found), config, str(path))


def counted_architecture(config: Mapping[str, Any], found: Mapping[str, Any]) -> Architecture:
    """Return the architecture that explains a count: usual blocks of the config's sizes, and what is left beside them; a mere count
    where they explain too little of it."""
    count, sizes = found["parameters"], found["sizes"]
    name = str(config.get("_name_or_path") or config["model_type"])
    least = _EXPLAINED if found["whole"] else _EXPLAINED_OF_TEXT
    known = [one for gated in (True, False) if (one := _usual(name, gated, found, sizes)) is not None]
    known = [one for one in known if least <= one.parameters / count <= _MOST]
    if not known:
        return Architecture(name, "count", counted=count)
    best = min(known, key=lambda one: abs(one.parameters - count))
    used = {name: getattr(best, name) for name in ("width", "heads", "head_width", "kv_heads", "gated")}
    eager = eager_decoder("", config, used, 2, 0, fused=best.biases) if best.kind == "decoder" else None
    return replace(best, extra=count - best.parameters, eager=eager)


def _usual(name: str, gated: bool, found: Mapping[str, Any], sizes: Mapping[str, int]) -> Architecture | None:
    """Return a model of usual blocks with these sizes; None where some are missing."""
    try:
        width, layers, heads = (sizes[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
        experts = next(
            (sizes[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if sizes.get(key)), 0
        )
        ffn = (experts and sizes.get("moe_intermediate_size")) or sizes["intermediate_size"]
    except KeyError:
        return None
    kv = sizes.get("num_key_value_heads") or heads
    if min(width, layers, heads, ffn, kv) < 1 or heads % kv:
        return None
    generates = found["class"].endswith(_GENERATES)
    image, patch = sizes.get("image_size", 0), sizes.get("patch_size", 0)
    tokens = (image // patch) ** 2 + 1 if image and patch and not sizes.get("vocab_size") else 0
    if not sizes.get("vocab_size") and not tokens:
        return None
    return Architecture(
        name,
        "vision" if tokens else "decoder" if generates else "encoder",
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv,
        head_width=sizes.get("head_dim") or width // heads,
        ffn=ffn,
        vocabulary=sizes.get("vocab_size", 0),
        gated=gated,
        tied=found["tied"],
        biases=not gated,
        experts=experts,
        experts_per_token=min(experts, sizes.get("num_experts_per_tok", 1)),
        tokens=tokens,
    )
