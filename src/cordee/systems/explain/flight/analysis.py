"""From a folder of dumps to findings: reads one dump after the other, digests it, judges, and looks again where it must."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from cordee.core.draw.clean import one_line
from cordee.systems.explain.flight.dump_file import DumpError, DumpFile, bounded_memory, load_dump
from cordee.systems.explain.flight.dump_sets import clocks_apart, strangers
from cordee.systems.explain.flight.files import DumpSet
from cordee.systems.explain.flight.judge import FlightJudge
from cordee.systems.explain.flight.rings import Rings
from cordee.systems.explain.flight.verdict import UNKNOWN, FlightVerdict
from cordee.systems.explain.flight.words import next_of, said_of, sentence

SCHEMA = "cordee.flight/1"
_OLDER_S = 60.0
_FOREIGN_CODE = ("/torch/", "/typing_extensions.py", "/contextlib.py", "/functools.py", "<frozen")
_MOST_SHOWN = 16


@dataclass
class Flight:
    """What dumps say.

    Attributes:
        world: how many ranks there are, as dumps or the run say; 0: not known.
        judged: how many dumps were used.
        missing: ranks without a dump that was used.
        refused: files that could not be read, with the reason.
        notes: what else a reader should know, in words.
        waiting: how many ranks wait in a call that has not ended.
        files: the dumps that were used, by the rank that each is of.
        members: the ranks of groups that dumps do not name (Gloo), by name and description.
        apart: ranks whose clocks are far apart from the others'.
    """

    attempt: int | None
    world: int = 0
    judged: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    waiting: int = 0
    files: dict[int, DumpFile] = field(default_factory=dict)
    members: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    apart: list[int] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether something is known to be wrong."""
        return any(finding["kind"] != UNKNOWN for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "schema": SCHEMA,
            "attempt": self.attempt,
            "world": self.world,
            "dumps": self.judged,
            "waiting": self.waiting,
            "findings": self.findings,
            "missing_ranks": self.missing,
            "refused": self.refused,
            "notes": self.notes,
        }


class _Reader:
    """Reads dumps, each as the rank that it is of."""

    def __init__(self, dumps: DumpSet, flight: Flight) -> None:
        self.files = {file.rank: file for file in dumps.files}
        self.highest = max(self.files)
        self.flight = flight
        self.twice: dict[int, int] = {}
        self._seen: dict[int, list[dict[str, Any]]] = {}

    def digest(self, without: Iterable[int] = ()) -> Rings:
        """Return the digest of all dumps but some; what cannot be read is told once."""
        rings = Rings()
        misfits = []
        for rank, file in list(self.files.items()):
            if rank in without:
                continue
            dump = self._load(file)
            if dump is None:
                del self.files[rank]
                continue
            members = rings.members_of(dump).values()
            if all(rank in each for each in members):
                rings.add(rank, dump)
            else:
                misfits.append((rank, sorted(set.intersection(*map(set, members)))))
        for file, own in [(self.files.pop(named), own) for named, own in misfits]:
            self._rename(rings, file, own)
        return rings

    def _rename(self, rings: Rings, file: DumpFile, own: list[int]) -> None:
        """Take a dump as that of the one rank that is in all of its groups, if no other is."""
        dump = self._load(file) if len(own) == 1 and own[0] not in rings.ranks and own[0] not in self.files else None
        if dump is None:
            self.flight.notes.append(f"{file.path.name} is left out: by its groups it is not of rank {file.rank}")
            return
        self.flight.notes.append(f"{file.path.name} is of rank {own[0]} by its groups, and is taken for it")
        self.files[own[0]] = file._replace(rank=own[0])
        rings.add(own[0], dump)

    def _load(self, file: DumpFile) -> dict[str, Any] | None:
        try:
            dump = load_dump(file)
            if dump["twice"]:
                self.twice[file.rank] = dump["twice"]
            return dump
        except DumpError as error:
            self.flight.refused.append({"path": str(file.path), "why": one_line(error)})
            return None

    def look(self, rank: int) -> list[dict[str, Any]]:
        """Return the entries of a rank that can be understood."""
        if rank not in self._seen:
            if len(self._seen) >= _MOST_SHOWN:
                self._seen.pop(next(iter(self._seen)))
            try:
                dump = load_dump(self.files[rank])
            except DumpError:
                dump = {"entries": []}
            self._seen[rank] = [entry for entry in dump["entries"] if _understood(entry)]
        return self._seen[rank]


def analyse(dumps: DumpSet, world: int = 0) -> Flight:
    """Return what the dumps of one set say.

    Args:
        world: how many ranks the run has; 0: not known.
    """
    flight = Flight(dumps.attempt, world)
    flight.notes += [f"not looked at: {text}" for text in dumps.left_out]
    reader = _Reader(dumps, flight)
    with bounded_memory():
        rings = reader.digest()
        foreign = strangers(rings)
        apart = {rank: by for rank, by in clocks_apart(rings).items() if rank not in foreign}
        usual = median([file.modified for file in dumps.files])
        for rank, by in apart.items():
            if by < -_OLDER_S and reader.files[rank].modified < usual - _OLDER_S:
                foreign[rank] = "it was written long before the others: of an earlier start"
        if foreign:
            rings = reader.digest(without=foreign)
        _tell_strangers(flight, foreign, {rank: by for rank, by in apart.items() if rank not in foreign})
        _conclude(flight, rings, reader, apart)
    return flight


def _tell_strangers(flight: Flight, foreign: dict[int, str], apart: dict[int, float]) -> None:
    for reason in sorted(set(foreign.values())):
        ranks = sorted(rank for rank, why in foreign.items() if why == reason)
        flight.notes.append(f"the dump of {said_of(ranks)} is left out: {reason}")
    if apart:
        most = max(apart.values(), key=abs)
        flight.notes.append(
            f"the clock of {said_of(sorted(apart))} is apart by {abs(most):.0f} s, or the dump is of another start: it is not used to name a culprit"
        )


def _conclude(flight: Flight, rings: Rings, reader: _Reader, apart: dict[int, float]) -> None:
    worlds = [ring.world for ring in rings.ranks.values() if ring.world]
    known = len(worlds[0]) if worlds else flight.world
    flight.world = known
    flight.judged = len(rings.ranks)
    flight.files = {rank: reader.files[rank] for rank in sorted(rings.ranks)}
    flight.apart = sorted(set(apart) & set(rings.ranks))
    ranks = worlds[0] if worlds else range(max(reader.highest, known - 1) + 1)
    flight.missing = sorted(set(ranks) - set(rings.ranks))
    flight.waiting = sum(bool(ring.waits) for ring in rings.ranks.values())
    odd = sum(ring.odd_entries for ring in rings.ranks.values())
    if odd:
        flight.notes.append(f"{odd} entries could not be understood and were left out")
    if reader.twice:
        count, whose = sum(reader.twice.values()), said_of(sorted(reader.twice))
        flight.notes.append(f"copies of records stand in the dumps of {whose}, and were left out: {count}")
    judge = FlightJudge(rings, len(ranks), reader.look)
    unnamed = [group for group in rings.groups if group.members is None]
    flight.members = {(group.name, group.desc): tuple(sorted(judge.members(group))) for group in unnamed}
    for verdict in judge.verdicts():
        if set(verdict.ranks) & set(apart):
            verdict = verdict._replace(kind=UNKNOWN, ranks=(), suspects=verdict.ranks)
        flight.findings.append(_finding(verdict, judge, reader))


def _finding(verdict: FlightVerdict, judge: FlightJudge, reader: _Reader) -> dict[str, Any]:
    group, sequence = verdict.group, verdict.sequence
    members = judge.members(group)
    stuck = judge.stuck.get(group.index)
    odd = {rank: judge.rings.calls[call] for rank, call in verdict.odd.items()}
    right = None
    if verdict.arrived is not None and sequence is not None:
        call = group.call_of(verdict.arrived, sequence)
        right = None if call is None else judge.rings.calls[call]
    expected = _line(reader, verdict.arrived, group.name, sequence)
    found = next(iter(verdict.ranks or verdict.suspects), None)
    own = _line(reader, found, group.name, sequence if found in verdict.odd else None)
    where = own if verdict.odd else expected or own
    about = {
        "kind": verdict.kind,
        "ranks": list(verdict.ranks),
        "suspects": list(verdict.suspects),
        "process_group": group.title,
        "members": len(members),
        "sequence": sequence,
        "where": where,
        "last": own if own != where else "",
        "expected": expected if verdict.odd else "",
        "call": right.op if right else "",
        "called": {str(rank): _called(call) for rank, call in list(odd.items())[:_MOST_SHOWN]},
        "should": _called(right) if right else "",
        "arrived": len(stuck.arrived) if stuck else 0,
        "why": verdict.why,
    }
    return {**about, "text": sentence(about), "next": next_of(about)}


def _called(call: Any) -> str:
    parts = [call.op]
    if call.inputs is not None:
        parts.append(f"of {sum(call.inputs)} {'/'.join(sorted(set(call.input_types or ())))}".rstrip())
    return " ".join(parts)


def _line(reader: _Reader, rank: int | None, group: str, sequence: int | None) -> str:
    """Return the line of the script from which a rank made a call, or its last one; empty where dumps do not say."""
    if rank is None or rank not in reader.files:
        return ""
    entries = reader.look(rank)
    if sequence is not None:
        entries = [
            one for one in entries if one["process_group"][0] == group and one.get("collective_seq_id") == sequence
        ]
    frames = entries[-1].get("frames") if entries else None
    if not isinstance(frames, list):
        return ""
    told = [frame for frame in frames if isinstance(frame, dict) and isinstance(frame.get("filename"), str)]
    own = [frame for frame in told if not any(part in frame["filename"] for part in _FOREIGN_CODE)]
    for frame in own or told:
        if isinstance(frame.get("line"), int):
            return one_line(f"{frame['filename']}:{frame['line']} ({frame.get('name')})", 300)
    return ""


def _understood(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    group, said = entry.get("process_group"), entry.get("profiling_name")
    return (
        isinstance(group, (list, tuple))
        and len(group) == 2
        and all(isinstance(one, str) for one in group)
        and isinstance(said, str)
        and isinstance(entry.get("collective_seq_id"), int)
    )
