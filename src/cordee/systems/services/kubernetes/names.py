"""Names of blueprints as Kubernetes allows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST_PORT = 15
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def object_name(name: str) -> str:
    """Return the name of a port or volume in a manifest."""
    return name.lower().replace("_", "-")


def wrong_names(names: Iterable[str], longest: int) -> Iterator[tuple[str, str]]:
    """Yield (name, why) of what Kubernetes cannot call so: too long, or the same as another."""
    seen: dict[str, str] = {}
    for name in names:
        as_object = object_name(name)
        if as_object in seen:
            yield name, f"{name} and {seen[as_object]} would both be {as_object}"
        elif len(as_object) > longest or "--" in as_object or not _OBJECT.match(as_object):
            yield name, f"{name} is no name there: at most {longest} letters, digits and single _ between them"
        elif not re.search("[a-z]", as_object):
            yield name, f"{name} has no letter"
        seen.setdefault(as_object, name)
