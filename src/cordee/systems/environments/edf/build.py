"""From what all the files say to one environment: expanded, paths made absolute, each thing once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cordee.core.documents.faults import dotted
from cordee.core.documents.toml_lines import Keys
from cordee.core.findings import Finding
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf.expand import ExpansionError, bare_names, expand
from cordee.systems.environments.edf.fields import DEFAULTS, GivenValue, fault
from cordee.systems.environments.edf.merge import MergedEdf
from cordee.systems.environments.edf.mounts import PATHS, MountError, absolute, parse_mount, path_hint
from cordee.systems.environments.node.document import ContainerMount, Environment

ConfigOf = Callable[[str], ImageConfig | None]


class EdfExpansion:
    """Expands what the files say, and collects what is wrong with it."""

    def __init__(
        self, merged: MergedEdf, cwd: Path, variables: Mapping[str, str], lenient: bool, findings: list[Finding]
    ) -> None:
        self.merged, self.cwd, self.variables, self.lenient = merged, cwd, variables, lenient
        self.findings = list(findings)
        self.given: dict[Keys, list[GivenValue]] = {}
        self.image_unknown = False

    @property
    def wrong(self) -> bool:
        """Whether an error is among the findings."""
        return any(finding.severity == "error" for finding in self.findings)

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
            from cordee.machine.images.errors import ImageError
            from cordee.systems.environments.edf.image import absolute_image

            try:
                return absolute_image(image, self.cwd)
            except ImageError as error:
                allowed = error.allowed if isinstance(error.allowed, str) else ", ".join(error.allowed or ())
                details = {"given": error.given, "allowed": allowed or None, "next": error.next}
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
        self.image_unknown = config is None
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
            self._refuse(given, "is no path", "bad-value", given=workdir, allowed=PATHS, next=path_hint(workdir))
        return absolute(workdir, self.cwd)

    def _mounts(self) -> tuple[ContainerMount, ...]:
        found: dict[ContainerMount, list[GivenValue]] = {}
        for given in self.merged.lists["mounts"]:
            self._look_for_bare_names(given)
            try:
                mount = parse_mount(given.value, self.cwd, self.variables, self.lenient)
            except MountError as error:
                details = {"given": error.given, "allowed": error.allowed, "next": error.next}
                self._refuse(given, error.text, "bad-mount", **details)
            except ExpansionError as error:
                self._refuse_reference(given, error)
            else:
                if mount is not None and self._is_text(given, mount.source + mount.target):
                    found.setdefault(mount, []).append(given)
        self.given.update({("mounts", index): given for index, given in enumerate(found.values())})
        return tuple(found)

    def _devices(self) -> tuple[str, ...]:
        found: dict[str, list[GivenValue]] = {}
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

    def _expanded(self, given: GivenValue, variables: Mapping[str, str]) -> str | None:
        self._look_for_bare_names(given)
        try:
            value = expand(given.value, variables)
        except ExpansionError as error:
            self._refuse_reference(given, error)
            return None
        return value if self._is_text(given, value) else None

    def _look_for_bare_names(self, given: GivenValue) -> None:
        for name in dict.fromkeys(bare_names(given.value)):
            if name in self.variables:
                self.findings.append(_not_expanded(given, name))

    def _is_text(self, given: GivenValue, value: str) -> bool:
        """Return whether a value holds no bytes of a variable that are no text: neither JSON nor TOML could carry them."""
        if value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value):
            return True
        self._refuse(given, "holds bytes that are not UTF-8", "bad-value", next="correct the variable it refers to")
        return False

    def _refuse_reference(self, given: GivenValue, error: ExpansionError) -> None:
        hint = error.next
        name = error.given[2:-1]
        if error.rule == "undefined-variable" and self.image_unknown and given.keys[0] in ("env", "workdir"):
            hint = f"{hint}; where the image defines it, the image has to be here first: cordee env pull"
        if error.rule == "undefined-variable" and given.keys == ("env", name):
            hint = hint if self.image_unknown else f"{hint}: neither the image nor the host defines it"
        elif error.rule == "undefined-variable" and name in self.merged.tables["env"]:
            hint = f"entries of [env] cannot refer to each other: write the value of {name} out, or export it before"
        self._refuse(given, error.text, error.rule, given=error.given, allowed=error.allowed, next=hint)

    def _refuse(self, where: GivenValue, complaint: str, rule: str, **details: Any) -> None:
        self.findings.append(fault(where.edf, where.keys, complaint, rule, **details))


def _not_expanded(given: GivenValue, name: str) -> Finding:
    return Finding(
        f"{dotted(given.keys)} holds ${name}, which is left as it is",
        "warn",
        "bare-variable",
        file=str(given.edf.path),
        line=given.edf.line(given.keys),
        given=f"${name}",
        next=f"write ${{{name}}} if the variable is meant, $${name} if not",
    )
