"""Which files a path stands for, and the verdict over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cordee.core.errors import UsageError
from cordee.core.words import counted
from cordee.systems.scan.history import repository_of, scan_history
from cordee.systems.scan.images.scan import image_form
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.node.verdict import FileVerdict, worst
from cordee.systems.scan.rules import RULES

if TYPE_CHECKING:
    from cordee.systems.scan.packages.judge import PackageScan

# Folders of packages: named by themselves, their packages are looked at and not their files.
SITES = ("site-packages", "dist-packages")
# What is not looked into: histories (`--history` does), and what installers have put there.
LEFT_OUT = (".git", ".hg", ".svn", "__pycache__", "node_modules")
# In a run's folder Cordée itself keeps the tokens by which its processes know each other, for the owner only.
_RUN_PARTS, _OWN_PART = {"plan.json", "journal", "control"}, "control"


class Tree(NamedTuple):
    """The files below some paths.

    Attributes:
        files: regular files, and links to such.
        special: FIFOs, devices, sockets and links to nothing, which nobody opens.
        left_out: what was not entered.
        images: of containers, which are looked into as a whole.
    """

    files: list[str]
    special: list[str]
    left_out: list[str]
    images: list[str]


class ScanResult(NamedTuple):
    """What `cordee scan` says.

    Attributes:
        files: how many were looked at.
        bad: the verdicts that are not clean, the worst first.
        tree: what was looked at, and what not.
        confined: whether those that looked could reach nothing else.
        packages: what is said of packages; None: they were not looked at.
        notes: what else is to be said.
    """

    files: int
    bad: list[FileVerdict]
    tree: Tree
    confined: bool
    packages: PackageScan | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of all."""
        return worst(verdict.verdict for verdict in self.bad)

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "verdict": self.verdict,
            "files": self.files,
            "confined": self.confined,
            "left_out": self.tree.left_out,
            "special": self.tree.special,
            "notes": list(self.notes),
            "findings": [
                {
                    "path": verdict.path,
                    "rule": sight.rule,
                    "severity": sight.severity,
                    "text": sight.text,
                    "where": sight.where,
                    "next": RULES[sight.rule].next if sight.rule in RULES else None,
                }
                for verdict in self.bad
                for sight in verdict.sights
            ],
            **(self.packages.document() if self.packages else {}),
        }

    def with_packages(self, packages: PackageScan) -> ScanResult:
        """Return the scan with what is said of packages."""
        bad = [*self.bad, *(one for one in packages.verdicts if one.verdict != "clean")]
        return self._replace(bad=_sorted(bad), packages=packages)


def tree_of(paths: Iterable[str]) -> Tree:
    """Return the files below some paths; links to folders are not followed, environments of Python not entered.

    Raises:
        UsageError: one of the paths is not there, or neither a file nor a folder.
    """
    tree = Tree([], [], [], [])
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError("there is no such file or folder", given=path)
        if os.path.isdir(path) and (is_environment(Path(path)) or Path(path).name in SITES):
            tree.left_out.append(path)
        elif os.path.isdir(path) and image_form(path):
            tree.images.append(path)
        elif os.path.isdir(path):
            for file in _below(path, tree):
                _sorted_in(file, tree)
        elif not os.path.isfile(path):
            raise UsageError(
                "it cannot be looked at", given=path, allowed="a file or a folder", next="name what it leads to"
            )
        else:
            _sorted_in(path, tree)
    return tree


def _sorted_in(file: str, tree: Tree) -> None:
    if not os.path.isfile(file):
        tree.special.append(file)
    elif image_form(file):
        tree.images.append(file)
    else:
        tree.files.append(file)


def scan_tree(
    tree: Tree, allowed: Iterable[str] = (), *, secrets: bool = True, processes: int | None = None
) -> ScanResult:
    """Look at all files of a tree.

    Args:
        tree: of files.
        allowed: names in pickles that are known to be harmless.
        secrets: whether keys are looked for, too.
        processes: how many look; by default one for each CPU, at most eight.
    """
    most = processes or min(8, len(os.sched_getaffinity(0)), max(1, len(tree.files) // 8))
    bad = []
    with Scanner(allowed, most, secrets=secrets) as scanner:
        bad = [verdict for verdict in scanner.scan_all(tree.files) if verdict.verdict != "clean"]
        confined = scanner.confined is not False
    return ScanResult(len(tree.files), _sorted(bad), tree, confined)


def with_history(scan: ScanResult, paths: Iterable[str]) -> ScanResult:
    """Return a scan with what the repositories around its paths have ever committed; each is read once.

    Raises:
        UsageError: one of the paths lies in no repository.
    """
    folders = {Path(path if os.path.isdir(path) else os.path.dirname(path) or ".").resolve() for path in paths}
    bad, notes = list(scan.bad), list(scan.notes)
    for root in sorted({repository_of(folder) for folder in folders}):
        history = scan_history(root)
        bad += history.bad
        notes += [history.rest] if history.rest else []
        notes.append(f"{root}: {counted(history.commits, 'commit')} looked at")
    return scan._replace(bad=_sorted(bad), notes=tuple(notes))


def _sorted(bad: list[FileVerdict]) -> list[FileVerdict]:
    order = ("block", "unknown", "warn")
    return sorted(bad, key=lambda verdict: (order.index(verdict.verdict), verdict.path))


def _below(path: str, tree: Tree) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        own = _OWN_PART if {*folders, *names} >= _RUN_PARTS else ""
        left_out = [name for name in folders if name == own or _is_left_out(Path(folder, name))]
        tree.left_out.extend(os.path.join(folder, name) for name in sorted(left_out))
        folders[:] = sorted(name for name in folders if name not in left_out)
        images = [name for name in folders if image_form(os.path.join(folder, name))]
        tree.images.extend(os.path.join(folder, name) for name in images)
        folders[:] = [name for name in folders if name not in images]
        yield from (os.path.join(folder, name) for name in sorted(names))


def _is_left_out(folder: Path) -> bool:
    return folder.name in LEFT_OUT or is_environment(folder)


def is_environment(folder: Path) -> bool:
    """Return whether a folder is an environment of Python or conda, whose packages are looked at and not its files."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
