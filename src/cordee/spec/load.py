"""Reads a job document with everything that may override it, and remembers where every value came from."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cordee.errors import DocumentError
from cordee.findings import Finding
from cordee.spec.cluster import ClusterProfile, load_cluster, read_toml
from cordee.spec.faults import findings_of, key_names, model_at, unknown_key
from cordee.spec.job import Job
from cordee.spec.toml_lines import find_line

FILE_NAME = "cordee.toml"
_NOT_SETTINGS = frozenset(
    "CORDEE_RUNS CORDEE_ON CORDEE_CLUSTERS_PATH CORDEE_TASK CORDEE_RUN_ID CORDEE_RUN_DIR CORDEE_NODE CORDEE_ATTEMPT "
    "CORDEE_CHANNEL CORDEE_CHECKPOINT_DIR CORDEE_CHECKPOINT_EVERY CORDEE_RESUME_FROM CORDEE_FORBID_SKIPS".split()
)


@dataclass(frozen=True)
class Origin:
    """Where a value came from: `kind` is flag, environment, document, user profile, site profile or default."""

    kind: str
    name: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.name}:{self.line}" if self.line else self.name
        return f"{self.kind} {place}".strip()


@dataclass(frozen=True)
class LoadedJob:
    """A valid job document.

    Attributes:
        job: the frozen model.
        path: the cordee.toml.
        text: its text as given.
        cluster: the profile it is meant for.
        provenance: the origin of every value that is not a default, by dotted key.
    """

    job: Job
    path: Path
    text: str
    cluster: ClusterProfile
    provenance: dict[str, Origin]

    @property
    def folder(self) -> Path:
        """The job's folder: relative paths of the document begin here."""
        return self.path.parent

    def line_of(self, *keys: str) -> int | None:
        """Return the line of a key of the document."""
        return find_line(self.text, keys)


def load_job(spec: str | Path, *, cluster: str = "local", flags: Mapping[str, Any] | None = None) -> LoadedJob:
    """Return the job in `spec`, a cordee.toml or the folder that holds one.

    Precedence: flag, `CORDEE_*` environment, [on.CLUSTER], document, user defaults, the profile's defaults, default.

    Raises:
        DocumentError: the document is missing, unreadable or wrong; all its faults are in `findings`.
        UsageError: there is no such cluster.
    """
    path = _document_path(Path(spec))
    profile = load_cluster(cluster)
    text, document = read_toml(path)
    merge = _Merge(path, text)
    overrides = document.pop("on", {})
    merge.add(profile.defaults, lambda keys: Origin("site profile", cluster))
    user_file = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "cordee" / "defaults.toml"
    if user_file.is_file():
        user_text, user_document = read_toml(user_file)
        merge.add(user_document, lambda keys: Origin("user profile", str(user_file), find_line(user_text, keys)))
    merge.add(document, lambda keys: Origin("document", str(path), find_line(text, keys)))
    findings = _check_overrides(overrides, path, text)
    chosen = overrides.get(cluster, {}) if isinstance(overrides, dict) else {}
    if isinstance(chosen, dict):
        merge.add(chosen, lambda keys: Origin("document", str(path), find_line(text, ("on", cluster, *keys))))
    for keys, value, name in _environment_settings():
        merge.set(keys, value, Origin("environment", name))
    for dotted, value in (flags or {}).items():
        merge.set(tuple(dotted.split(".")), value, Origin("flag", f"{dotted}={value}"))
    try:
        job = Job.model_validate(merge.values)
    except ValidationError as error:
        findings += findings_of(error, Job, merge.place)
    if findings:
        first = findings[0]
        more = f" (and {len(findings) - 1} more faults)" if len(findings) > 1 else ""
        details = {"file": first.file, "line": first.line, "given": first.given, "allowed": first.allowed, "next": first.next}
        raise DocumentError(first.text + more, findings=findings, **details)
    return LoadedJob(job, path, text, profile, merge.origins)


def _document_path(spec: Path) -> Path:
    path = (spec / FILE_NAME if spec.is_dir() else spec).absolute()
    if path.is_file():
        return path
    folder = path.parent
    names = [entry.name for entry in folder.glob("*.toml")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    raise DocumentError(
        f"there is no {path.name} in {folder}",
        given=str(spec),
        allowed=f"a folder with a {FILE_NAME}, or the path of one",
        next=f"did you mean {near[0]}?" if near else f"`cordee init {folder}` writes one",
    )


class _Merge:
    """Values laid over each other, with the origin of each leaf."""

    def __init__(self, path: Path, text: str) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self._path, self._text = path, text

    def add(self, document: Mapping[str, Any], origin: Any, prefix: tuple[str, ...] = ()) -> None:
        """Lay a document over what is there: tables are merged, everything else is replaced."""
        for key, value in document.items():
            keys = (*prefix, key)
            if isinstance(value, dict):
                table = self._table(prefix)
                if not isinstance(table.get(key), dict):
                    table[key] = {}
                if not value:
                    self.origins[".".join(keys)] = origin(keys)
                self.add(value, origin, keys)
            else:
                self.set(keys, value, origin(keys))

    def set(self, keys: tuple[str, ...], value: Any, origin: Origin) -> None:
        """Set one value."""
        self._table(keys[:-1])[keys[-1]] = value
        self.origins[".".join(keys)] = origin

    def place(self, keys: tuple[str | int, ...]) -> tuple[str | None, int | None]:
        """Return (file, line) of the nearest value at or above `keys`."""
        names = [str(key) for key in keys if isinstance(key, str)]
        for count in range(len(names), 0, -1):
            origin = self.origins.get(".".join(names[:count]))
            if origin is not None:
                return origin.name or None, origin.line
        return str(self._path), find_line(self._text, keys)

    def _table(self, keys: tuple[str, ...]) -> dict[str, Any]:
        table = self.values
        for key in keys:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        return table


def _check_overrides(overrides: Any, path: Path, text: str) -> list[Finding]:
    """Check [on.CLUSTER] of all clusters, also of those that are not meant now: a typing error must not wait."""
    if not isinstance(overrides, dict):
        line = find_line(text, ("on",))
        return [Finding("on must be a table of clusters", rule="bad-value", file=str(path), line=line, given=repr(overrides), allowed="[on.CLUSTER]")]
    findings: list[Finding] = []
    for name, table in overrides.items():
        if not isinstance(table, dict):
            line = find_line(text, ("on", name))
            findings.append(Finding(f"on.{name} must be a table", rule="bad-value", file=str(path), line=line, given=repr(table), allowed="a table"))
            continue
        findings += _unknown_keys(table, (), ("on", name), path, text)
    return findings


def _unknown_keys(
    table: dict[str, Any], keys: tuple[str, ...], prefix: tuple[str, ...], path: Path, text: str
) -> list[Finding]:
    model = model_at(Job, keys)
    findings: list[Finding] = []
    for key, value in table.items():
        whole = (*prefix, *keys, key)
        if model is not None and key not in key_names(model):
            findings.append(unknown_key(whole, model, str(path), find_line(text, whole)))
        elif isinstance(value, dict):
            findings += _unknown_keys(value, (*keys, key), prefix, path, text)
    return findings


def _environment_settings() -> list[tuple[tuple[str, ...], str | int | float, str]]:
    """Return (keys, value, variable) of `CORDEE_NEED_NODES=4` and the like; other variables are passed over."""
    found = []
    for variable, text in sorted(os.environ.items()):
        if not variable.startswith("CORDEE_") or variable in _NOT_SETTINGS or variable.startswith("CORDEE_DATA_"):
            continue
        name = variable.removeprefix("CORDEE_").lower()
        for keys in _setting_names():
            if "_".join(keys) == name:
                found.append((keys, _number(text), variable))
    return found


def _setting_names() -> list[tuple[str, ...]]:
    names: list[tuple[str, ...]] = []
    for key in key_names(Job):
        model = model_at(Job, (key,))
        names += [(key, inner) for inner in key_names(model)] if model else [(key,)]
    return names


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

