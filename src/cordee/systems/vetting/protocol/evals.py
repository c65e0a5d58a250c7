"""One eval of a protocol: what it is called, and the checks and the test of pairs that it becomes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from cordee.core.documents.toml_lines import Keys
from cordee.systems.vetting.node.checks import Parameter, load_check
from cordee.systems.vetting.protocol.classes import NoClass
from cordee.systems.vetting.protocol.faults import Faults
from cordee.systems.vetting.protocol.types import PAIR, EvalType, nearest_type, type_names, why_refused

SCOPES = ("node", "link", "user", "fleet")
COMMON = (
    Parameter("name", "text", "what results call it", needed=True),
    Parameter("type", "text", "the check: a name of `cordee vet --list`, or a class", needed=True),
    Parameter("required", "boolean", "whether a failure, or that it could not be tested, leaves the node out"),
    Parameter("deadline", "duration", "how long it may take", unit="s"),
    Parameter("scope", "text", "whose fault it is, where not what the rule of the fault says", choices=SCOPES),
    Parameter("requirements", "list", "Python packages that it needs"),
)


@dataclass(frozen=True)
class Eval:
    """A valid eval.

    Attributes:
        index: its place in the list, from 0.
        name, type: as given.
        checks: entries of a resolved protocol.
        alone: of each check, whether nothing else may run meanwhile.
        pairs: settings of the test of pairs, None without one.
        requirements: packages, or lists of a package and pip's options.
        scope: whose fault a failure is, None: as its rule says.
        place: of a class of other people.
    """

    index: int
    name: str
    type: str
    required: bool
    checks: list[dict[str, Any]]
    alone: list[bool]
    pairs: dict[str, Any] | None = None
    requirements: list[str | list[str]] = field(default_factory=list)
    scope: str | None = None
    place: str | None = None


class Types(Protocol):
    """Looks a `type` up; None: there is none. Raises NoClass for a class that cannot be used."""

    def __call__(self, name: str) -> EvalType | None: ...


def read_eval(index: int, values: Any, required: bool, types: Types, faults: Faults) -> Eval | None:
    """Return an eval, or None when it is wrong; faults are noted.

    Args:
        index: its place in the list, from 0.
        values: as YAML gives it.
        required: what holds when it does not say so itself.
        types: looks its type up.
        faults: where faults are noted.
    """
    path: Keys = ("evals", index)
    before = len(faults.errors)
    if not isinstance(values, dict):
        what = "write `- name: ...` with `type: ...` below"
        faults.add(path, "is not an eval", given=values, allowed="a table with name and type", next=what)
        return None
    kind = _type(path, values.get("type"), types, faults)
    if kind is None:
        return None
    known = {key: value for key, value in values.items() if any(key == parameter.name for parameter in COMMON)}
    common = faults.parameters(path, known, COMMON)
    given = faults.parameters(path, values, kind.parameters, common=COMMON, converters=kind.converters, whose=kind.name)
    deadline = common.get("deadline")
    if deadline is not None and deadline <= 0:
        faults.add(
            (*path, "deadline"), "deadline is no time at all", given=deadline, allowed="more than 0 s", next="raise it"
        )
    if len(faults.errors) > before:
        return None
    return _expanded(index, kind, common, given, common.get("required", required), faults)


def requirements_of(evals: Iterable[Eval]) -> list[str | list[str]]:
    """Return what evals need installed, each once."""
    found = {json.dumps(entry): entry for one in evals for entry in one.requirements}
    return list(found.values())


def _expanded(
    index: int, kind: EvalType, common: dict[str, Any], given: dict[str, Any], required: bool, faults: Faults
) -> Eval:
    path: Keys = ("evals", index)
    name, expansion = common["name"], kind.expand(given)
    for note in expansion.notes:
        faults.note(path, f"{name}: {note}", "not-the-same")
    several = len(expansion.checks) + (expansion.pairs is not None) > 1
    checks, alone = [], []
    for check_name, parameters in expansion.checks:
        check = kind.declared or load_check(check_name)
        checks.append(
            {
                "check": check_name,
                "name": f"{name}: {check_name}" if several else name,
                "parameters": parameters,
                "required": required,
                "deadline_s": common.get("deadline") or check.deadline_s,
            }
        )
        alone.append(check.alone)
    pairs = None
    if expansion.pairs is not None:
        pair_name = f"{name}: {PAIR}" if several else name
        pairs = {"name": pair_name, "required": required, "deadline_s": common.get("deadline"), **expansion.pairs}
    place = kind.declared.place if kind.declared else None
    requirements = _requirements((*path, "requirements"), common.get("requirements"), faults)
    return Eval(index, name, kind.name, required, checks, alone, pairs, requirements, common.get("scope"), place)


def _type(path: Keys, name: Any, types: Types, faults: Faults) -> EvalType | None:
    if name is None:
        what = "add `type: ...`; `cordee vet --list` shows all"
        faults.add(path, "type is missing", rule="missing-key", given=None, allowed="the name of a check", next=what)
        return None
    if not isinstance(name, str):
        faults.add((*path, "type"), "type is not a text", given=name, allowed="the name of a check", next="change type")
        return None
    refusal = why_refused(name)
    if refusal is not None:
        faults.add(
            (*path, "type"), refusal, rule="not-honoured", given=name, allowed="a check", next="remove this eval"
        )
        return None
    try:
        found = types(name)
    except NoClass as fault:
        faults.add((*path, "type"), fault.text, rule="no-class", given=name, allowed=fault.allowed, next=fault.next)
        return None
    if found is None:
        near = nearest_type(name)
        what = f"did you mean {near}?" if near else "choose one of these; `cordee vet --list` explains them"
        text = f"there is no check {name[:200]}"
        faults.add((*path, "type"), text, rule="unknown-check", given=name, allowed=type_names(), next=what)
    return found


def _requirements(path: Keys, values: Any, faults: Faults) -> list[str | list[str]]:
    allowed = "a list of packages such as torch, or of lists such as [torch, --index-url, https://...]"
    if values is None:
        return []
    if not isinstance(values, list):
        faults.add(
            path, "requirements is not a list", given=values, allowed=allowed, next="write `- PACKAGE` lines below it"
        )
        return []
    for index, value in enumerate(values):
        words = value if isinstance(value, list) else [value]
        texts = [word for word in words if isinstance(word, str) and word.strip() and "\0" not in word]
        if not texts or len(texts) < len(words) or texts[0].startswith("-"):
            faults.add((*path, index), "is not a package", given=value, allowed=allowed, next="change it")
    return values
