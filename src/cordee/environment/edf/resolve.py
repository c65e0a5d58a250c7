"""From the name of an EDF to one environment in which nothing is inherited, relative or to be expanded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cordee.environment.document import Environment, ImageConfig, Mount
from cordee.environment.edf.expand import ExpansionError, bare_names, expand
from cordee.environment.edf.fields import Given, dotted, fault
from cordee.environment.edf.inherit import Reader
from cordee.environment.edf.merge import Merged, merge
from cordee.environment.edf.mounts import MountError, absolute, parse_mount
from cordee.environment.edf.origins import DEFAULT, Origin, chain
from cordee.environment.edf.search import find_edf, no_such_edf, search_folders
from cordee.findings import Finding
from cordee.spec.faults import document_error
from cordee.spec.toml_lines import Keys

DEFAULTS: dict[str, Any] = {"image": "", "workdir": None, "entrypoint": False, "writable": True}
ConfigOf = Callable[[str], ImageConfig | None]


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
    given: Mapping[Keys, list[Given]]

    @cached_property
    def origins(self) -> dict[Keys, Origin]:
        """Where every value came from, by its path of keys: `("image",)`, `("mounts", 0)`, `("env", "PATH")`,
        `("annotations", "com.hooks.cxi.enabled")`. Values that no file gives are of the kind `default`.
        """
        defaults: dict[Keys, Origin] = {(key,): Origin(DEFAULT, value) for key, value in DEFAULTS.items()}
        found: dict[Keys, Origin] = dict(defaults)
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
    reader = Reader(cwd, variables, folders, lenient)
    lineage = reader.read(path)
    merged = merge(lineage)
    made = _Making(merged, cwd, variables, lenient, reader.findings)
    environment = made.environment(path.stem, config_of)
    if any(finding.severity == "error" for finding in made.findings):
        raise document_error([finding for finding in made.findings if finding.severity == "error"])
    files = tuple(edf.path for edf in lineage.weakest_first)
    return Resolved(environment, files, merged.additions, merged.unknown, tuple(made.findings), made.given)


class _Making:
    """Expands what the files say, and collects what is wrong with it."""

    def __init__(
        self, merged: Merged, cwd: Path, variables: Mapping[str, str], lenient: bool, findings: list[Finding]
    ) -> None:
        self.merged, self.cwd, self.variables, self.lenient = merged, cwd, variables, lenient
        self.findings = list(findings)
        self.given: dict[Keys, list[Given]] = {}

    def environment(self, name: str, config_of: ConfigOf | None) -> Environment:
        """Return the environment; what could not be understood is left out of it and in the findings."""
        image = self._image()
        inside = self._variables_inside(config_of, image)
        return Environment(
            name=name,
            image=image,
            workdir=self._workdir(inside),
            entrypoint=self._switch("entrypoint"),
            writable=self._switch("writable"),
            mounts=self._mounts(),
            devices=self._devices(),
            env=dict(self._table("env", inside)),
            annotations=dict(self._table("annotations", self.variables)),
        )

    def _image(self) -> str:
        """Return the image, relative paths made absolute; that it can be understood is looked at here, where its line is known."""
        image = self._scalar("image", self.variables) or ""
        if image:
            # Deferred: most of what reads images is not needed for those that name none.
            from cordee.environment.edf.image import absolute_image
            from cordee.environment.images.errors import ImageError

            try:
                return absolute_image(image, self.cwd)
            except ImageError as error:
                details = {"given": error.given, "allowed": ", ".join(error.allowed or ()), "next": error.next}
                given = self.merged.scalars["image"][0]
                self._refuse(given, f"cannot be understood: {error.text}", "bad-image", **details)
        return image

    def _variables_inside(self, config_of: ConfigOf | None, image: str) -> Mapping[str, str]:
        """Return the variables by which values that hold inside are expanded; the image is asked only where there are such."""
        inside = [given[0] for given in self.merged.tables["env"].values()]
        inside += self.merged.scalars.get("workdir", [])[:1]
        if not image or config_of is None or not any("$" in given.value for given in inside):
            return self.variables
        config = config_of(image)
        return {**self.variables, **config.env} if config else self.variables

    def _scalar(self, key: str, variables: Mapping[str, str]) -> str | None:
        given = self.merged.scalars.get(key)
        if not given:
            return None
        self.given[(key,)] = given
        return self._expanded(given[0], variables)

    def _switch(self, key: str) -> bool:
        given = self.merged.scalars.get(key)
        if given:
            self.given[(key,)] = given
        return bool(given[0].value if given else DEFAULTS[key])

    def _workdir(self, variables: Mapping[str, str]) -> str | None:
        workdir = self._scalar("workdir", variables)
        if not workdir:
            return None
        if not workdir.startswith(("/", ".")):
            given = self.merged.scalars["workdir"][0]
            allowed = "a path that begins with / or ./"
            self._refuse(given, "is no path", "bad-value", given=workdir, allowed=allowed, next=f"write ./{workdir}")
        return absolute(workdir, self.cwd)

    def _mounts(self) -> tuple[Mount, ...]:
        found: dict[Mount, list[Given]] = {}
        for given in self.merged.lists["mounts"]:
            try:
                mount = parse_mount(given.value, self.cwd, self.variables, self.lenient)
            except MountError as error:
                details = {"given": error.given, "allowed": error.allowed, "next": error.next}
                self._refuse(given, error.text, "bad-mount", **details)
            except ExpansionError as error:
                self._refuse_reference(given, error)
            else:
                if mount is not None:
                    found.setdefault(mount, []).append(given)
        self.given.update({("mounts", index): given for index, given in enumerate(found.values())})
        return tuple(found)

    def _devices(self) -> tuple[str, ...]:
        found: dict[str, list[Given]] = {}
        for given in self.merged.lists["devices"]:
            device = self._expanded(given, self.variables)
            if device:
                found.setdefault(device, []).append(given)
        self.given.update({("devices", index): given for index, given in enumerate(found.values())})
        return tuple(found)

    def _table(self, key: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for name, given in self.merged.tables[key].items():
            self.given[(key, name)] = given
            value = self._expanded(given[0], variables)
            if value is not None:
                yield name, value

    def _expanded(self, given: Given, variables: Mapping[str, str]) -> str | None:
        for name in bare_names(given.value):
            if name in variables:
                self.findings.append(_not_expanded(given, name))
        try:
            value = expand(given.value, variables)
        except ExpansionError as error:
            self._refuse_reference(given, error)
            return None
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            self._refuse(given, "holds bytes that are not UTF-8", "bad-value", next="correct the variable it refers to")
        return value

    def _refuse_reference(self, given: Given, error: ExpansionError) -> None:
        hint = error.next
        name = error.given[2:-1]
        if error.rule == "undefined-variable" and name in self.merged.tables["env"]:
            hint = f"entries of [env] cannot refer to each other: write the value of {name} out, or export it before"
        self._refuse(given, error.text, error.rule, given=error.given, allowed=error.allowed, next=hint)

    def _refuse(self, where: Given, complaint: str, rule: str, **details: Any) -> None:
        self.findings.append(fault(where.edf, where.keys, complaint, rule, **details))


def _not_expanded(given: Given, name: str) -> Finding:
    return Finding(
        f"{dotted(given.keys)} holds ${name}, which is left as it is",
        "warn",
        "bare-variable",
        file=str(given.edf.path),
        line=given.edf.line(given.keys),
        given=f"${name}",
        next=f"write ${{{name}}} if the variable is meant, $${name} if not",
    )
