"""A cluster profile drafted from what the scheduler that answers here says: commented TOML."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.core.backends import BUILT_IN, HERE, backend, known
from cordee.core.documents.fields import NAME_FORMS, is_name
from cordee.core.errors import CordeeError, UsageError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.job.profile import ClusterProfile
from cordee.runs.folder import write_atomically

_TIMES = ("max_time", "default_time")


@dataclass(frozen=True)
class ProfileDraft:
    """A drafted profile.

    Attributes:
        name: of the cluster in Cordée.
        text: commented TOML, valid as it is.
        profile: the same as a model.
        facts: what has no key in a profile: preemption, accounting, times.
        findings: what could not be found out.
        path: where it is or would be written.
    """

    name: str
    text: str
    profile: ClusterProfile
    facts: dict[str, Any]
    findings: tuple[Finding, ...]
    path: Path

    def document(self, *, written: bool) -> dict[str, Any]:
        """Return the document of `cordee cluster discover`."""
        return {
            "schema": "cordee.discovery/1",
            "name": self.name,
            "profile": self.profile.model_dump(mode="json", by_alias=True),
            "facts": self.facts,
            "findings": [finding.document() for finding in self.findings],
            "toml": self.text,
            "path": str(self.path),
            "written": written,
        }

    def write(self, *, force: bool = False) -> None:
        """Write it into the person's folder of profiles.

        Raises:
            UsageError: there is one already and `force` is not given, or it cannot be written.
        """
        if self.path.exists() and not force:
            raise UsageError(
                f"there is a profile {self.name} already",
                given=str(self.path),
                next="give another --name, or --force to replace it",
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, self.text)
        except OSError as error:
            raise UsageError(
                f"cannot write the profile: {error.strerror}",
                given=str(self.path),
                allowed="a folder that you may write",
                next="set CORDEE_CLUSTERS_PATH, or save what is printed",
            ) from error


def draft_profile(
    name: str | None = None, scheduler: str | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[ProfileDraft, list[str]]:
    """Return a profile of the scheduler that answers here, asked anew, and the names of others that answer, too.

    Args:
        name: of the cluster in Cordée; None for the scheduler's own name of it.
        scheduler: which one is asked; None: all, and the first that answers is taken.
        environ: where commands and configurations are looked up.

    Raises:
        UsageError: nothing answers here, or a name is none.
        CordeeError: the scheduler was busy for a minute.
    """
    parts = {one: part for one in dict.fromkeys([*BUILT_IN, *known()]) if (part := backend(one).discover)}
    if scheduler is not None and scheduler not in parts:
        raise UsageError("no profile can be drafted for it", given=scheduler, allowed=list(parts))
    drafts: dict[str, ProfileDraft] = {}
    errors: list[CordeeError] = []
    for one in [scheduler] if scheduler else parts:
        try:
            drafts[one] = load(parts[one])(name, environ)
        except CordeeError as error:
            errors.append(error)
    if not drafts:
        if len(errors) == 1 or not all(isinstance(error, UsageError) for error in errors):
            raise next((error for error in errors if not isinstance(error, UsageError)), errors[0])
        raise UsageError(
            "; ".join(error.text for error in errors),
            given=list(parts),
            allowed=errors[0].allowed,
            next="run it where jobs are submitted, or name the one that is meant by --scheduler",
        )
    taken, *others_names = drafts
    return drafts[taken], others_names


def name_of_cluster(given: str | None, own: str, otherwise: str) -> str:
    """Return the name of a cluster: the one given, else the scheduler's own one where it can be one.

    Raises:
        UsageError: the name cannot be one.
    """
    chosen = given or (own if is_name(own) else otherwise)
    if not is_name(chosen) or chosen == HERE:
        raise UsageError("this cannot be the name of a cluster", given=chosen, allowed=f"{NAME_FORMS}; not {HERE}")
    return chosen


def value_lines(values: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of a table of a profile as TOML, with times and sizes as people write them."""
    for key, value in values.items():
        if value in ((), []):
            continue
        if key in _TIMES:
            shown = quoted_text(_duration(value))
        elif key == "memory":
            shown = quoted_text(_size(value))
        elif isinstance(value, bool):
            shown = "true" if value else "false"
        elif isinstance(value, (list, tuple)):
            shown = f"[{', '.join(quoted_text(item) for item in value)}]"
        else:
            shown = str(value) if isinstance(value, (int, float)) else quoted_text(value)
        yield f"{key} = {shown}"


def _duration(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    return f"{seconds:g}s"


def _size(size_bytes: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if size_bytes >> power and size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{unit}"
    return f"{size_bytes}B"


def quoted_text(value: Any) -> str:
    """Return a value as a text of TOML."""
    return json.dumps(str(value), ensure_ascii=False)
