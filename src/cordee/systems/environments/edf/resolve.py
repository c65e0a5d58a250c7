"""From the name of an EDF to one environment in which nothing is inherited, relative or to be expanded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cordee.core.documents.faults import document_error
from cordee.core.documents.toml_lines import Keys
from cordee.core.findings import Finding
from cordee.systems.environments.edf.build import ConfigOf, EdfExpansion
from cordee.systems.environments.edf.fields import DEFAULTS, GivenValue
from cordee.systems.environments.edf.inherit import EdfReader
from cordee.systems.environments.edf.merge import merge
from cordee.systems.environments.edf.origins import DEFAULT, EdfOrigin, chain
from cordee.systems.environments.edf.search import find_edf, no_such_edf, search_folders
from cordee.systems.environments.node.document import Environment


@dataclass(frozen=True)
class Resolved:
    """An EDF, resolved.

    Attributes:
        environment: the canonical document, without `root` and `config`.
        files: every EDF that was read, the one that was asked for last.
        additions: the tables `[build]`, `[startup]` and `[stack]` as they are.
        unknown: keys that a lenient reading kept.
        findings: what is worth a warning.
        given: for every path of keys of the environment, what files say of it, the one that holds first.
    """

    environment: Environment
    files: tuple[Path, ...]
    additions: Mapping[str, Any]
    unknown: Mapping[str, Any]
    findings: tuple[Finding, ...]
    given: Mapping[Keys, list[GivenValue]]

    def refusals(self) -> list[Finding]:
        """Return an error for each table that asks for something which Cordée does not do yet: without it, what runs would
        be another environment than the one described."""
        return [
            Finding(
                f"[{name}] asks for what Cordée does not do yet, so the environment cannot be used",
                "error",
                "table-not-supported",
                file=str(given.edf.path),
                line=given.edf.line((name,)),
                given=f"[{name}]",
                next=f"take [{name}] out, and do by hand what it asks for",
            )
            for name in self.additions
            if self.additions[name]
            for given in self.given[name,][:1]
        ]

    @cached_property
    def origins(self) -> dict[Keys, EdfOrigin]:
        """Where every value came from, by its path of keys: `("image",)`, `("mounts", 0)`, `("env", "PATH")`,
        `("annotations", "com.hooks.cxi.enabled")`. Values that no file gives are of the kind `default`.
        """
        defaults: dict[Keys, EdfOrigin] = {(key,): EdfOrigin(DEFAULT, value) for key, value in DEFAULTS.items()}
        found: dict[Keys, EdfOrigin] = dict(defaults)
        for keys, given in self.given.items():
            origin = chain(given, defaults.get(keys))
            if origin is not None:
                found[keys] = origin
        return found


def resolve(
    name_or_path: str,
    *,
    cwd: Path,
    variables: Mapping[str, str],
    search_path: Sequence[Path] | None = None,
    lenient: bool = False,
    config_of: ConfigOf | None = None,
) -> Resolved:
    """Return the environment that an EDF describes, and where every value of it came from.

    Args:
        name_or_path: as `--environment` takes it: a path when it begins with `.` or `/` or ends with `.toml`, else a
            name on the search path.
        cwd: the caller's working directory, where every relative path begins, those in EDFs too.
        variables: of the host, for expansion.
        search_path: folders in which names are looked up (None: EDF_PATH, else `~/.edf`).
        lenient: unknown keys and mount flags are kept, with a warning.
        config_of: returns what an image says of itself, None when it is not known; its variables go before the host's
            in what holds inside the container, `env` and `workdir`.

    Raises:
        DocumentError: it is not there, or wrong; all faults of all its files are in `findings`.
    """
    folders = search_folders(variables) if search_path is None else search_path
    path = find_edf(name_or_path, cwd, folders)
    if path is None:
        raise document_error([no_such_edf(name_or_path, cwd, folders, None, None)])
    reader = EdfReader(cwd, variables, folders, lenient)
    lineage = reader.read(path)
    merged = merge(lineage)
    made = EdfExpansion(merged, cwd, variables, lenient, reader.findings)
    environment = made.environment(path.stem, config_of)
    if any(finding.severity == "error" for finding in made.findings):
        raise document_error([finding for finding in made.findings if finding.severity == "error"])
    files = tuple(edf.path for edf in lineage.weakest_first)
    additions = {name: told[0].value for name, told in merged.additions.items()}
    given: dict[Keys, list[GivenValue]] = {**made.given}
    given.update({(name,): told for name, told in merged.additions.items()})
    return Resolved(environment, files, additions, merged.unknown, tuple(made.findings), given)
