"""A part of a data set for a test: links to some of a folder's files, or the first lines of a text file."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.job.plan.model import DataSet, Plan
from cordee.runs.folder import RunFolder

FOLDER = "data"
# Formats of which the first lines are a smaller one of the same; a table's first line names its columns.
_OF_LINES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".text")
_PIECE_BYTES = 1 << 20


def share_of(text: str) -> float | None:
    """Return the share that a text such as `1%` means, None where it is no share."""
    return float(text.strip()[:-1]) / 100 if text.strip().endswith("%") else None


class DataPart:
    """The parts of its data sets that a test reads.

    Args:
        shares: by the data set's name; empty text: all the others.
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares

    def planned(self, plan: Plan) -> tuple[Plan, list[Finding]]:
        """Return the plan with variables that point at the parts, and what is said of those that are read whole."""
        findings, sets, env = [], [], dict(plan.step.tasks.env)
        for one in plan.step.data:
            share = self._share(one)
            if share is None:
                sets.append(one)
                continue
            if not _can_be_cut(one):
                text = f"the test reads the whole data set {one.name}: of {_a(one.kind)} no part can be taken by links or lines"
                what = f'name a smaller one: [test] data = {{ {one.name} = "PATH" }}'
                findings.append(Finding(text, "info", "test-data", given=one.place, next=what))
                sets.append(one)
                continue
            place = os.path.join(plan.folder, FOLDER, one.name)
            if os.path.isfile(one.place):
                place += Path(one.place).suffix
            env[one.variable] = place
            sets.append(one.model_copy(update={"place": place, "bytes": None, "files": None, "samples": None}))
        step = plan.step.model_copy(
            update={"data": tuple(sets), "tasks": plan.step.tasks.model_copy(update={"env": env})}
        )
        return plan.model_copy(update={"steps": (step,)}), findings

    def made(self, folder: RunFolder, plan: Plan, sources: Mapping[str, str]) -> None:
        """Make the parts in a run's folder.

        Args:
            sources: where each data set lies, by name.

        Raises:
            RunFolderError: one cannot be made.
        """
        for one in plan.step.data:
            share = self._share(one)
            source = sources.get(one.name, one.place)
            if share is None or one.place == source:
                continue
            try:
                (folder.root / FOLDER).mkdir(mode=0o700, exist_ok=True)
                if os.path.isdir(source):
                    link_part(Path(source), Path(one.place), share)
                else:
                    copy_first_lines(Path(source), Path(one.place), share)
            except OSError as error:
                raise RunFolderError(
                    f"no part of the data set {one.name} can be made: {error.strerror}",
                    given=source,
                    next="name a smaller one under [test] data",
                ) from error

    def _share(self, one: DataSet) -> float | None:
        return self._shares.get(one.name, self._shares.get(""))


def _can_be_cut(one: DataSet) -> bool:
    if "://" in one.place or one.kind in ("packed", "tokens"):
        return False
    return os.path.isdir(one.place) or (os.path.isfile(one.place) and one.place.lower().endswith(_OF_LINES))


def _a(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeio' else 'a'} {kind} set"


def link_part(source: Path, target: Path, share: float) -> int:
    """Link a share of a folder's files, evenly over each folder and at least one of each; return how many.

    Only files of the most frequent kind are left out: labels and tables beside them are there.
    """
    listed: list[tuple[Path, list[str]]] = []
    kinds: Counter[str] = Counter()
    for place, folders, names in os.walk(source):
        folders.sort()
        names.sort()
        listed.append((Path(place), names))
        kinds.update(os.path.splitext(name)[1].lower() for name in names)
    kind = kinds.most_common(1)[0][0] if kinds else ""
    linked = 0
    for folder, names in listed:
        below = target / folder.relative_to(source)
        below.mkdir(parents=True, exist_ok=True)
        of_kind = [name for name in names if os.path.splitext(name)[1].lower() == kind]
        count = max(1, math.ceil(share * len(of_kind) - 1e-9)) if of_kind else 0
        kept = {of_kind[at * len(of_kind) // count] for at in range(count)}
        for name in names:
            if name in kept or os.path.splitext(name)[1].lower() != kind:
                (below / name).symlink_to((folder / name).absolute())
                linked += 1
    return linked


def copy_first_lines(source: Path, target: Path, share: float) -> int:
    """Copy a share of a text file from its beginning, to the end of a line and at least two lines; return the bytes."""
    with source.open("rb") as given, target.open("wb") as made:
        most = math.ceil(share * os.fstat(given.fileno()).st_size)
        written = sum(made.write(given.readline()) for _ in range(2))
        while written < most:
            piece = given.read(min(_PIECE_BYTES, most - written))
            if not piece:
                break
            written += made.write(piece)
        if written:
            rest = given.readline() if not _ends_a_line(given) else b""
            written += made.write(rest)
    return written


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_CUR)
    return file.read(1) == b"\n"
