"""Reads a job document with everything that may override it, and remembers where every value came from."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from cordee.core import registry
from cordee.core.backends import BUILT_IN, HERE
from cordee.core.documents.config_paths import config_folder, profile_names
from cordee.core.documents.faults import (
    ValuePlace,
    annotation_at,
    document_error,
    fault_error,
    findings_of,
    key_names,
    model_at,
)
from cordee.core.documents.files import read_toml
from cordee.core.documents.merge import Merge, ValueOrigin
from cordee.core.documents.toml_lines import Keys, find_line
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.registry import System
from cordee.core.words import did_you_mean, nearest
from cordee.job.cluster import load_cluster, profile_files
from cordee.job.command_line import document_of
from cordee.job.document import Job
from cordee.job.profile import ClusterProfile

FILE_NAME = "cordee.toml"
_WATCHED = ("CORDEE_NEED_", "CORDEE_VET_", "CORDEE_RESTART_", "CORDEE_SAMPLING_", "CORDEE_METRICS_", "CORDEE_TIMEOUTS_")
COMMAND_LINE = "command line"
_INSIDE_A_RUN = "CORDEE_RUN_ID"

__all__ = ["FILE_NAME", "LoadedJob", "ValueOrigin", "load_command", "load_job"]


@dataclass(frozen=True)
class LoadedJob:
    """A valid job document.

    Attributes:
        job: the frozen model.
        path: the cordee.toml.
        text: its text as given.
        cluster: the profile it is meant for.
        provenance: the origin of every value that is not a default, by dotted key.
        values: the merged values as they were given, before they were split, parsed or completed.
        findings: what is worth saying although nothing is wrong.
        systems: those that the job is about.
        read: what they read with the document, by their names: the vetting protocol that `[vet] protocol` names, say.
    """

    job: Job
    path: Path
    text: str
    cluster: ClusterProfile
    provenance: dict[str, ValueOrigin]
    values: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    systems: tuple[System, ...] = ()
    read: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def file(self) -> str | None:
        """The document's file; None for one that was made for a command line."""
        origin = self.provenance.get("run")
        return None if origin is not None and origin.kind == COMMAND_LINE else str(self.path)

    @property
    def folder(self) -> Path:
        """The job's folder: relative paths of the document begin here."""
        return self.path.parent

    def place(self, *keys: str) -> tuple[str | None, int | None]:
        """Return (file, line) where a value, or the nearest table around it, was given."""
        for count in range(len(keys), 0, -1):
            origin = self.provenance.get(".".join(keys[:count]))
            if origin is not None:
                return origin.file, origin.line
        return self.file, None


def load_job(
    spec: str | Path,
    *,
    cluster: str | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedJob:
    """Return the job in `spec`, a cordee.toml or the folder that holds one.

    Precedence: flag, `CORDEE_*` environment, [on.CLUSTER], [on.SCHEDULER], document, the person's defaults.toml and
    profile, the site's profile, default.

    Args:
        spec: path of the document or its folder.
        cluster: where it is meant to run; None for `CORDEE_ON`, else `local`.
        flags: dotted key to value, as `{"need.nodes": 2}`; values that are None count as not given.
        environ: where `CORDEE_*` is read from.

    Raises:
        DocumentError: the document is missing, unreadable or wrong; all its faults are in `findings`.
        UsageError: there is no such cluster.
    """
    path = _find_document(Path(spec))
    try:
        text, document = read_toml(path)
    except DocumentError:
        if path.suffix == ".toml":
            raise
        raise fault_error(
            "is neither a job document nor a program",
            "no-document",
            file=str(path),
            given=str(spec),
            allowed="a cordee.toml, a script that ends with .py or .sh, or an executable file",
            next=f"`cordee run -- COMMAND {spec}` runs it by another command, or chmod +x {spec}",
        ) from None
    return _load(path, text, document, "document", cluster, flags, environ)


def load_command(
    argv: Sequence[str],
    *,
    cluster: str | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LoadedJob:
    """Return the job that runs a command in the current folder: a document is made for it and written nowhere.

    Args:
        argv: the command.
        cluster, flags, environ: as for `load_job`.

    Raises:
        DocumentError, UsageError: as `load_job`.
    """
    path, text = Path.cwd() / FILE_NAME, document_of(argv)
    loaded = _load(path, text, tomllib.loads(text), COMMAND_LINE, cluster, flags, environ)
    if not path.exists():
        return loaded
    said = f"the {FILE_NAME} in this folder is not used: the command line names what to run"
    what = "`cordee run` alone runs it, and --set KEY=VALUE changes its keys"
    unused = Finding(said, "warn", "document-not-used", given=str(path), next=what)
    return replace(loaded, findings=(unused, *loaded.findings))


def _load(
    path: Path,
    text: str,
    document: dict[str, Any],
    kind: str,
    cluster: str | None,
    flags: Mapping[str, Any] | None,
    environ: Mapping[str, str],
) -> LoadedJob:
    name = cluster or environ.get("CORDEE_ON") or HERE
    profile = load_cluster(name, environ)
    reading = _Reading(path, text, document, (profile.scheduler, name), environ, flags or {}, kind)
    merge = reading.merged()
    findings: list[Finding] = []
    job = None
    try:
        job = reading.kind.model_validate(merge.values)
    except ValidationError as error:
        findings += findings_of(
            error, reading.kind, merge.values, lambda keys: merge.place(keys, ValuePlace(str(path), 1))
        )
    findings += reading.faults_elsewhere()
    systems: tuple[System, ...] = ()
    read: dict[str, Any] = {}
    notes = [*_misspelt_variables(environ), *reading.misspelt_clusters()]
    if job is not None:
        systems = registry.about(job, reading.outsiders)
        for system in systems:
            if system.read:
                read[system.name], faults, said = load(system.read)(job, path.parent, profile, merge)
                findings += faults
                notes += said
    unique = list({(fault.file, fault.line, fault.text): fault for fault in findings}.values())
    if unique or job is None:
        raise document_error(unique)
    provenance = {".".join(keys): origin for keys, origin in merge.origins.items()}
    return LoadedJob(job, path, text, profile, provenance, merge.values, tuple(notes), systems, read)


class _Reading:
    """One document with all that lies under and over it; `names` are the scheduler's and the cluster's."""

    def __init__(
        self,
        path: Path,
        text: str,
        document: dict[str, Any],
        names: tuple[str, str],
        environ: Mapping[str, str],
        flags: Mapping[str, Any],
        kind: str,
    ) -> None:
        self.path, self.text, self._kind = path, text, kind
        self.document = {key: value for key, value in document.items() if key != "on"}
        self.overrides = document.get("on", {})
        self._cluster, self._environ, self._flags = names[-1], environ, flags
        self._applies = tuple(dict.fromkeys(names))
        self.outsiders = tuple({system.name: system for system in _outsiders(self._tables())}.values())
        self.kind = _kind(self.outsiders)

    def _tables(self) -> Iterator[str]:
        """Yield the names of the document's tables, also of those that stand below [on.NAME]."""
        below = self.overrides.values() if isinstance(self.overrides, dict) else ()
        for table in (self.document, *(one for one in below if isinstance(one, dict))):
            yield from (key for key, value in table.items() if isinstance(value, dict))

    def merged(self) -> Merge:
        """Return everything that applies on the cluster, in the order of precedence."""
        merge = Merge()
        for file in profile_files(self._cluster, self._environ):
            defaults = file.document.get("defaults", {})
            if isinstance(defaults, dict):
                merge.add(defaults, _origins(file.kind, file.path, file.text, ("defaults",)))
        own = config_folder(self._environ) / "defaults.toml"
        if own.is_file():
            own_text, own_document = read_toml(own)
            _add(merge, own_document, self._applies, "user profile", own, own_text)
        self._add_document(merge, self._applies)
        for keys, value, variable in _settings(self._environ):
            merge.set(keys, value, _elsewhere("environment", variable))
        for dotted, value in self._flags.items():
            if value is not None:
                keys = tuple(dotted.split("."))
                merge.set(keys, _fitting(keys, value), _elsewhere("flag", dotted))
        return merge

    def faults_elsewhere(self) -> list[Finding]:
        """Return the faults of what does not apply here: the plain document and the overrides for other clusters."""
        if not isinstance(self.overrides, dict):
            return [self._no_table(("on",), self.overrides, "a table for each cluster, such as [on.local]")]
        findings: list[Finding] = []
        for name, table in self.overrides.items():
            if not isinstance(table, dict):
                findings.append(self._no_table(("on", name), table, "a table of the keys of a job"))
        for name in self.overrides:
            if name not in self._applies:
                findings += self._faults_of_document((name,))
        if self.overrides:
            findings += self._faults_of_document(())
        return findings

    def misspelt_clusters(self) -> Iterator[Finding]:
        """Yield a warning for each [on.NAME] of no known cluster that is much like one."""
        known = {*BUILT_IN, *self._applies, *profile_names(self._environ)}
        for name in self.overrides if isinstance(self.overrides, dict) else ():
            near = None if name in known else nearest(name, known, 0.75)
            if near is not None:
                line, text = (
                    find_line(self.text, ("on", name)),
                    f"no cluster is called {name}, so [on.{name}] applies nowhere",
                )
                what = f"did you mean [on.{near}]?"
                yield Finding(text, "warn", "unknown-cluster", file=str(self.path), line=line, given=name, next=what)

    def _faults_of_document(self, overrides: tuple[str, ...]) -> list[Finding]:
        merge = Merge()
        self._add_document(merge, overrides)
        try:
            self.kind.model_validate(merge.values)
        except ValidationError as error:
            fallback = ValuePlace(str(self.path), 1)
            found = findings_of(error, self.kind, merge.values, lambda keys: merge.place(keys, fallback))
            return [finding for finding in found if finding.rule != "missing-key"]
        return []

    def _add_document(self, merge: Merge, overrides: tuple[str, ...]) -> None:
        _add(merge, {**self.document, "on": self.overrides}, overrides, self._kind, self.path, self.text)

    def _no_table(self, path: Keys, value: Any, allowed: str) -> Finding:
        text = f"{'.'.join(str(part) for part in path)} is not a table"
        line = find_line(self.text, path)
        what = "write [on.CLUSTER] above the keys that differ there"
        return Finding(
            text, "error", "bad-value", file=str(self.path), line=line, given=value, allowed=allowed, next=what
        )


def _outsiders(tables: Iterable[str]) -> Iterator[System]:
    """Yield the systems of other packages whose tables these are; packages are asked only for a table that is not ours."""
    ours = key_names(Job)
    for key in tables:
        system = None if key in ours else registry.with_table(key)
        if system is not None:
            yield system


def _kind(outsiders: Sequence[System]) -> type[Job]:
    """Return the model of a job with the tables of these systems."""
    tables = {key: load(model) for system in outsiders for key, model in system.tables.items()}
    if not tables:
        return Job
    fields: dict[str, Any] = {key: (model | None, None) for key, model in tables.items()}
    return create_model("Job", __base__=Job, **fields)


def _add(merge: Merge, document: dict[str, Any], overrides: tuple[str, ...], kind: str, path: Path, text: str) -> None:
    """Lay a document over what is there, then its tables `[on.NAME]` for these names, the last one on top."""
    merge.add({key: value for key, value in document.items() if key != "on"}, _origins(kind, path, text, ()))
    tables = document.get("on")
    for name in overrides:
        table = tables.get(name) if isinstance(tables, dict) else None
        if isinstance(table, dict):
            merge.add(table, _origins(kind, path, text, ("on", name)))


def _origins(kind: str, path: Path, text: str, prefix: tuple[str, ...]) -> Callable[[Keys], ValueOrigin]:
    if kind == COMMAND_LINE:
        return _elsewhere(kind, "")
    shown = prefix if prefix[:1] in (("on",), ("defaults",)) else ()
    return lambda keys: ValueOrigin(kind, str(path), find_line(text, prefix + keys), shown)


def _elsewhere(kind: str, name: str) -> Callable[[Keys], ValueOrigin]:
    return lambda keys: ValueOrigin(kind, name)


def _find_document(spec: Path) -> Path:
    path = (spec / FILE_NAME if spec.is_dir() else spec).absolute()
    if path.exists():
        return path
    folder = path.parent
    names = [entry.name for entry in folder.glob("*.toml")] if folder.is_dir() else []
    near = nearest(path.name, names)
    hint = f"did you mean {folder / near}?" if near else f"`cordee init {folder}` writes one"
    if not spec.is_dir() and shutil.which(str(spec)):
        hint = f"`cordee run -- {spec}` runs a command"
    if not folder.is_dir():
        near = nearest(folder.name, _folders(folder.parent))
        hint = f"did you mean {folder.parent / near}?" if near else "correct the path"
    raise fault_error(
        f"there is no {path.name} in {folder}" if folder.is_dir() else f"there is no folder {folder}",
        "no-document",
        file=str(path),
        given=str(spec),
        allowed=f"a folder with a {FILE_NAME}, the path of one, or a script such as train.py",
        next=hint,
    )


def _folders(parent: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(parent) if entry.is_dir()]
    except OSError:
        return []


def _settings(environ: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield (keys, value, variable) of `CORDEE_NEED_NODES=4` and the like; other variables are passed over."""
    names = _setting_names()
    for variable in sorted(environ):
        keys = names.get(variable)
        if keys is None or not environ[variable] or (_INSIDE_A_RUN in environ and keys[0] == "checkpoint"):
            continue
        yield keys, _fitting(keys, environ[variable]), variable


def _setting_names() -> dict[str, tuple[str, ...]]:
    """Return `{variable: keys}` for every key of the document that a variable can set: no tables, not `run`."""
    names: list[tuple[str, ...]] = []
    for key in Job.model_fields:
        model = model_at(Job, (key,))
        if model is not None and key != "test":
            names += [(key, inner) for inner in key_names(model)]
        elif model is None and typing.get_origin(annotation_at(Job, (key,))) is not dict and key != "run":
            names.append((key,))
    return {"CORDEE_" + "_".join(keys).upper(): keys for keys in names}


def _misspelt_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    names = _setting_names()
    for variable in sorted(environ):
        if variable.startswith(_WATCHED) and variable not in names:
            group = variable.split("_")[1]
            allowed = [name for name in names if name.startswith(f"CORDEE_{group}_")]
            hint = did_you_mean(variable, names, f"unset {variable}")
            text = f"{variable} sets nothing"
            yield Finding(text, "warn", "unknown-variable", given=variable, allowed=allowed, next=hint)


def _fitting(keys: tuple[str, ...], value: Any) -> Any:
    """Return a value of a flag or variable as the key wants it: as text, else as a TOML value where it is one."""
    kind = str if keys[:1] == ("env",) and len(keys) == 2 else annotation_at(Job, keys)
    wants_text = kind is str or typing.get_origin(kind) is typing.Literal
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return value
    if not isinstance(value, str):
        return str(value) if wants_text and isinstance(value, (int, float)) else value
    if wants_text:
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"] if "\n" not in value else value
    except tomllib.TOMLDecodeError:
        return value
