"""The JSON schema of protocols, and the list of all that an eval may be; both made from what checks declare."""

from __future__ import annotations

from typing import Any

from cordee.core.units import format_size
from cordee.systems.vetting.node.checks import CHECKS, Parameter, load_check
from cordee.systems.vetting.protocol.classes import class_names
from cordee.systems.vetting.protocol.document import BUILT_IN, MOST_EVALS, PIP, TOP
from cordee.systems.vetting.protocol.evals import COMMON
from cordee.systems.vetting.protocol.types import PAIR, PAIR_PARAMETERS, PAIR_TITLE
from cordee.systems.vetting.protocol.values import FORMS, SCHEMAS
from cordee.systems.vetting.protocol.vetnode import VETNODE

_REQUIREMENTS = {
    "type": "array",
    "items": {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
        ]
    },
}


def protocol_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a protocol as people write it."""
    known = _types()
    others = {"type": "string", "pattern": "^[^:]+:[A-Za-z_][A-Za-z0-9_]*$"}
    names = {"anyOf": [{"enum": [*known, *class_names()]}, others]}
    properties = {parameter.name: _property(parameter) for parameter in TOP}
    properties["evals"] |= {"type": "array", "minItems": 1, "maxItems": MOST_EVALS, "items": {"$ref": "#/$defs/eval"}}
    properties["pip"] |= _table(PIP)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A protocol for `cordee vet`",
        **_table(TOP),
        "properties": properties,
        "$defs": {
            "eval": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {"type": {**names, "description": _common("type").what}},
                "allOf": [
                    {"if": {"properties": {"type": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}}
                    for name in known
                ],
            },
            **{name: _eval(title, parameters) for name, (title, parameters) in known.items()},
        },
    }


def check_list() -> dict[str, Any]:
    """Return all that an eval may be: `{"schema", "checks", "vetnode", "eval", "protocol", "built_in"}`.

    Each check has `type`, `title`, `parameters`, `scope`, `deadline_s`, `alone` and `without_gpu`; a class of vetnode has
    `type`, `title`, `parameters` and what it `becomes`; a parameter has `name`, `kind`, `what`, `default`, `unit`, `needed`
    and `choices`.
    """
    checks = []
    for name in sorted({*CHECKS, PAIR}):
        check = load_check(name) if name != PAIR else None
        checks.append(
            {
                "type": name,
                "title": check.title if check else PAIR_TITLE,
                "parameters": [_parameter(one) for one in (check.parameters if check else PAIR_PARAMETERS)],
                "scope": check.scope if check else "link",
                "deadline_s": check.deadline_s if check else None,
                "alone": check.alone if check else True,
                "without_gpu": check.without_gpu if check else "The same over TCP, or by Gloo with torch.",
            }
        )
    vetnode = [
        {
            "type": name,
            "title": alias.title,
            "becomes": list(alias.becomes),
            "parameters": [_parameter(one) for one in alias.parameters],
        }
        for name, alias in VETNODE.items()
    ]
    return {
        "schema": "cordee.checks/1",
        "checks": checks,
        "vetnode": vetnode,
        "eval": [_parameter(one) for one in COMMON],
        "protocol": [_parameter(one) for one in TOP],
        "built_in": dict(BUILT_IN),
    }


def check_list_text() -> str:
    """Return the list of checks for a terminal."""
    found = check_list()
    lines = []
    for check in found["checks"]:
        limits = [f"about a {check['scope']}"]
        limits += [f"within {check['deadline_s']:g} s"] if check["deadline_s"] else []
        limits += ["alone on its node"] if check["alone"] else []
        lines += [f"{check['type']}  {check['title']}", f"    {', '.join(limits)}"]
        if check["without_gpu"] != "The same.":
            lines.append(f"    without a GPU: {check['without_gpu']}")
        lines += [f"    {line}" for line in _lines(check["parameters"])]
    lines += ["", "every eval takes:", *(f"    {line}" for line in _lines(found["eval"]))]
    lines += ["", "a protocol takes:", *(f"    {line}" for line in _lines(found["protocol"]))]
    lines += ["", "classes of vetnode:"]
    lines += [f"    {one['type']}  becomes {', '.join(one['becomes'])}" for one in found["vetnode"]]
    lines += ["", "built-in protocols:", *(f"    {name}  {what}" for name, what in found["built_in"].items())]
    return "\n".join(lines) + "\n"


def kind_text(parameter: dict[str, Any]) -> str:
    """Return what a parameter takes, in a few words: its kind, unit and default."""
    kind = " or ".join(parameter["choices"]) or parameter["kind"]
    if parameter["unit"]:
        kind += f" ({parameter['unit']})"
    default = parameter["default"]
    if parameter["needed"]:
        return f"{kind}, needed"
    return kind if default is None else f"{kind}, default {_default_text(parameter['kind'], default)}"


def _default_text(kind: str, default: Any) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    if kind == "size":
        return format_size(default) if default % (1 << 20) or not default else f"{default >> 20} MiB"
    if kind == "bandwidth":
        return f"{format_size(default)}/s"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _lines(parameters: list[dict[str, Any]]) -> list[str]:
    width = max((len(one["name"]) for one in parameters), default=0)
    return [f"{one['name']:{width}}  {one['what']} [{kind_text(one)}]" for one in parameters]


def _types() -> dict[str, tuple[str, tuple[Parameter, ...]]]:
    found = {name: (load_check(name).title, load_check(name).parameters) for name in sorted(CHECKS) if name != PAIR}
    found[PAIR] = (PAIR_TITLE, PAIR_PARAMETERS)
    return {**found, **{name: (alias.title, alias.parameters) for name, alias in VETNODE.items()}}


def _eval(title: str, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    table = _table((*COMMON, *parameters))
    table["properties"]["requirements"] |= _REQUIREMENTS
    return {"description": title, **table}


def _table(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "additionalProperties": False}
    needed = [parameter.name for parameter in parameters if parameter.needed]
    if needed:
        found["required"] = needed
    found["properties"] = {parameter.name: _property(parameter) for parameter in parameters}
    return found


def _property(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"description": parameter.what}
    found |= {"enum": list(parameter.choices)} if parameter.choices else SCHEMAS[parameter.kind]
    if parameter.default is not None:
        found["default"] = parameter.default
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        "takes": FORMS[parameter.kind],
        "what": parameter.what,
        "default": parameter.default,
        "unit": parameter.unit,
        "needed": parameter.needed,
        "choices": list(parameter.choices),
    }


def _common(name: str) -> Parameter:
    return next(parameter for parameter in COMMON if parameter.name == name)
