"""Which files are dumps, and of which rank: `nccl_trace_rank_3`, `rank-3.pkl`, `rank-3.json`, in sets that belong together."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import UsageError

_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?P<form>\.pkl|\.pickle|\.json)?")
_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_NEXT = "TORCH_FR_DUMP_TEMP_FILE says where ranks write dumps; a run's lie in its folder, in flight/attempt-N"


class DumpFile(NamedTuple):
    """One file that by its name is a dump.

    Attributes:
        rank: by the name; a dump itself does not say it.
        modified: when it was written, seconds.
        more: other forms of the same rank's dump, taken when this one cannot be read.
    """

    rank: int
    path: Path
    modified: float
    more: tuple[Path, ...] = ()


class DumpSet(NamedTuple):
    """The dumps that are judged together.

    Attributes:
        folder: where they lie.
        attempt: of the run, None where the folder is not a run's.
        left_out: sets beside them that were not taken, in words.
    """

    folder: Path
    files: list[DumpFile]
    attempt: int | None
    left_out: list[str]


def find_dumps(folder: Path, attempt: int | None = None) -> DumpSet:
    """Return the dumps of a folder: of the attempt that is asked for, else of the newest.

    A folder may hold `attempt-N` folders, or dumps, or folders of dumps; of several sets the newest is taken.

    Raises:
        UsageError: there are none, or not of that attempt.
    """
    numbered = {
        int(match[1]): path for path in _listed(folder) if path.is_dir() and (match := _ATTEMPT.fullmatch(path.name))
    }
    own = _ATTEMPT.fullmatch(folder.name)
    chosen = int(own[1]) if own else None
    if numbered:
        chosen = max(numbered) if attempt is None else attempt
        if chosen not in numbered:
            raise UsageError("there are no dumps of this attempt", given=attempt, allowed=sorted(numbered))
        folder = numbered.pop(chosen)
    elif attempt not in (None, chosen):
        raise UsageError("there are no dumps of this attempt", given=attempt, next="leave out --attempt")
    sets = _sets(folder)
    if not sets:
        raise UsageError(
            "there is no dump in this folder", given=str(folder), allowed="files named by rank", next=_NEXT
        )
    newest = max(sets, key=lambda key: (max(file.modified for file in sets[key]), len(sets[key])))
    left_out = [f"{len(files)} dumps {place}" for place, files in sets.items() if place != newest]
    left_out += [f"dumps of attempt {number}" for number in sorted(numbered)]
    return DumpSet(folder, sorted(sets[newest]), chosen, left_out)


def _sets(folder: Path) -> dict[str, list[DumpFile]]:
    """Return dumps by where they lie and how their names begin."""
    found: dict[str, dict[int, list[tuple[Path, float]]]] = {}
    for path in _listed(folder):
        for one in _listed(path) if path.is_dir() else [path]:
            match = _NAME.fullmatch(one.name)
            if match is None or not one.is_file() or one.name.startswith("."):
                continue
            place = f"{one.parent}/{match['prefix']}*"
            found.setdefault(place, {}).setdefault(int(match["rank"]), []).append((one, one.stat().st_mtime))
    sets: dict[str, list[DumpFile]] = {}
    for place, ranks in found.items():
        for rank, forms in ranks.items():
            forms.sort(key=lambda form: form[0].suffix == ".json")  # without code lines, so the second choice
            more = tuple(path for path, _ in forms[1:])
            sets.setdefault(place, []).append(DumpFile(rank, forms[0][0], forms[0][1], more))
    return sets


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder))
    except PermissionError as error:
        raise UsageError("this folder cannot be read", given=str(folder), next="ask its owner") from error
    except OSError:
        return []
