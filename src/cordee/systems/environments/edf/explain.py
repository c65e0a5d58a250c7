"""Which file and line, the image or the host gave each value of an environment, and what would hold otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cordee.core.documents.faults import dotted
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import UsageError
from cordee.core.words import did_you_mean
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf.expand import names_in
from cordee.systems.environments.edf.origins import DEFAULT, EDF, HOST, IMAGE, VIEW, EdfOrigin, chain
from cordee.systems.environments.edf.resolve import Resolved
from cordee.systems.environments.node.document import ContainerMount
from cordee.systems.environments.node.patches import patched

SCHEMA = "cordee.environment-explain/1"
_INSIDE = ("env", "workdir")


@dataclass(frozen=True)
class Explained:
    """One value of an environment.

    Attributes:
        key: `image`, `mounts[0]`, `env.PATH`, `annotations.com.hooks.cxi.enabled`.
        value: what it comes to; an empty text of `env` unsets the variable.
        origin: who gave it, and what would hold otherwise.
        uses: the variables that it refers to: (name, `image`, `host` or `default`, value).
    """

    key: str
    value: Any
    origin: EdfOrigin
    uses: tuple[tuple[str, str, str], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        value = asdict(self.value) if isinstance(self.value, ContainerMount) else self.value
        uses = [{"name": name, "kind": kind, "value": text} for name, kind, text in self.uses]
        return {"key": self.key, "value": value, **_given(self.origin.document()), "uses": uses}


def explain(resolved: Resolved, config: ImageConfig, host: Mapping[str, str]) -> list[Explained]:
    """Return every value of an environment but the variables that only the host gives.

    Args:
        resolved: the EDF.
        config: what its image says of itself; empty where that is not known.
        host: the host's variables.
    """
    return list(_values(resolved, config, host))


def explain_key(key: str, resolved: Resolved, config: ImageConfig, host: Mapping[str, str]) -> list[Explained]:
    """Return the values of one key: `env.PATH`, or all below `env`, `mounts`, `annotations.com.hooks`.

    Raises:
        UsageError: there is no such value.
    """
    values = explain(resolved, config, host)
    found = [each for each in values if each.key == key or each.key.startswith((f"{key}.", f"{key}["))]
    name = key.removeprefix("env.")
    if not found and key.startswith("env.") and name in host:
        return [Explained(key, host[name], EdfOrigin(HOST, host[name]))]
    if not found:
        known = [each.key for each in values]
        groups = dict.fromkeys(re.split(r"[.\[]", each)[0] for each in known)
        hint = did_you_mean(
            key, [*groups, *known, *(f"env.{each}" for each in host)], "leave it out to see every value"
        )
        raise UsageError(f"the environment has no {key}", given=key, allowed=known[:40], next=hint)
    return found


def _values(resolved: Resolved, config: ImageConfig, host: Mapping[str, str]) -> Iterator[Explained]:
    environment = resolved.environment
    inside = [(config.env, IMAGE), (host, HOST)]

    def explained(keys: Keys, value: Any, instead: EdfOrigin | None = None) -> Explained:
        given = resolved.given.get(keys, [])
        origin = chain(given, instead) or EdfOrigin(DEFAULT, value)
        text = given[0].value if given else ""
        places = inside if keys[0] in _INSIDE else inside[1:]
        return Explained(dotted(keys), value, origin, tuple(_uses(text, places)))

    defaults = resolved.origins
    yield explained(("image",), environment.image, _default(defaults["image",]))
    image_workdir = EdfOrigin(IMAGE, config.workdir) if config.workdir else EdfOrigin(DEFAULT, None)
    if environment.workdir is None:  # an empty one in an EDF means the image's, too
        yield Explained("workdir", config.workdir, image_workdir)
    else:
        yield explained(("workdir",), environment.workdir, image_workdir)
    for key in ("entrypoint", "writable"):
        yield explained((key,), getattr(environment, key), _default(defaults[key,]))
    for key, entries in (("mounts", environment.mounts), ("devices", environment.devices)):
        for index, entry in enumerate(entries):
            yield explained((key, index), entry)
    inside_now = patched({**host, **config.env}, environment.patches)
    for name in dict.fromkeys([*environment.env, *(patch[1] for patch in environment.patches), *config.env]):
        of_host = EdfOrigin(HOST, host[name]) if name in host else None
        below = EdfOrigin(IMAGE, config.env[name], instead=of_host) if name in config.env else of_host
        for view in resolved.views:
            for operation, changed, text in view.patches:
                if changed == name:
                    below = EdfOrigin(VIEW, f"{operation} {text}".rstrip(), view.label, instead=below)
        yield explained(("env", name), environment.env.get(name, inside_now.get(name, "")), below)
    for name, value in environment.annotations.items():
        yield explained(("annotations", name), value)
    for keys, given in resolved.given.items():
        if keys[:2] in (("startup", "commands"), ("stack", "overlay"), ("stack", "modules"), ("stack", "views")):
            yield explained(keys, given[0].value)
    for key, argv in (("entrypoint", config.entrypoint), ("command", config.command)):
        if argv:
            yield Explained(f"image.{key}", list(argv), EdfOrigin(IMAGE, list(argv)))


def _default(origin: EdfOrigin) -> EdfOrigin:
    return list(origin.all())[-1]


def _uses(text: Any, places: list[tuple[Mapping[str, str], str]]) -> Iterator[tuple[str, str, str]]:
    for name in names_in(text) if isinstance(text, str) else ():
        kind, value = next(((kind, values[name]) for values, kind in places if name in values), (DEFAULT, ""))
        yield name, kind if value or f"${{{name}:-" not in text else DEFAULT, value


def _given(document: dict[str, Any]) -> dict[str, Any]:
    """Return an origin's document whose value, as it stands in the file, does not hide what it comes to."""
    given = document.pop("value")
    return {"kind": document["kind"], "file": document["file"], "line": document["line"], "given": given, **document}


def explained_text(values: list[Explained]) -> str:
    """Return the values for people: each with who gave it, and below that what would hold otherwise."""
    lines = []
    for each in values:
        lines.append(f"{each.key} = {_shown(each)}")
        lines.append(f"    {_where(each.origin)}{_from(each)}")
        lines += [f"    otherwise {_where(other)}" for other in list(each.origin.all())[1:]]
    return "".join(f"{line}\n" for line in lines)


def _shown(each: Explained) -> str:
    if isinstance(each.value, ContainerMount):
        return ":".join(
            [each.value.source, each.value.target, *(["+".join(each.value.flags)] if each.value.flags else [])]
        )
    if each.key.startswith("env.") and each.value == "":
        return "(unset)"
    return _plain(each.value)


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "(none)" if value is None else str(value).lower()
    return (
        repr(value) if isinstance(value, str) and (not value or value != value.strip() or "\n" in value) else str(value)
    )


def _where(origin: EdfOrigin) -> str:
    names = {IMAGE: "the image", HOST: "the host", DEFAULT: "the default"}
    if origin.kind == VIEW:
        return f"the view {origin.file}: {_plain(origin.value)}"
    place = f"{origin.file}:{origin.line}" if origin.kind == EDF else names[origin.kind]
    return f"{place}: {_plain(origin.value)}"


def _from(each: Explained) -> str:
    names = {IMAGE: "the image", HOST: "the host", DEFAULT: "its default"}
    said = ", ".join(f"{name} from {names[kind]}" for name, kind, _ in each.uses)
    return f"  ({said})" if said else ""
