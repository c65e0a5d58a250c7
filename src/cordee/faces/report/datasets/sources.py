"""Who measures each standard metric, read from the samplers' code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from cordee.telemetry.node.catalogue import GROUPS, METRICS

_SAMPLERS = Path(__file__).parents[3] / "telemetry" / "node" / "samplers"
_GPU_SAMPLERS = _SAMPLERS / "gpu"
_PLACE = re.compile(r"(proc|sys)/[a-z]|cgroup |perf_event")
_CALLS = ("metric", "described")
# Groups that a system measures: how it counts (`cordee.systems.egress.node.counts`).
_OF_SYSTEMS = {"egress": ("sock-diag", "nft-cgroup"), "staging": ("agent",)}


@lru_cache(maxsize=1)
def metric_sources() -> dict[str, list[str]]:
    """Return the sources of each standard metric: names of GPU sources (`[sampling] gpus`), else what is read."""
    trees = {_module(path): ast.parse(path.read_text()) for path in sorted(_GPU_SAMPLERS.rglob("*.py"))}
    found: dict[str, dict[str, None]] = {name: {} for name in METRICS}
    for module, tree in trees.items():
        source = _source_name(tree)
        if source:
            named = {metric for helper in _with_helpers(module, trees) for metric in _named(trees[helper])}
            for metric in (metric.name for metric in GROUPS["gpu"] if metric.name in named - _refused(tree)):
                found[metric][source] = None
    for path in sorted(path for path in _SAMPLERS.rglob("[!_]*.py") if _GPU_SAMPLERS not in path.parents):
        tree = ast.parse(path.read_text())
        told = dict(_told(tree))
        places = ", ".join(dict.fromkeys(_open_ended(text) for text in _texts_of(tree) if _PLACE.match(text)))
        for metric in _named(tree) - {metric.name for metric in GROUPS["gpu"]}:
            if metric in told or not found[metric]:
                found[metric] = {told.get(metric) or places or path.stem: None}
    for group, methods in _OF_SYSTEMS.items():
        found |= {metric.name: dict.fromkeys(methods) for metric in GROUPS[group]}
    return {name: list(sources) for name, sources in found.items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(_GPU_SAMPLERS).with_suffix("").parts)


def _with_helpers(module: str, trees: dict[str, ast.Module]) -> set[str]:
    """Return a module of GPU sources and those that it imports, and so on; the seam's base module is none of them."""
    found, due = set(), [module]
    while due:
        name = due.pop()
        if name in trees and name not in found and name not in ("_base", "__init__"):
            found.add(name)
            modules = [node.module or "" for node in ast.walk(trees[name]) if isinstance(node, ast.ImportFrom)]
            due += [one.partition(".samplers.gpu.")[2] for one in modules if ".samplers.gpu." in one]
    return found


def _source_name(tree: ast.Module) -> str:
    """Return the `name` of the GPU source that a module holds, empty when it holds none."""
    for holder in ast.walk(tree):
        for node in holder.body if isinstance(holder, ast.ClassDef) else []:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "name":
                return str(ast.literal_eval(node.value))
    return ""


def _refused(tree: ast.Module) -> set[str]:
    """Return the metrics that a source says it never gives."""
    dicts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.never"
    ]
    return {text for each in dicts if isinstance(each, ast.Dict) for text in _texts_of(each)}


def _told(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (metric, source) of the calls that name both."""
    constants = {
        ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets
    }
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _CALLS and call.args:
            name, source = (constants.get(ast.unparse(at), at) for at in (call.args[0], call.args[-1]))
            names, sources = _text(name), _text(source)
            if names in METRICS and sources and len(call.args) > 1:
                yield names, sources


def _named(tree: ast.Module) -> set[str]:
    """Return the metrics whose name stands in a module, whole or with a part filled in."""
    whole = set(_texts_of(tree)) | {node.arg or "" for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces = [piece.value if isinstance(piece, ast.Constant) else None for piece in node.values]
            if sum(len(str(piece or "")) for piece in pieces) > len("gpu_"):
                pattern = "".join("[a-z0-9]+" if piece is None else re.escape(str(piece)) for piece in pieces)
                whole |= {name for name in METRICS if re.fullmatch(pattern, name)}
    return whole & set(METRICS)


def _texts_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _open_ended(place: str) -> str:
    return f"{place}..." if place.endswith("/") else place


def _text(node: ast.AST) -> str:
    """Return a text, with `...` where a formatted one has a value; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    pieces = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(piece.value) if isinstance(piece, ast.Constant) else "..." for piece in pieces)
