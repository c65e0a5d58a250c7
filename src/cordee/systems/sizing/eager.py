"""What the classes of Hugging Face transformers keep of a block where fused kernels keep less.

Read in their modeling files (5.17), and in the tensors that autograd saves of one block of each; an H200 agreed within 1 % for most
(benchmarks/results/2026-11-28-plan-on-h200.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

# Numbers that an activation function of several operations keeps beside those of a fused one, and the bytes of each under autocast:
# its policy computes `pow`, and what follows, in fp32.
_COMPOSED = {
    "gelu_new": (3, 4), "gelu_accurate": (3, 4), "gelu_python_tanh": (3, 4), "gelu_fast": (6, 2), "gelu_python": (2, 2),
    "quick_gelu": (1, 2), "gelu_10": (1, 2), "relu": (-1, 2),
}  # fmt: skip
_ACTIVATIONS = {"gpt2": "gelu_new", "gpt_neo": "gelu_new", "gptj": "gelu_new", "codegen": "gelu_new", "phi": "gelu_new",
                "opt": "relu"}  # fmt: skip
# Classes without `_supports_sdpa`: of each score of attention, the bytes that are kept for backward (the soft maximum in fp32 and its
# copy in 16 bit), and those that exist at once (scores, masked ones, an fp32 copy and its soft maximum; of gpt_oss all in 16 bit).
_SCORES = {"bloom": (6, 12), "mpt": (6, 12), "gpt_neo": (6, 12), "gptj": (6, 12), "codegen": (6, 12), "gpt_oss": (6, 8)}
# Classes with one matrix for queries, keys and values; with one for gate and up.
_FUSED_QKV = ("phi3", "gpt_neox", "gpt2", "gpt_bigcode", "bloom", "falcon", "mpt", "codegen")
_FUSED_GATES = ("phi3", "glm", "glm4")
# Norms that are one operation, `layer_norm`, beside those that have a bias; those that subtract the mean in operations of their own.
_FUSED_NORMS, _CENTRED = ("olmo", "mpt"), ("cohere", "cohere2")


class AttentionScores(NamedTuple):
    """Bytes of each score of attention where it is no fused kernel: kept for backward, and existing at once."""

    kept: float = 0
    held: float = 0


NO_SCORES = AttentionScores()


@dataclass(frozen=True)
class EagerBlock:
    """What a block of transformers computes by single operations, in numbers of one token.

    Attributes:
        norms: that norms of single operations read, each kept in fp32 before and behind its scaling; `fused_norms`: that `layer_norm` reads.
        outputs: that go from norms to matrices; `copies`: as many again for each matrix, since autocast casts them for each.
        attention: queries, keys, values and what attention returns, in units of two bytes.
        composed: numbers that the activation function keeps beside a fused one's, and their bytes under autocast.
        fused_gates: whether one matrix makes gate and up, which stay together.
        expert: numbers of the MLP's width that an expert keeps.
        capped: whether logits go through a hyperbolic tangent, whose result stays.
    """

    norms: float = 0.0
    fused_norms: float = 0.0
    outputs: float = 0.0
    copies: float = 0.0
    attention: float = 0.0
    scores: AttentionScores = NO_SCORES
    composed: tuple[int, int] = (0, 0)
    fused_gates: bool = False
    expert: int = 4
    capped: bool = False


def eager_decoder(
    kind: str, c: Mapping[str, Any], sizes: Mapping[str, Any], norms: int, qk_norms: float, *, fused: bool
) -> EagerBlock:
    """Return the block of a decoder.

    Args:
        norms: of one block; `qk_norms`: numbers of a token that norms of queries and keys read.
        fused: whether norms have biases, and are `layer_norm` therefore.
    """
    width, inner, kv = sizes["width"], sizes["heads"] * sizes["head_width"], sizes["kv_heads"] * sizes["head_width"]
    fused = fused or kind in _FUSED_NORMS
    read = (norms or 2) * width * (1.5 if kind in _CENTRED else 1.0)
    # Of four norms two stand before matrices; those of olmo are two without weights.
    before = max(1, min(norms, 2)) if norms else 2
    scores, attention = AttentionScores(*_SCORES.get(kind, (0, 0))), 2.0 * inner + 2 * kv
    if kind in _SCORES:  # keys and values are repeated to all heads
        attention = 4.0 * inner
    elif kind == "falcon" and sizes["kv_heads"] < sizes["heads"] and not c.get("new_decoder_architecture"):
        # One head of keys for all: no fused kernel takes it, and the plain one computes in fp32.
        scores, attention = AttentionScores(4, 8), 7.0 * inner
    act = c.get("hidden_activation") or c.get("hidden_act") or c.get("activation_function") or _ACTIVATIONS.get(kind)
    ranks = sizes.get("q_rank", 0) + sizes.get("kv_rank", 0)
    matrices = (2 if ranks else 1 if kind in _FUSED_QKV else 3) + (
        2 if sizes["gated"] and kind not in _FUSED_GATES else 1
    )
    return EagerBlock(
        norms=(0.0 if fused else read) + qk_norms + ranks,
        fused_norms=read if fused else 0.0,
        outputs=before * width,
        copies=matrices * width + ranks,
        attention=attention,
        scores=scores,
        composed=_COMPOSED.get(str(act), (0, 0)),
        fused_gates=kind in _FUSED_GATES,
        # Gate and up, the activation, the product; gpt_oss limits both, and has a sigmoid and a sum of its own.
        expert=7 if kind == "gpt_oss" else 4,
        capped=bool(c.get("final_logit_softcapping")),
    )


def eager_both(width: int, inner: int, crossed: float, *, fused: bool, biased: bool = False) -> EagerBlock:
    """Return the mean block of an encoder and a decoder.

    Args:
        crossed: the share of blocks with cross attention.
        fused: whether norms are `layer_norm`.
        biased: whether scores of attention get trained biases, with which `scaled_dot_product_attention` takes no fused kernel.
    """
    read = (2 + crossed) * width
    matrices = 3 * (1 + crossed) + 1
    return EagerBlock(
        norms=0.0 if fused else read, fused_norms=read if fused else 0.0, outputs=read, copies=matrices * width,
        attention=4 * inner * (1 + crossed), scores=AttentionScores(6 * (1 + crossed), 8) if biased else NO_SCORES,
    )  # fmt: skip
