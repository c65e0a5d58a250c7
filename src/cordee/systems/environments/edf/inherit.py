"""From one EDF to all that it inherits from, in the order in which they are laid over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordee.core.documents.files import read_toml
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.systems.environments.edf.expand import ExpansionError, expand
from cordee.systems.environments.edf.fields import Edf, bases_of, fault, read_values
from cordee.systems.environments.edf.search import find_edf, no_such_edf

MOST_LEVELS = 10


@dataclass(frozen=True)
class Lineage:
    """An EDF and all that it inherits from, each file once.

    Attributes:
        weakest_first: in the order of scalars, where what comes last wins: a file that is inherited twice stands where
            it was inherited last.
        in_order: in the order of lists, where what comes first stays first.
        chain: the longest line of inheritance, from the file itself to the last base.
    """

    weakest_first: tuple[Edf, ...]
    in_order: tuple[Edf, ...]
    chain: tuple[Path, ...]


@dataclass
class EdfReader:
    """Reads EDFs, each file once, and collects what is wrong with them."""

    cwd: Path
    variables: Mapping[str, str]
    folders: Sequence[Path]
    lenient: bool
    findings: list[Finding] = field(default_factory=list)
    _known: dict[Path, Lineage] = field(default_factory=dict)

    def read(self, path: Path, above: tuple[Path, ...] = ()) -> Lineage:
        """Return the lineage of the file at `path`; `above` are those that inherit from it."""
        if path not in self._known:
            edf = self._read_file(path)
            here = (*above, path)
            bases = [base for name, keys in bases_of(edf) if (base := self._base(edf, name, keys, here)) is not None]
            weakest_first = [each for base in bases for each in base.weakest_first]
            in_order = [each for base in bases for each in base.in_order]
            longest = max((base.chain for base in bases), key=len, default=())
            self._known[path] = Lineage(
                tuple(reversed(_once([edf, *reversed(weakest_first)]))), _once([*in_order, edf]), (path, *longest)
            )
        return self._known[path]

    def _read_file(self, path: Path) -> Edf:
        try:
            text, document = read_toml(path)
        except DocumentError as error:
            self.findings.extend(error.findings)
            return Edf(path, "", {})
        edf, findings = read_values(path, text, document, self.lenient)
        self.findings.extend(findings)
        return edf

    def _base(self, edf: Edf, name: str, keys: Keys, here: tuple[Path, ...]) -> Lineage | None:
        """Return what one entry of base_environment stands for; None, and a finding, when it is wrong."""
        try:
            name = expand(name, self.variables)
        except ExpansionError as error:
            details = {"given": error.given, "allowed": error.allowed, "next": error.next}
            self.findings.append(fault(edf, keys, error.text, error.rule, **details))
            return None
        if not name:
            return None
        path = find_edf(name, self.cwd, self.folders)
        if path is None:
            self.findings.append(no_such_edf(name, self.cwd, self.folders, str(edf.path), edf.line(keys)))
        elif path in here:
            self._refuse(edf, keys, "inherits from itself", "cycle", (*here[here.index(path) :], path))
        elif len(here) >= MOST_LEVELS:
            self._refuse(edf, keys, f"goes deeper than {MOST_LEVELS} levels", "too-deep", (*here, path))
        else:
            lineage = self.read(path, here)
            if len(here) + len(lineage.chain) <= MOST_LEVELS:
                return lineage
            chain = (*here, *lineage.chain)
            if not any(finding.rule == "too-deep" for finding in self.findings):
                self._refuse(edf, keys, f"goes deeper than {MOST_LEVELS} levels", "too-deep", chain)
        return None

    def _refuse(self, edf: Edf, keys: Keys, complaint: str, rule: str, chain: tuple[Path, ...]) -> None:
        shown = " -> ".join(map(str, chain))
        allowed = f"at most {MOST_LEVELS} levels, the file itself included" if rule == "too-deep" else "no cycle"
        self.findings.append(
            fault(edf, keys, complaint, rule, given=shown, allowed=allowed, next=f"take {chain[-1]} out of the chain")
        )


def _once(edfs: Sequence[Edf]) -> tuple[Edf, ...]:
    """Return each file where it stands first."""
    return tuple({edf.path: edf for edf in edfs}.values())
