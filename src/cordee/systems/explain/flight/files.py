"""Which files are dumps, and of which rank: `nccl_trace_rank_3`, `rank-3.pkl`, `rank-3.json`, in sets that belong together."""

from __future__ import annotations

import os
import re
from pathlib import Path
from statistics import median
from typing import NamedTuple

from cordee.core.errors import UsageError
from cordee.systems.explain.flight.dump_file import DumpError, DumpFile, bounded_memory, load_dump

_NAME = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?P<form>\.pkl|\.pickle|\.json)?")
_ATTEMPT = re.compile(r"attempt-(\d{1,9})")
_TRIED = 3
_SAME_CALL_NS, _SAME_JOB_NS = 60e9, 1800e9  # clocks of nodes; the time after which watchdogs dump
_NEXT = "TORCH_FR_DUMP_TEMP_FILE says where ranks write dumps; a run's lie in its folder, in flight/attempt-N"


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

    A folder may hold `attempt-N` folders, or dumps, or folders of dumps; of several sets the newest is taken, with those that hold
    other ranks of the same job, as where names or folders say the host.

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
    taken = _of_one_job(sets, newest)
    left_out = [f"{len(files)} dumps {place}" for place, files in sets.items() if place not in taken]
    left_out += [f"dumps of attempt {number}" for number in sorted(numbered)]
    return DumpSet(folder, sorted(file for place in taken for file in sets[place]), chosen, left_out)


def _of_one_job(sets: dict[str, list[DumpFile]], newest: str) -> list[str]:
    """Return the sets that belong to the newest one: of other ranks, of one world, and made at the same time."""
    ranks = {place: {file.rank for file in files} for place, files in sets.items()}
    others = [place for place in sets if not ranks[place] & ranks[newest]]
    taken = [newest]
    apart: list[tuple[float, str]] = []
    with bounded_memory():
        own = _About.of(sets[newest]) if others else None
        for place in others:
            if own is None or (own.world and not ranks[place] <= own.world):
                continue
            about = _About.of(sets[place])
            if about and own.world == about.world:
                apart.append((own.apart(about), place))
    # Of sets that hold the same ranks the nearest in time is taken.
    held = set(ranks[newest])
    for by, place in sorted(apart):
        if by <= 1 and not ranks[place] & held:
            taken.append(place)
            held |= ranks[place]
    return taken


class _About(NamedTuple):
    """What one dump of a set says of the job: the ranks of the group of all (empty: unknown), and when each call was made, ns."""

    world: frozenset[int]
    calls: dict[tuple[str, int], int]

    @classmethod
    def of(cls, files: list[DumpFile]) -> _About | None:
        """Return it of the first dump that can be read; None where none of some can."""
        for file in files[:_TRIED]:
            try:
                dump = load_dump(file)
            except DumpError:
                continue
            configs = [one for one in dump["pg_config"].values() if isinstance(one, dict)]
            said = next((str(one.get("ranks")) for one in configs if one.get("desc") == "default_pg"), "")
            calls: dict[tuple[str, int], int] = {}
            for entry in dump["entries"]:
                try:
                    group, sequence = entry["process_group"][0], entry["collective_seq_id"]
                    time = entry["time_created_ns"]
                    if (type(group), type(sequence), type(time)) == (str, int, int) and not entry.get("is_p2p"):
                        calls[group, sequence] = time
                except (KeyError, TypeError, AttributeError, IndexError):
                    continue
            return cls(frozenset(map(int, re.findall(r"\d{1,9}", said))), calls)
        return None

    def apart(self, other: _About) -> float:
        """Return how far apart in time two dumps are, 1 being the most that one job's can be: the same calls, else the last ones."""
        both = self.calls.keys() & other.calls.keys()
        if both:
            return median(abs(self.calls[key] - other.calls[key]) for key in both) / _SAME_CALL_NS
        if self.calls and other.calls:
            return abs(max(self.calls.values()) - max(other.calls.values())) / _SAME_JOB_NS
        return 0.0


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
