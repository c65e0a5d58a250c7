"""What the `type` of an eval may be, and what it becomes: checks, a test of pairs, and words about what is not the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.words import nearest
from cordee.systems.vetting.node.checks import CHECKS, Parameter, load_check
from cordee.systems.vetting.protocol.classes import Declared, declared, is_class
from cordee.systems.vetting.protocol.values import Converter
from cordee.systems.vetting.protocol.vetnode import GIBIBYTES_PER_S, REFUSED, VETNODE, Alias, Expansion

PAIR = "pair.bandwidth"
PAIR_TITLE = "How fast are the nodes connected, two by two?"
PAIR_PARAMETERS = (
    Parameter(
        "backend",
        "text",
        "what carries the bytes: plain TCP, or torch (NCCL, Gloo without GPUs)",
        "tcp",
        choices=("tcp", "torch"),
    ),
    Parameter("payload", "size", "bytes that are sent at once; without it 1 MiB"),
    Parameter("seconds", "duration", "how long one pair is measured, both directions together", default=2.0, unit="s"),
    Parameter("min_bandwidth", "bandwidth", "slowest bandwidth between two nodes", unit="bytes/s"),
    Parameter("min_ratio", "ratio", "slowest share of the 75th percentile of all nodes", default=0.88),
    Parameter("rounds", "count", "rounds of disjoint pairs", default=2),
    Parameter("retests", "count", "rounds that retest suspects against good partners", default=2),
)


@dataclass(frozen=True)
class EvalType:
    """A `type`: what it is called and asks, the parameters it takes, and what it becomes.

    Attributes:
        name: as `type:` gives it.
        title: the question, one sentence.
        parameters: what it takes beside the keys of every eval.
        expand: returns what it becomes, from the converted parameters that were given or have a default.
        converters: other readings of some kinds of values than ours.
        declared: of a class of other people.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    expand: Callable[[dict[str, Any]], Expansion]
    converters: Mapping[str, Converter] = field(default_factory=dict)
    declared: Declared | None = None


def eval_type(name: str, base: Path, folders: tuple[Path, ...]) -> EvalType | None:
    """Return the type of this name, None when there is none.

    Args:
        name: as `type:` gives it.
        base: the protocol's folder.
        folders: where classes of other people may come from.

    Raises:
        NoClass: it is a class that cannot be used.
    """
    if name == PAIR:
        return EvalType(name, PAIR_TITLE, PAIR_PARAMETERS, lambda given: Expansion(pairs=given))
    if name in CHECKS:
        check = load_check(name)
        return EvalType(
            name,
            check.title,
            check.parameters,
            lambda given: Expansion(checks=[(name, given)]),
        )
    if name in VETNODE:
        return _of_vetnode(name, VETNODE[name])
    if is_class(name):
        found = declared(name, base, folders)
        return EvalType(name, found.title, found.parameters, lambda given: Expansion([(name, given)]), declared=found)
    return None


def type_names() -> list[str]:
    """Return the names of all types that need no class of other people, ours first."""
    return [*sorted({*CHECKS, PAIR}), *VETNODE]


def nearest_type(name: str) -> str | None:
    """Return the type whose name, or whose last part, is most alike."""
    names = type_names()
    near = nearest(name, names)
    if near:
        return near
    last = {known.rpartition(".")[2].lower(): known for known in reversed(names)}
    near = nearest(name.rpartition(".")[2].rpartition(":")[2].lower(), last)
    return last[near] if near else None


def why_refused(name: str) -> str | None:
    """Return why a type is known and not taken, None for all others."""
    return REFUSED.get(name)


def _of_vetnode(name: str, alias: Alias) -> EvalType:
    def expand(given: dict[str, Any]) -> Expansion:
        expansion = alias.expand(given)
        if expansion.pairs is not None:
            defaults = {
                parameter.name: parameter.default for parameter in PAIR_PARAMETERS if parameter.default is not None
            }
            expansion.pairs = {**defaults, **expansion.pairs}
        for check, parameters in expansion.checks:
            known = {parameter.name for parameter in load_check(check).parameters}
            for key in [key for key in parameters if key not in known]:
                del parameters[key]
                expansion.notes.append(f"{check} does not take {key}")
        return expansion

    return EvalType(name, alias.title, alias.parameters, expand, {"bandwidth": GIBIBYTES_PER_S, **alias.converters})
