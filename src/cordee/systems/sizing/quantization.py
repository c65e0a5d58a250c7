"""How weights are held in fewer bits than they are computed in: what a config.json's `quantization_config` says, or an option.

Matrices of blocks are quantized, with the scales and zeros of their groups; embedding, head, norms and routers stay as they are, but
for what the file says otherwise. Sizes are those that the methods' libraries store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cordee.core.errors import DocumentError

# NF4 in blocks of 64, their scales quantized once more.
_NF4 = 0.5 + 4 / 64 / 4
_BLOCK = "quantization_config"
# Under which names methods list what they leave as it is.
_KEPT = (
    "modules_to_not_convert", "ignore", "ignored_layers", "llm_int8_skip_modules", "skip_modules", "exclude_modules", "exclude",
    "linear_weights_not_to_quantize",
)  # fmt: skip
# Matrices of one block by their names in most models, which lists of modules are compared with.
_MATRICES = {
    "attention": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "mlp": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    "shared": ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"),
    "experts": ("mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj"),
}
_OTHER_MODEL = re.compile(r"vision|visual|audio|mtp", re.IGNORECASE)


class Packed(NamedTuple):
    """The share of some matrices that is quantized, and the bytes of one weight of it, with its part of scales and zeros."""

    share: float = 0.0
    each: float = 2.0

    def bytes_of(self, rest: float) -> float:
        """Return the mean bytes of a weight, where what is not quantized takes `rest`."""
        return self.share * self.each + (1 - self.share) * rest


@dataclass(frozen=True)
class StoredWeights:
    """How the matrices of a model are stored.

    Attributes:
        method: as the file or the option names it.
        attention, mlp, experts, head: what is quantized of each; `mlp` is that of shared experts where there are experts.
        each_matrix: bytes beside weights for every matrix, such as its codebooks.
    """

    method: str
    attention: Packed = field(default_factory=Packed)
    mlp: Packed = field(default_factory=Packed)
    experts: Packed = field(default_factory=Packed)
    head: Packed = field(default_factory=Packed)
    each_matrix: float = 0.0

    @classmethod
    def alike(cls, method: str, each: float) -> StoredWeights:
        """Return that of all matrices of blocks, of so many bytes for each weight."""
        one = Packed(1.0, each)
        return cls(method, one, one, one)


# What an option asks for: fp8 with a scale for 128 x 128 weights, int8 with one for each row, int4 in groups of 128 with zeros.
OPTIONS = {
    "fp8": StoredWeights.alike("fp8", 1 + 4 / 128**2),
    "int8": StoredWeights.alike("int8", 1 + 4 / 4096),
    "int4": StoredWeights.alike("int4", 0.5 + 2.5 / 128),
    "nf4": StoredWeights.alike("nf4", _NF4),
}


class _Group(NamedTuple):
    """Matrices that are stored alike: bytes of one weight, and patterns of their names; `Linear`: of all."""

    each: float
    targets: Sequence[str] = ("Linear",)


class _NotReadError(Exception):
    """A part of a `quantization_config` says what is not understood: (key, value)."""


Config = Mapping[str, Any]


def _number(q: Config, *names: str, default: float | None = None) -> float:
    for name in names:
        value = q.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise _NotReadError(name, value)
            return float(value)
    if default is None:
        raise _NotReadError(names[0], None)
    return default


def _grouped(bits: float, group: float, width: int, scale: float = 2.0, zero: float = 0.0) -> float:
    """Return the bytes of a weight whose group, a row of `width` where it is below 1, has a scale and a zero of so many bytes."""
    if not 1 <= bits <= 16:
        raise _NotReadError("bits", bits)
    return bits / 8 + (scale + zero) / (group if group >= 1 else width)


def _gptq(q: Config, width: int) -> list[_Group]:
    bits = _number(q, "bits", "w_bit")
    zero = bits / 8 if q.get("zero_point", True) else 0.0
    return [_Group(_grouped(bits, _number(q, "group_size", "q_group_size", default=128), width, 2, zero))]


def _bitsandbytes(q: Config, width: int) -> list[_Group]:
    if q.get("load_in_8bit") or q.get("_load_in_8bit"):
        return [_Group(1 + 4 / width)]
    if not (q.get("load_in_4bit") or q.get("_load_in_4bit")):
        raise _NotReadError("load_in_4bit", q.get("load_in_4bit"))
    return [_Group(_NF4 if q.get("bnb_4bit_use_double_quant") else 0.5 + 4 / 64)]


def _fp8(q: Config, width: int) -> list[_Group]:
    block = q.get("weight_block_size")
    if block is None:
        return [_Group(1.0)]
    if not isinstance(block, list) or len(block) != 2:
        raise _NotReadError("weight_block_size", block)
    experts = q.get("expert_dtype", "fp8")
    if experts != "fp8":
        raise _NotReadError("expert_dtype", experts)
    return [_Group(1 + 4 / block[0] / block[1])]


def _rows_of_bytes(q: Config, width: int) -> list[_Group]:
    return [_Group(1 + 4 / width)]


def _compressed(q: Config, width: int) -> list[_Group]:
    """Return the groups of compressed-tensors, which ModelOpt writes, too."""
    groups = q.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _NotReadError("config_groups", groups)
    if q.get("sparsity_config") and str(dict(q["sparsity_config"]).get("format", "dense")) != "dense":
        raise _NotReadError("sparsity_config", q["sparsity_config"].get("format"))
    found = []
    for one in groups.values():
        weights = one.get("weights") if isinstance(one, Mapping) else None
        if weights is None:  # only activations, or nothing
            continue
        bits = _number(weights, "num_bits")
        block = weights.get("block_structure")
        if isinstance(block, list):
            each = bits / 8 + 4 / block[0] / block[1]
        elif weights.get("strategy", "tensor") == "tensor" and not weights.get("group_size"):
            each = bits / 8
        else:
            small = bits == 4 and weights.get("type") == "float"  # NVFP4 and MXFP4 have scales of a byte
            zero = 0.0 if weights.get("symmetric", True) else bits / 8
            each = _grouped(bits, _number(weights, "group_size", default=-1), width, 1 if small else 2, zero)
        found.append(_Group(each, tuple(one.get("targets") or ("Linear",))))
    return found


_ALGORITHMS = {
    "FP8": 1.0, "FP8_PER_CHANNEL_PER_TOKEN": 1 + 4 / 4096, "FP8_PB_WO": 1 + 4 / 128**2, "NVFP4": 0.5 + 1 / 16,
    "NVFP4_AWQ": 0.5 + 1 / 16, "W4A16_AWQ": 0.5 + 2 / 128, "W4A8_AWQ": 0.5 + 2 / 128, "INT8_SQ": 1.0, "W8A8_SQ_PER_CHANNEL": 1.0,
    "MXFP8": 1 + 1 / 32,
}  # fmt: skip


def _modelopt(q: Config, width: int) -> list[_Group]:
    if q.get("config_groups"):
        return _compressed(q, width)
    name = str(q.get("quant_algo", "")).upper()
    if name not in _ALGORITHMS:
        raise _NotReadError("quant_algo", q.get("quant_algo"))
    return [_Group(_ALGORITHMS[name])]


def _hqq(q: Config, width: int) -> list[_Group]:
    inner = q.get("quant_config", q)
    inner = inner.get("weight_quant_params", inner) if isinstance(inner, Mapping) else {}
    bits = _number(inner, "nbits")
    return [_Group(_grouped(bits, _number(inner, "group_size", default=64), width, 2, 2))]


_QUANTO = {"int8": 8, "float8": 8, "int4": 4, "int2": 2}


def _quanto(q: Config, width: int) -> list[_Group]:
    if (bits := _QUANTO.get(q.get("weights", "int8"))) is None:
        raise _NotReadError("weights", q.get("weights"))
    return [_Group(1 + 2 / width if bits == 8 else _grouped(bits, 128, width, 2, 2))]


def _torchao(q: Config, width: int) -> list[_Group]:
    kind, options = q.get("quant_type"), q.get("quant_type_kwargs") or {}
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
        kind, options = (kind.get("_type"), kind.get("_data") or {}) if isinstance(kind, Mapping) else (kind, options)
    name = re.sub(r"[_-]", "", str(kind)).lower()
    # The type of the weights is named last, after that of the activations.
    weight = re.findall(r"(int|uint|float)(4|8)", name)
    if not weight or "intx" in name or "sparse" in name:
        raise _NotReadError("quant_type", kind)
    bits = float(weight[-1][1])
    if bits == 8:
        return [_Group(_grouped(8, _number(options, "group_size", default=-1), width, 4 if "float" in name else 2))]
    default = 32 if "dynamicactivation" in name else 128
    return [_Group(_grouped(4, _number(options, "group_size", default=default), width, 2, 2))]


def _aqlm(q: Config, width: int) -> list[_Group]:
    taken = _number(q, "in_group_size", default=8) * _number(q, "out_group_size", default=1)
    bits = _number(q, "num_codebooks", default=1) * _number(q, "nbits_per_codebook", default=16) / taken
    return [_Group(bits / 8 + 2 / width)]


def _codebooks(q: Config) -> float:
    taken = _number(q, "in_group_size", default=8) * _number(q, "out_group_size", default=1)
    count = _number(q, "num_codebooks", default=1) * 2 ** _number(q, "nbits_per_codebook", default=16)
    return count * taken * 2


def _small_floats(q: Config, width: int) -> list[_Group]:
    """Return MXFP4, NVFP4 and MXFP8, by the name of the method or of its type: a scale of a byte for 32 or 16 weights."""
    name = str(q.get("forward_dtype") or q["quant_method"]).lower()
    each = {"mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16, "mxfp8": 1 + 1 / 32}
    if name not in each:
        raise _NotReadError("forward_dtype", name)
    return [_Group(each[name])]


def _higgs(q: Config, width: int) -> list[_Group]:
    return [_Group(_grouped(_number(q, "bits", default=4), _number(q, "hadamard_size", default=512), width))]


def _sinq(q: Config, width: int) -> list[_Group]:
    return [_Group(_grouped(_number(q, "nbits", default=4), _number(q, "group_size", default=64), width, 2, 2))]


METHODS: dict[str, Callable[[Config, int], list[_Group]]] = {
    "gptq": _gptq,
    "awq": _gptq,
    "auto-round": _gptq,
    "bitsandbytes": _bitsandbytes,
    "fp8": _fp8,
    "fbgemm_fp8": _rows_of_bytes,
    "eetq": _rows_of_bytes,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "hqq": _hqq,
    "quanto": _quanto,
    "torchao": _torchao,
    "aqlm": _aqlm,
    "mxfp4": _small_floats,
    "nvfp4": _small_floats,
    "mxfp8": _small_floats,
    "fp_quant": _small_floats,
    "higgs": _higgs,
    "sinq": _sinq,
    "bitnet": lambda q, width: [_Group(2 / 8)],
}
_NAMES = {"intel/auto-round": "auto-round", "modelopt_fp4": "modelopt", "gptq_marlin": "gptq", "awq_marlin": "awq"}
# These take the head for a matrix like others, unless it is listed; others leave it, unless they say so.
_WITH_HEAD = ("compressed-tensors", "modelopt")


def read_quantization(config: Mapping[str, Any], file: str, *, width: int, layers: int) -> StoredWeights | None:
    """Return how a Hugging Face config says that weights are stored; None: as they are computed.

    Args:
        width: of the model, which is the length of most rows; `layers`: blocks that lists of modules may name one by one.

    Raises:
        DocumentError: a method, or a part of it, is not understood.
    """
    found = config.get(_BLOCK)
    if found is None and isinstance(config.get("text_config"), Mapping):
        found = config["text_config"].get(_BLOCK)
    if not found:
        return None
    q = found if isinstance(found, Mapping) else {}
    bits = q.get("load_in_4bit") or q.get("load_in_8bit")
    method = str(q.get("quant_method") or ("bitsandbytes" if bits else "")).lower().replace("_tensors", "-tensors")
    method = _NAMES.get(method, method)
    if method not in METHODS:
        raise DocumentError(
            f"{_BLOCK}: the method is not known",
            file=file,
            given=method or "no quant_method",
            allowed=", ".join(METHODS),
            next=f"plan a copy without {_BLOCK}, with `--task inference --precision int8` or `int4`",
        )
    try:
        groups = METHODS[method](q, width)
        return _stored(method, {**q, "quant_method": method}, groups, layers)
    except (_NotReadError, re.error, TypeError, AttributeError, ZeroDivisionError) as error:
        key, value = error.args if isinstance(error, _NotReadError) else (_BLOCK, error)
        raise DocumentError(
            f"{_BLOCK}: {key} of the method {method} is not understood",
            file=file,
            given=f"{key} = {value}",
            next=f"plan a copy without {_BLOCK}, with `--task inference --precision int8` or `int4`",
        ) from None


def _stored(method: str, q: Config, groups: Sequence[_Group], layers: int) -> StoredWeights:
    kept = list(_kept(method, q))
    left = [one for one in map(_pattern, kept) if one]
    heads = method in _WITH_HEAD or bool(q.get("lm_head")) or bool(q.get("include_input_output_embeddings"))

    def packed(names: Sequence[str]) -> Packed:
        share = size = 0.0
        for name in names:
            if any(one.search(name) for one in left):
                continue
            for each, targets in groups:
                if any(target == "Linear" or _named(target, name) for target in targets):
                    share, size = share + 1, size + each
                    break
        return Packed(share / len(names), size / share) if share else Packed()

    every = {kind: [f"model.layers.{layer}.{name}" for layer in range(max(1, layers)) for name in names]
             for kind, names in _MATRICES.items()}  # fmt: skip
    # Many lists speak of shared experts apart from the MLPs of the first blocks.
    mlp = packed(every["mlp"])
    shared = packed(every["shared"])
    return StoredWeights(
        method,
        packed(every["attention"]),
        mlp if mlp.share <= shared.share else shared,
        packed(every["experts"]),
        packed(["lm_head"]) if heads else Packed(),
        _codebooks(q) if method == "aqlm" else 0.0,
    )


def _kept(method: str, q: Config) -> Iterator[str]:
    """Yield the patterns of what stays as it is.

    Raises:
        _NotReadError: some of it is stored in another way.
    """
    for key in _KEPT:
        yield from map(str, q.get(key) or ())
    if method == "mxfp4":  # the matrices of experts only, whatever is listed
        yield from ("self_attn", "re:.*mlp\\.(gate|up|down)_proj", "shared_experts")
    for key in ("dynamic", "extra_config"):  # GPTQModel's and AutoRound's rules for single modules
        for name, rule in (q.get(key) or {}).items():
            if name.startswith("-:"):
                yield "re:" + name[2:]
            elif isinstance(rule, Mapping) and rule.get("bits", 0) >= 16:
                yield name
            elif isinstance(rule, Mapping) and rule.get("bits", q.get("bits")) != q.get("bits"):
                raise _NotReadError(key, f"{name}: {dict(rule)}")


def _named(target: str, name: str) -> bool:
    found = _pattern(target)
    return found is not None and found.search(name) is not None


def _pattern(text: str) -> re.Pattern[str] | None:
    """Return what finds a module by a name of it, a part of its path, or an expression (`re:...`); None: it is of another model."""
    if text.startswith("re:"):
        return None if _OTHER_MODEL.search(text) else re.compile("^(?:" + text[3:] + ")")
    head, _, rest = text.rpartition("layers.") if re.search(r"layers\.(\d|\*)", text) else ("", "", text)
    if _OTHER_MODEL.search(head or text):
        return None
    words = ("layers." + rest) if head or text != rest else text
    words = re.escape(words.replace(".*", "*")).replace(r"\*", ".*")
    return re.compile(rf"(?:^|\.){words}(?:$|\.)")
