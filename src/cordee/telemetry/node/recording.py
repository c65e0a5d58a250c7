"""A recording: what `cordee record` leaves in a folder. Telemetry is in a run's format, so `cordee.open_run` reads it.

```
DIR/
  recorders/start.json what was started: processes that were started together share one recording, others are refused
  recorders/<n>.json   one document per sampler: a node in a step; n is its own and is the epoch of its block log
  telemetry/           blocks-<n>-<part>.log of all of them; sealed series, once all have ended
```
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional, Sequence

from cordee.core.errors import RunFolderError
from cordee.core.words import signal_name
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.state import NodeState, RankState, RunState
from cordee.telemetry.node.blocklog import list_parts

SCHEMA = "cordee.recording/1"
DEFAULT_FOLDER = "recordings"
_MOST_RECORDERS = 1_000_000
_START = "start.json"
_READ_S = 2.0
# A sampler flushes each second, or at each sample; the clocks of file servers may be a little off.
_SILENT_S = 60.0


class AnotherRecording(RunFolderError):
    """The folder holds what was started at another time or by somebody else."""

    kind = "another_recording"


@dataclass
class RecordedRank:
    """One process that was recorded, as it was started on its node.

    Attributes:
        rank: its global rank (0 for a process that is no rank); `attempt`: how often its launcher had started it before.
        argv: its command.
        devices: UUIDs of the GPUs that are its own; None: not known, and not guessed.
        cpus: the CPUs that it may use.
        started_at, ended_at: UTC epoch seconds; None: not yet, or not seen.
        exit_code, signal: how it ended; both None where nobody could see it.
    """

    rank: int
    pid: int
    argv: list[str]
    started_at: float
    attempt: int = 0
    local_rank: Optional[int] = None
    devices: Optional[list[str]] = None
    cpus: list[int] = field(default_factory=list)
    ended_at: Optional[float] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None


@dataclass
class Recorder:
    """One sampler: what it was, where, and what it saw; `recorders/<number>.json`.

    Attributes:
        node: as the scheduler names it, else the host's name.
        job, step: the scheduler's, empty outside of one; the samplers of one job on many nodes share them.
        world_size: ranks of the step over all nodes, None where not told.
        heard_at: UTC epoch seconds of the last sign of life.
        ended_at: when it closed the recording in order; None: it runs, or was killed.
        sources: names of what was sampled; `refused` says of each source that was tried in vain why.
        remarks: sentences that the reader of a score should know.
    """

    number: int
    node: str
    host: str
    pid: int
    started_at: float
    interval_s: float
    version: str
    job: str = ""
    step: str = ""
    world_size: Optional[int] = None
    heard_at: float = 0.0
    ended_at: Optional[float] = None
    sources: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    ranks: list[RecordedRank] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return it as its file has it."""
        return {"schema": SCHEMA, **asdict(self)}


def recorders_folder(folder: RunFolder) -> Path:
    """Return where the documents of the samplers lie."""
    return folder.root / "recorders"


def is_recording(folder: RunFolder) -> bool:
    """Return whether this folder holds a recording."""
    return recorders_folder(folder).is_dir()


def is_recorded(folder: RunFolder) -> bool:
    """Return whether this folder holds a recording and no run."""
    return is_recording(folder) and not folder.journal.is_dir()


def recorded_state(folder: RunFolder) -> Optional[RunState]:
    """Return the state of a recording as it is now; None: the folder holds none, or is a run's."""
    return recording_state(folder, read_recorders(folder)[0]) if is_recorded(folder) else None


def enter_recording(folder: RunFolder, key: str) -> bool:
    """Make a folder the recording of one start, or join it, and return whether it is new.

    Args:
        key: the same for all processes that were started together, and for no others.

    Raises:
        AnotherRecording: it holds the recording of another start.
        RunFolderError: it cannot be written, or is a run's folder.
    """
    place = recorders_folder(folder)
    if not place.is_dir() and folder.exists():
        raise RunFolderError(
            "this is the folder of a run", given=str(folder.root), next="choose another place with -o DIR"
        )
    try:
        for path in (folder.root, place, folder.telemetry):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(place / _START, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            known = _started(place / _START)
        else:
            try:
                if not recorder_numbers(folder):  # those of samplers come after
                    os.write(descriptor, json.dumps({"schema": SCHEMA, "key": key, "time": time.time()}).encode())
                    return True
                known = "made or imported, with no start of its own"
                os.unlink(place / _START)
            except OSError:
                os.unlink(place / _START)  # empty, it would keep everybody from this folder
                raise
            finally:
                os.close(descriptor)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if known != key:
        raise AnotherRecording(
            "this folder holds another recording",
            given=f"{folder.root} ({known or 'unreadable'})",
            allowed="a new folder, or that of processes started together with this one",
            next="choose another place with -o DIR",
        )
    return False


def claim_number(folder: RunFolder, first: Optional[int] = None, stride: int = 1) -> int:
    """Make the folders of a recording where they are missing and take a number that no other sampler has.

    Samplers on many nodes may call it at once: a number is a file that only one of them can make.

    Args:
        first, stride: the numbers of this node, of which the first free one is taken, so that a thousand nodes need not
            look at each other's; None: the first number after all others.

    Raises:
        RunFolderError: the folder cannot be written.
    """
    place = recorders_folder(folder)
    try:
        for path in (folder.root, place, folder.telemetry):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = max(recorder_numbers(folder), default=0) + 1 if first is None else first
        while number < _MOST_RECORDERS:
            if _claimed(place, number):
                return number
            number += stride
    except OSError as error:
        raise _unwritable(folder, error) from error
    raise RunFolderError("this folder holds too many recordings", given=str(folder.root), next="choose another with -o")


def write_recorder(folder: RunFolder, recorder: Recorder) -> None:
    """Replace a sampler's document, at once.

    Raises:
        RunFolderError: the disk refuses.
    """
    write_atomically(recorders_folder(folder) / f"{recorder.number}.json", json.dumps(recorder.document()))


def read_recorders(folder: RunFolder) -> tuple[list[Recorder], list[str]]:
    """Return the samplers' documents by number, and a sentence for each file that holds none (its sampler was killed)."""
    found, remarks = [], []
    for number in recorder_numbers(folder):
        try:
            found.append(read_recorder(folder, number))
        except ValueError as error:
            remarks.append(str(error))
    return found, remarks


def recorder_numbers(folder: RunFolder, first: Optional[int] = None, stride: int = 1) -> list[int]:
    """Return the numbers that samplers have taken, ascending; with `first` and `stride` those of one node."""
    if first is not None:
        found = []
        while (recorders_folder(folder) / f"{first}.json").exists():
            found.append(first)
            first += stride
        return found
    return sorted(int(path.stem) for path in recorders_folder(folder).glob("*.json") if path.stem.isdigit())


def read_recorder(folder: RunFolder, number: int) -> Recorder:
    """Return one sampler's document.

    Raises:
        ValueError: the file holds none; the message is a sentence for the reader of a score.
    """
    path = recorders_folder(folder) / f"{number}.json"
    try:
        document = read_json(path, folder.root)
        if document.get("schema") == SCHEMA:
            known = {name: document[name] for name in Recorder.__dataclass_fields__ if name in document}
            ranks = [
                RecordedRank(**{name: rank[name] for name in RecordedRank.__dataclass_fields__ if name in rank})
                for rank in known.pop("ranks", [])
            ]
            return Recorder(**known, ranks=ranks)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path.name} says nothing of its sampler, which was killed or still starts ({error})"
        ) from error
    raise ValueError(f"{path.name} is of {document.get('schema')!r}, not {SCHEMA}: it was left out")


def all_ended(folder: RunFolder, recorders: Sequence[Recorder]) -> bool:
    """Return whether no sampler writes any more: each closed the recording, or has been silent for a minute (killed)."""
    open_ones = [recorder for recorder in recorders if recorder.ended_at is None]
    if not open_ones:
        return True
    heard, now = _heard(folder, open_ones), time.time()
    return all(now - heard[one.number] > max(_SILENT_S, 10 * one.interval_s) for one in open_ones)


def _heard(folder: RunFolder, recorders: Sequence[Recorder]) -> dict[int, float]:
    """Return when each sampler ended, or gave its last sign of life, by its number."""
    found = {one.number: one.ended_at or one.heard_at or one.started_at for one in recorders}
    for epoch, _, path in list_parts(folder.telemetry):
        with suppress(OSError, KeyError):
            found[epoch] = max(found[epoch], path.stat().st_mtime)
    return found


def recording_state(folder: RunFolder, recorders: Sequence[Recorder]) -> RunState:
    """Return the state of what was recorded: running, finished, failed, or `unknown` where nobody saw how it ended."""
    newest: dict[int, RecordedRank] = {}
    node_of: dict[int, str] = {}
    for recorder in recorders:
        for rank in recorder.ranks:
            if rank.rank not in newest or rank.attempt >= newest[rank.rank].attempt:
                newest[rank.rank], node_of[rank.rank] = rank, recorder.node
    ranks = [newest[number] for number in sorted(newest)]
    state = RunState(run=folder.id, ranks=[_rank_state(rank, node_of[rank.rank]) for rank in ranks])
    state.nodes = [NodeState(node, role="active") for node in dict.fromkeys(one.node for one in recorders)]
    for rank in ranks:
        state.node(node_of[rank.rank]).ranks.append(rank.rank)
    state.world_size = max((one.world_size or 0 for one in recorders), default=0) or len(ranks)
    state.job = next((one.job for one in recorders if one.job), None)
    began = [rank.started_at for rank in ranks] or [one.started_at for one in recorders]
    state.submitted_at = state.started_at = min(began, default=None)
    codes = [128 + rank.signal if rank.signal else rank.exit_code for rank in ranks if rank.ended_at is not None]
    bad = [code for code in codes if code]
    ended = all_ended(folder, recorders)
    if bad:
        state.state, state.exit_code = "failed", max(bad)
    elif ranks and len(codes) == len(ranks) and all(code == 0 for code in codes):
        state.state, state.exit_code = "finished", 0
    elif recorders and not ended:
        state.state = "running"
    else:
        state.state, state.reason = "unknown", "the sampler did not see how the command ended"
    state.text = state.reason if state.exit_code is None else f"exit code {state.exit_code}"
    if ended or len(codes) == len(ranks) > 0:
        ends = [rank.ended_at for rank in ranks if rank.ended_at is not None]
        state.ended_at = max(ends or _heard(folder, recorders).values(), default=None)
    return state


def _rank_state(rank: RecordedRank, node: str) -> RankState:
    code = rank.exit_code
    status = "running" if rank.ended_at is None else "failed" if code or rank.signal else "exited"
    return RankState(rank.rank, node, status, rank.pid, code, signal_name(rank.signal) if rank.signal else None)


def _claimed(place: Path, number: int) -> bool:
    try:
        os.close(os.open(place / f"{number}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _started(path: Path) -> Optional[str]:
    """Return the key of a recording; whoever makes it may still be writing it."""
    deadline = time.monotonic() + _READ_S
    while True:
        try:
            key = read_json(path, path.parent)["key"]
            return key if isinstance(key, str) else None
        except (ValueError, KeyError, TypeError):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)


def _unwritable(folder: RunFolder, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"cannot write the recording: {error.strerror}",
        given=str(folder.root),
        allowed="a folder on a disk with space that you may write",
        next="choose another place with -o DIR",
    )
