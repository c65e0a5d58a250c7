"""Formats of models that hold no pickle: safetensors, GGUF, ONNX, Keras, TensorFlow."""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any, Iterator

from cordee.systems.scan.node.formats import protobuf
from cordee.systems.scan.node.source import Source
from cordee.systems.scan.node.verdict import Sight

_HEADER_BYTES = 100_000_000
_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip
# What reaches out of a template: Python's inner names, and filters and objects by which they are reached without them.
_TEMPLATE = re.compile(
    r"__\w+__|\|\s*attr\b|\b(?:lipsum|cycler|joiner)\s*\[|\b(?:lipsum|cycler|joiner|self|request|config)\s*(?:\.|\[)\s*[\"']?_|\b(?:popen|subprocess|getattr|globals|mro)\b"
    r"|\\x5f\\x5f|\\u005f|import\s+os\b|os\.system"
)
_CLASS = re.compile(rb'"class_name"\s*:\s*("(?:[^"\\]|\\.){1,200}")')
# Where functions of Keras itself lie that only compute.
_KERAS_FUNCTIONS = re.compile(
    r"(?:keras|tf_keras|tensorflow\.keras)\.(?:src\.)?(?:activations|losses|metrics|initializers|regularizers|constraints|ops)\b"
)
_TENSORFLOW_CALLS = (
    b"PyFunc",
    b"EagerPyFunc",
    b"PyFuncStateless",
    b"ReadFile",
    b"WriteFile",
    b"ShellExecute",
    b"MatchingFiles",
)
_ONNX_OWN = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"}
_ONNX_RUN = {"PyOp", "PythonOp", "PyCustomOp", "PyCustomOpDef"}
_MOST_NODES = 500_000
_GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_GGUF_TEXT, _GGUF_ARRAY = 8, 9


def template_sights(template: str, where: str) -> Iterator[Sight]:
    """Yield what a chat template does besides writing text."""
    found = _TEMPLATE.search(template)
    if found:
        text = (
            f"its chat template reaches for {found.group(0)!r}: templates are programs, and this one leaves its sandbox"
        )
        yield Sight("model-template", "block", text, where)


# safetensors


def is_safetensors(source: Source) -> bool:
    """Return whether it begins as safetensors do: eight bytes that say how long the JSON behind them is."""
    head = source.at(0, 1024)
    text = head[8:].lstrip(b" \t\r\n")
    likely = 1 <= int.from_bytes(head[:8], "little") <= max(_HEADER_BYTES, source.size)
    return text[:1] == b"{" and (
        likely or (text[1:2] == b'"' and (b'"data_offsets"' in text or b'"__metadata__"' in text))
    )


def safetensors_end(source: Source) -> tuple[int, list[Sight]]:
    """Return where its tensors end, and what is wrong with its header."""
    size = struct.unpack("<Q", source.at(0, 8))[0]
    if size > _HEADER_BYTES or size + 8 > source.size:
        return source.size, [_broken("its header is longer than the file, or than 100 MB")]
    try:
        spans = _spans(source.at(8, size).decode())
    except (ValueError, RecursionError) as error:
        what = str(error) if type(error) is ValueError else "it is no JSON in UTF-8"
        return source.size, [_broken(f"its header is no table of tensors: {what}")]
    end, faults = 0, []
    for first, last, bits in spans:
        if first != end or last < first or 8 * (last - first) != bits:
            faults = [_broken("its tensors overlap, leave gaps, or have another size than they say")]
        end = max(end, last)
    if 8 + size + end > source.size:
        faults = [_broken("it is cut off")]
    return min(source.size, 8 + size + end), faults


def _spans(text: str) -> list[tuple[int, int, int]]:
    """Return where each tensor of a header begins and ends, in bytes, in that order, and how many bits it has by its type and shape.

    Raises:
        ValueError: the header is against the format, as the library `safetensors` holds to it; says by what.
    """
    header = json.loads(
        text, object_pairs_hook=_Pairs, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
    )
    spans, metadata = [], 0
    for name, about in header:
        if name == "__metadata__":
            metadata += 1
            if about is not None and not (
                isinstance(about, _Pairs) and all(isinstance(value, str) for _, value in about)
            ):
                raise ValueError("__metadata__ is no table of texts")
            continue
        if isinstance(about, _Pairs):
            fields = [[value for key, value in about if key == field] for field in ("dtype", "shape", "data_offsets")]
            told = [field[0] for field in fields if len(field) == 1]
        else:
            told = about if isinstance(about, list) else []
        if len(told) != 3:
            raise ValueError(f"the tensor {name[:80]!r} has not one dtype, shape and data_offsets")
        dtype, shape, offsets = told
        if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            raise ValueError(f"shape and data_offsets of the tensor {name[:80]!r} are no sizes")
        if not isinstance(dtype, str) or dtype not in _BITS:
            raise ValueError(f"nobody knows the type {str(dtype)[:40]!r}")
        spans.append((name, (*offsets, shape, _BITS[dtype])))
    if metadata > 1:
        raise ValueError("__metadata__ stands there twice")
    # Of two tensors under one name the library, as most do, takes the last.
    return sorted(
        (first, last, _product(name, shape) * bits) for name, (first, last, shape, bits) in dict(spans).items()
    )


class _Pairs(list[tuple[str, Any]]):
    """A table of JSON, with what stands under one name twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        for key, value in pairs:
            f"{key}{value if isinstance(value, str) else ''}".encode()  # half of a character cannot be written


def _product(name: str, shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
        if count >= 1 << 64:
            raise ValueError(f"the tensor {name[:80]!r} has more items than can be counted")
    return count


def _are_sizes(values: Any) -> bool:
    return type(values) is list and all(type(value) is int and 0 <= value < 1 << 64 for value in values)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _finite(word: str) -> float:
    if math.isinf(number := float(word)):
        raise ValueError(f"{word[:40]} is too large a number")
    return number


def _whole(word: str) -> float:
    return -0.0 if word == "-0" else int(word)


def _broken(what: str) -> Sight:
    return Sight("model-safetensors-header", "unknown", f"this safetensors file cannot be trusted: {what}", "")


# GGUF


def gguf_sights(source: Source, where: str) -> Iterator[Sight]:
    """Yield what the metadata of a GGUF file holds besides data."""
    version, tensors, count = struct.unpack("<IQQ", source.at(4, 20))
    if version not in (2, 3) or max(tensors, count) > 1_000_000:
        what = f"a GGUF file of version {version} with {tensors:,} tensors cannot be read"
        yield Sight("model-gguf-header", "unknown", what, where)
        return
    at = 24
    for _ in range(count):
        key, at = _gguf_text(source, at)
        kind = _number(source, at, "<I")
        at += 4
        if kind == _GGUF_TEXT:
            value, at = _gguf_text(source, at)
            if "template" in key:
                yield from template_sights(value, where)
        else:
            at = _gguf_behind(source, at, kind, 0)


def _gguf_text(source: Source, at: int) -> tuple[str, int]:
    size = _number(source, at, "<Q")
    if at + 8 + size > source.size:
        raise ValueError("a text is cut off")
    return source.at(at + 8, min(size, 1 << 20)).decode("utf-8", "replace"), at + 8 + size


def _gguf_behind(source: Source, at: int, kind: int, depth: int) -> int:
    if kind in _GGUF_SIZES:
        return at + _GGUF_SIZES[kind]
    if kind == _GGUF_TEXT:
        return _gguf_text(source, at)[1]
    if kind != _GGUF_ARRAY or depth > 4:
        raise ValueError(f"a value has the type {kind}")
    inner, count = _number(source, at, "<I"), _number(source, at + 4, "<Q")
    at += 12
    if inner in _GGUF_SIZES:
        return at + count * _GGUF_SIZES[inner]
    if count > 10_000_000:
        raise ValueError("an array has more than ten million texts")
    for _ in range(count):
        at = _gguf_behind(source, at, inner, depth + 1)
    return at


def _number(source: Source, at: int, form: str) -> int:
    data = source.at(at, struct.calcsize(form))
    if len(data) < struct.calcsize(form):
        raise ValueError("it is cut off")
    number: int = struct.unpack(form, data)[0]
    return number


# ONNX, TensorFlow


def is_onnx(source: Source) -> bool:
    """Return whether it is an ONNX model, by its outermost fields."""
    if source.at(0, 1) != b"\x08":
        return False
    seen: dict[int, protobuf.Field] = {}
    try:
        for field in protobuf.fields(source):
            seen.setdefault(field.number, field)
            if field.number > 30 or (field.number in (2, 3, 4, 7, 8) and field.size < 0):
                return False
            if len(seen) > 12:
                return False
    except ValueError:
        pass
    return 1 in seen and 0 < seen[1].value < 100 and 7 in seen


def onnx_sights(source: Source, where: str) -> Iterator[Sight]:
    """Yield custom operators, and tensors that lie outside of the model's folder."""
    state = _Onnx(where)
    for field in protobuf.fields(source):
        inner = source.part(field.begin, field.size)
        if field.number == 7 and field.size >= 0:
            yield from state.graph(inner, 0)
        elif field.number == 25 and field.size >= 0:  # functions: their nodes are field 7
            for one in protobuf.fields(inner):
                if one.number == 7 and one.size >= 0:
                    yield from state.node(inner.part(one.begin, one.size), 0)


class _Onnx:
    def __init__(self, where: str) -> None:
        self._where, self._told, self._nodes = where, set[str](), 0

    def graph(self, graph: Source, depth: int) -> Iterator[Sight]:
        if depth > 20:
            raise ValueError("graphs are nested more than twenty deep")
        for field in protobuf.fields(graph):
            inner = graph.part(field.begin, field.size)
            if field.number == 1 and field.size >= 0:
                yield from self.node(inner, depth)
            elif field.number == 5 and field.size >= 0:
                yield from self._tensor(inner)

    def node(self, node: Source, depth: int) -> Iterator[Sight]:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise ValueError("it has more than 500,000 nodes")
        kind = domain = ""
        for field in protobuf.fields(node):
            if field.number == 4 and field.size >= 0:
                kind = protobuf.text(node, field)
            elif field.number == 7 and field.size >= 0:
                domain = protobuf.text(node, field)
            elif field.number == 5 and field.size >= 0:
                yield from self._attribute(node.part(field.begin, field.size), depth)
        full = f"{domain}:{kind}"
        if (domain in _ONNX_OWN and kind not in _ONNX_RUN) or full in self._told:
            return
        self._told.add(full)
        runs = kind in _ONNX_RUN or domain == "ai.onnx.contrib"
        text = f"its operator {full} is {'Python that it brings along' if runs else 'none of ONNX: whoever runs it loads a library for it'}"
        yield Sight("model-onnx-operator", "block" if runs else "warn", text, self._where)

    def _attribute(self, attribute: Source, depth: int) -> Iterator[Sight]:
        for field in protobuf.fields(attribute):
            inner = attribute.part(field.begin, field.size)
            if field.number in (6, 11) and field.size >= 0:
                yield from self.graph(inner, depth + 1)
            elif field.number in (5, 10) and field.size >= 0:
                yield from self._tensor(inner)

    def _tensor(self, tensor: Source) -> Iterator[Sight]:
        for field in protobuf.fields(tensor):
            if field.number != 13 or field.size < 0:
                continue
            entry = tensor.part(field.begin, field.size)
            told = [protobuf.text(entry, one) for one in protobuf.fields(entry) if one.size >= 0]
            if len(told) == 2 and told[0] == "location" and leads_out(told[1]) and told[1] not in self._told:
                self._told.add(told[1])
                text = f"it reads its tensors from {told[1]!r}, outside of the model's folder"
                yield Sight("model-onnx-external", "block", text, self._where)


def leads_out(path: str) -> bool:
    """Return whether a path leads out of the folder that it is meant for, or is an address."""
    return (
        "://" in path
        or path.startswith(("/", "\\", "~", "file:"))
        or ".." in re.split(r"[/\\]", path)
        or ":" in path[:3]
    )


def tensorflow_sights(source: Source, where: str) -> Iterator[Sight]:
    """Yield operations of a TensorFlow graph that run Python or touch files."""
    told = set[bytes]()
    for _, piece in source.chunks(overlap=64):
        if b"PrintV2" in piece and b"file://" in piece and b"PrintV2" not in told:
            told.add(b"PrintV2")
            yield Sight("model-tensorflow-operation", "block", "its operation PrintV2 writes into a file", where)
        for call in _TENSORFLOW_CALLS:
            if call not in told and re.search(rb"[\x00-\x1f]" + call + rb"(?![A-Za-z0-9])", piece):
                told.add(call)
                text = f"its graph has the operation {call.decode()}, which runs Python or touches files"
                yield Sight("model-tensorflow-operation", "block", text, where)


# Keras


def keras_document_sights(document: Any, where: str) -> Iterator[Sight]:
    """Yield layers of a Keras model's description that bring code along."""
    waiting, told = [document], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
            for key in ("filepath", "vocabulary", "idf_weights"):
                path = value.get(key)
                if isinstance(path, str) and leads_out(path) and path not in told:
                    told.add(path)
                    said = f"a layer reads what lies outside of its folder: {path[:120]!r}"
                    yield Sight("file-leads-out", "block", said, where)
            name, module = value.get("class_name"), value.get("module")
            if name in ("Lambda", "TFOpLambda", "__lambda__", "function") and name not in told and "config" in value:
                if name == "function" and _KERAS_FUNCTIONS.match(str(module)):
                    continue
                told.add(name)
                yield Sight(
                    "model-keras-lambda", "block", f"its layer {name} holds Python code, which loading runs", where
                )
            elif (
                isinstance(module, str)
                and module
                and not module.startswith(("keras", "tf_keras", "tensorflow.keras"))
                and module not in told
            ):
                told.add(module)
                harmful = module.partition(".")[0] in (
                    "builtins",
                    "os",
                    "subprocess",
                    "sys",
                    "posix",
                    "importlib",
                    "shutil",
                    "pickle",
                )
                text = f"it loads {module}.{name}, which is none of Keras"
                yield Sight("model-keras-module", "block" if harmful else "unknown", text, where)
            elif (
                value.get("registered_name")
                and ">" in str(value["registered_name"])
                and str(value["registered_name"]) not in told
            ):
                told.add(str(value["registered_name"]))
                if not str(value["registered_name"]).startswith(("keras", "Keras")):
                    yield Sight(
                        "model-keras-module",
                        "warn",
                        f"it needs the class {value['registered_name']} of the user's own",
                        where,
                    )
        elif isinstance(value, list):
            waiting.extend(value)


def _word(quoted: bytes) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return ""


def hdf5_sights(source: Source, where: str) -> Iterator[Sight]:
    """Yield what the description of a Keras model in an HDF5 file brings along."""
    for _, piece in source.chunks(overlap=64):
        if any(_word(found.group(1)) in ("Lambda", "TFOpLambda") for found in _CLASS.finditer(piece)):
            yield Sight("model-keras-lambda", "block", "its layer Lambda holds Python code, which loading runs", where)
            return
