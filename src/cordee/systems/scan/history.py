"""Keys in a repository's history: what was committed once is read by everybody who has a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from cordee.core.errors import UsageError
from cordee.core.secret_forms import keys_in
from cordee.systems.scan.node.verdict import FileVerdict, Sight

_MOST_S, _MOST_BYTES = 120.0, 1 << 30
_MOST_OF_FILE, _LONGEST_LINE, _MOST_KEYS = 4 << 20, 1 << 20, 1000
# Nothing that the repository's own configuration names is run.
_HARMLESS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false", "-c", "diff.external=",
    "--no-pager", "--no-replace-objects",
)  # fmt: skip
_LOG = (
    "log", "--all", "--reverse", "-p", "-U0", "--diff-merges=first-parent", "--no-ext-diff", "--no-textconv", "--no-color",
    "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--format=%x00%H",
)  # fmt: skip


class HistoryScan(NamedTuple):
    """What a look at a history found.

    Attributes:
        bad: a verdict for each file and commit in which a key came.
        commits: how many were looked at.
        rest: why the rest was not looked at; empty: all was.
    """

    bad: list[FileVerdict]
    commits: int
    rest: str


def repository_of(folder: Path) -> Path:
    """Return the root of the repository around a folder.

    Raises:
        UsageError: there is none.
    """
    for root in (folder, *folder.parents):
        if (root / ".git").exists():
            return root
    raise UsageError("there is no repository of git", given=str(folder), next="leave out --history")


def scan_history(folder: Path) -> HistoryScan:
    """Look at what all commits of the repository around a folder have added, the oldest first; git reads it, in a process of its own.

    A key is told once, with the commit that brought it. What takes more than two minutes or 1 GiB is left, and said.

    Raises:
        UsageError: there is no repository, or no git.
    """
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed here", next="a history is read by git")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    command = [git, "-C", str(folder), *_HARMLESS, *_LOG]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        reader = _Reader(process.stdout)
        try:
            bad = [FileVerdict(path, "block", ("git",), tuple(sights)) for path, sights in reader.found()]
        finally:
            process.kill()
        said = process.stderr.read(4096).decode(errors="replace").strip()
    if not reader.commits and said and "does not have any commits" not in said:
        raise UsageError(
            f"its history cannot be read: {said.splitlines()[0]}",
            given=str(folder),
            next="name a folder in a repository",
        )
    return HistoryScan(bad, reader.commits, reader.rest)


class _Reader:
    """Reads what `git log -p` prints."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._told: set[tuple[str, str]] = set()
        self._commit, self._path, self._added, self._size = "", "", list[str](), 0
        self.commits, self.rest = 0, ""

    def found(self) -> Iterator[tuple[str, list[Sight]]]:
        """Yield the paths in which keys came, each with what was seen."""
        until, left, in_hunk = time.monotonic() + _MOST_S, _MOST_BYTES, False
        while raw := self._stream.readline(_LONGEST_LINE):
            left -= len(raw)
            if left < 0 or time.monotonic() > until or len(self._told) >= _MOST_KEYS:
                self.rest = f"the history is long: what came after {self.commits:,} commits was not looked at"
                break
            if raw.startswith(b"\0"):
                yield from self._judged()
                self._commit, self._path, in_hunk = raw[1:].strip().decode("latin-1"), "", False
                self.commits += 1
            elif raw.startswith(b"diff --git "):
                yield from self._judged()
                in_hunk = False
            elif raw.startswith(b"@@ "):
                in_hunk = True
            elif not in_hunk and raw.startswith(b"+++ "):
                self._path = raw[4:].strip().strip(b'"').decode(errors="replace").removeprefix("b/")
            elif in_hunk and raw.startswith(b"+") and self._size < _MOST_OF_FILE:
                self._added.append(raw[1:].decode(errors="replace"))
                self._size += len(raw)
        yield from self._judged()

    def _judged(self) -> Iterator[tuple[str, list[Sight]]]:
        text = "".join(self._added)
        self._added, self._size = [], 0
        sights = []
        for key in keys_in(text):
            told = (key.kind, text[key.begin : key.end])
            if told not in self._told:
                self._told.add(told)
                said = f"a key of the kind {key.kind} was committed; who has a clone has it"
                sights.append(Sight(f"secret-{key.kind}", "block", said, f"commit {self._commit[:12]}"))
        if sights:
            yield self._path, sights
