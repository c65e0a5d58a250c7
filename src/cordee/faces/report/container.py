"""What the ranks of a run were in, as reports and `cordee show` say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def container_of(step: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `{name, image, digest, engine}` of a plan's step; None: the host as it is, or the plan is not readable."""
    planned = step.get("environment")
    if not isinstance(planned, dict):
        return None
    document = planned.get("document") or {}
    return {
        "name": document.get("name"),
        "image": document.get("image"),
        "digest": (document.get("config") or {}).get("digest"),
        "engine": planned.get("engine"),
    }


def container_words(step: Mapping[str, Any]) -> str:
    """Return the same for a person; empty where there is none."""
    found = container_of(step)
    if found is None:
        return ""
    image = found["image"] or "the host's own root"
    digest = f" ({found['digest']})" if found["digest"] else ""
    return f"{found['name']}: {image}{digest}, by {found['engine']}"
