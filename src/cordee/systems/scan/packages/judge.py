"""What is said of packages: advisories, names, what an environment runs of itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from cordee.core.words import counted
from cordee.systems.scan.node.verdict import FileVerdict, Sight, worst
from cordee.systems.scan.packages.installed import environment_at, installed_packages
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.names import KnownNames
from cordee.systems.scan.packages.project import asked_file
from cordee.systems.scan.packages.startup import plugin_sights, startup_sights

if TYPE_CHECKING:
    from cordee.systems.scan.packages.advisories import Advisory, AdvisorySnapshot

_SHOWN = 8


class PackageScan(NamedTuple):
    """What is said of the packages at some paths.

    Attributes:
        verdicts: of files, environments and images that name packages, clean ones too.
        packages: all that were met.
        notes: what is worth knowing and is no fault: what is in no list, how old the advisories are.
        advisories: the state of their snapshot, as `--json` prints it; None: there is none.
    """

    verdicts: tuple[FileVerdict, ...]
    packages: tuple[FoundPackage, ...]
    notes: tuple[str, ...]
    advisories: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        keys = ("name", "version", "kind", "path")
        return {
            "packages": [{key: getattr(one, key) for key in keys} for one in self.packages],
            "notes": list(self.notes),
            "advisories": self.advisories,
        }


class PackageJudge:
    """Judges packages by one site's names and one snapshot.

    Args:
        known: names.
        snapshot: of advisories; None: none is asked.
        now_s: the time, seconds since the epoch.

    Attributes:
        notes: what else is worth knowing of how they were judged.
    """

    def __init__(self, known: KnownNames, snapshot: AdvisorySnapshot | None = None, now_s: float | None = None) -> None:
        self._known, self._snapshot = known, snapshot
        self._now_s = time.time() if now_s is None else now_s
        self._unknown: dict[str, None] = {}
        self.notes: list[str] = []
        self._packages: dict[FoundPackage, None] = {}
        self._verdicts: list[FileVerdict] = []

    def file(self, path: str) -> bool:
        """Judge a file; return whether it asks for packages."""
        began = time.monotonic()
        asked = asked_file(path, self._known)
        if asked is None:
            return False
        sights = [*asked.sights, *self._known_faults(asked.packages)]
        self._add(path, asked.kind, sights, asked.packages, asked.unknown, time.monotonic() - began)
        return True

    def environment(self, path: str) -> bool:
        """Judge a folder; return whether it is an environment of Python or conda."""
        environment = environment_at(path)
        if environment is None:
            return False
        began = time.monotonic()
        packages = tuple(installed_packages(environment))
        sights = [
            *startup_sights(environment),
            *plugin_sights(environment, self._known),
            *self.installed(packages),
        ]
        unknown = sorted({one.name for one in packages if one.kind == "pypi" and not self._known.is_known(one.name)})
        self._add(path, "environment", sights, packages, unknown, time.monotonic() - began)
        return True

    def found(
        self, path: str, kinds: tuple[str, ...], packages: tuple[FoundPackage, ...], sights: Iterable[Sight]
    ) -> FileVerdict:
        """Take what others have found, as in an image, and return the verdict with what is known of its packages."""
        unknown = sorted({one.name for one in packages if one.kind == "pypi" and not self._known.is_known(one.name)})
        self._add(path, kinds, [*sights, *self.installed(packages)], packages, unknown, 0.0)
        return self._verdicts[-1]

    def installed(self, packages: Iterable[FoundPackage]) -> Iterator[Sight]:
        """Yield what is to be said of packages that are installed."""
        packages = tuple(packages)
        for one in packages:
            other = self._known.looks_like(one.name) if one.kind == "pypi" else None
            if other:
                said = f"{one.name[:80]} is in no list of names, and is nearly {other}: is that one meant?"
                yield Sight("package-typosquat", "unknown", said)
        yield from self._known_faults(packages)

    def result(self) -> PackageScan:
        """Return what was said of all."""
        notes = [*self.notes]
        if self._packages:
            notes.append(f"{counted(len(self._packages), 'package')} in {counted(len(self._verdicts), 'place')}")
        if self._unknown:
            names = sorted(self._unknown)
            shown = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
            notes.append(f"{counted(len(names), 'name')} in no list, neither widely used nor the site's: {shown}")
        state = None
        if self._snapshot is not None:
            state = self._snapshot.state
            newest = f", the newest {state.age(self._now_s)}" if state.records else ""
            notes.append(f"advisories: {counted(state.records, 'record')}{newest}")
        elif self._packages:
            notes.append(
                "no snapshot of advisories was given, so none are known: --advisories, or [scan] advisories in the profile"
            )
        system = sum(one.kind in ("deb", "rpm", "apk") for one in self._packages)
        if system:
            said = f"vulnerabilities of {counted(system, 'package')} of a distribution are unknown here"
            notes.append(f"{said}: look them up with `grype` or `trivy`")
        verdicts = [*self._verdicts]
        if state is not None and (sights := tuple(state.sights(self._now_s))):
            verdicts.append(FileVerdict(state.path, worst(one.severity for one in sights), ("advisories",), sights))
        return PackageScan(
            tuple(verdicts), tuple(self._packages), tuple(notes), None if state is None else state._asdict()
        )

    def _known_faults(self, packages: Iterable[FoundPackage]) -> Iterator[Sight]:
        if self._snapshot is not None:
            by_package: dict[FoundPackage, list[Advisory]] = {}
            for one in self._snapshot.about(packages):
                by_package.setdefault(one.package, []).append(one)
            for package, advisories in by_package.items():
                yield _advisory_sight(package, advisories)

    def _add(
        self,
        path: str,
        kinds: str | tuple[str, ...],
        sights: list[Sight],
        packages: Iterable[FoundPackage],
        unknown: Iterable[str],
        seconds: float,
    ) -> None:
        self._packages.update(dict.fromkeys(packages))
        self._unknown.update(dict.fromkeys(unknown))
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        severity = worst(sight.severity for sight in sights)
        self._verdicts.append(FileVerdict(path, severity, kinds, tuple(dict.fromkeys(sights)), seconds))


def _advisory_sight(package: FoundPackage, advisories: list[Advisory]) -> Sight:
    """Return one sight for all that is known against a package."""
    where = f"{package.name} {package.version}"
    bad = [one for one in advisories if one.malicious]
    if bad:
        said = f"{where} is known to be malicious ({', '.join(bad[0].ids[:2])}): {bad[0].summary[:120]}"
        return Sight("package-malicious", "block", said, package.name)
    named = ", ".join(one.ids[0] + (f" ({one.severity.lower()})" if one.severity else "") for one in advisories[:4])
    more = f" and {len(advisories) - 4} more" if len(advisories) > 4 else ""
    fixed = [one.fixed for one in advisories]
    said = f"{where} has {counted(len(advisories), 'known vulnerability') if len(advisories) == 1 else f'{len(advisories)} known vulnerabilities'}: {named}{more}"
    if all(fixed):
        said += f"; fixed in {', '.join(dict.fromkeys(each[0] for each in fixed[:4]))}"
    elif not any(fixed):
        said += "; no version is fixed"
    return Sight("package-advisory", "warn", said, package.name)
