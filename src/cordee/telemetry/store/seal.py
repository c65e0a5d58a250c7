"""Sealing: closed parts of the block log become sharded Zarr; interrupted at any moment, the block log stays the truth.

Parts are taken in order, a few at a time. Each turn writes their samples into the arrays (doing so twice changes nothing)
and then replaces, at once, the commit that says which parts are in. Nothing is deleted here but by `drop_sealed_parts`,
and only what the journal calls sealed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cordee.core.errors import CordeeError, RunFolderError
from cordee.machine.foreign_files import open_folder
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.runs.turn import turn
from cordee.telemetry.node.blocklog import list_parts, merge_facts
from cordee.telemetry.store.grids import LEVELS_S, TURN_SLOTS, Axes, rollup
from cordee.telemetry.store.model import LoggedEvent
from cordee.telemetry.store.sealed import (
    STORE,
    Commit,
    SealedGroup,
    read_commit,
    read_events,
    read_facts,
    write_commit,
    write_events,
    write_facts,
    write_steps,
)
from cordee.telemetry.store.series import Names, stream_of, table_of, thinned
from cordee.telemetry.store.unsealed.tail import TailPart, is_sealed, take_rows
from cordee.telemetry.store.unsealed.window import Window

_TURN_BYTES = 256 << 20
_LOCK = ".sealing"


def seal(folder: str | Path, *, final: bool = False) -> float | None:
    """Seal the closed parts of a run, all parts with `final`, and return the time up to which it is sealed.

    The newest part of the newest epoch is still written to and is closed only when the run has ended (`final`). While
    another process seals the same run nothing is done; nor in the folder of another user, whose samples are read as they are.

    Args:
        folder: the run's folder.

    Returns:
        UTC epoch seconds of the newest sealed sample; None when nothing is sealed.

    Raises:
        RunFolderError: the folder cannot be read or written, or is full.
    """
    telemetry = RunFolder(folder).telemetry
    try:
        if not _is_own(Path(folder), telemetry):
            return read_commit(telemetry).sealed_until
        commit = read_commit(telemetry)
        if not _waiting(telemetry, commit, final):
            return commit.sealed_until
        with turn(telemetry, _LOCK) as mine:
            commit = read_commit(telemetry)
            if mine is not None:
                _remove_leftovers(telemetry)
                for some in _turns(_waiting(telemetry, commit, final)):
                    mine.touch()
                    _seal_parts(telemetry, commit, some)
            return commit.sealed_until
    except OSError as error:
        raise RunFolderError(
            f"cannot seal the telemetry: {error.strerror or error}",
            given=str(telemetry),
            allowed="a folder that exists, on a disk with space, that you may write",
            next="make room and seal again; nothing is lost meanwhile",
        ) from error


def _waiting(telemetry: Path, commit: Commit, final: bool) -> list[Path]:
    """Return the parts that are closed and not sealed."""
    paths = [path for _, _, path in list_parts(telemetry)]
    return [path for path in (paths if final else paths[:-1]) if not is_sealed(path, commit.parts)]


def _is_own(folder: Path, telemetry: Path) -> bool:
    """Return whether this is a run of one's own, whose telemetry nobody led elsewhere."""
    descriptor = open_folder(telemetry, folder)
    try:
        return os.stat(folder).st_uid == os.fstat(descriptor).st_uid == os.geteuid()
    finally:
        os.close(descriptor)


def drop_sealed_parts(folder: str | Path) -> int:
    """Delete the parts that the journal calls sealed and return how many; the one still written to stays.

    Raises:
        RunFolderError: the folder cannot be read or written.
    """
    run = RunFolder(folder)
    state = replay(read_journal(run.journal), run.id)
    if state.sealed_until is None:
        return 0
    commit = read_commit(run.telemetry)
    paths = [path for _, _, path in list_parts(run.telemetry)]
    dropped = 0
    for path in paths if state.ended else paths[:-1]:
        if is_sealed(path, commit.parts) and (commit.parts[path.name]["until"] or 0.0) <= state.sealed_until:
            path.unlink(missing_ok=True)
            dropped += 1
    return dropped


def thin(folder: str | Path, keep_s: float) -> int:
    """Leave of sealed samples older than `keep_s` only what was made of each minute, and return how many files went.

    Groups whose samples are no more often than that keep all. Readers find no samples there, and miss none.

    Raises:
        RunFolderError: the folder cannot be read or written.
    """
    telemetry = RunFolder(folder).telemetry
    with turn(telemetry, _LOCK) as mine:
        commit = read_commit(telemetry)
        if mine is None or commit.sealed_until is None or not _is_own(Path(folder), telemetry):
            return 0
        old: dict[str, Path] = {}
        for name, axes in commit.groups.items():
            if LEVELS_S[-1] in axes.levels:
                group = SealedGroup(telemetry, name, axes)
                old.update(group.older(math.floor((commit.sealed_until - keep_s) / axes.cadence)))
        if old:
            commit.shards = [shard for shard in commit.shards if shard not in old]
            write_commit(telemetry, commit)  # before they go: what is gone and said to be there would be missed
        for path in old.values():
            path.unlink(missing_ok=True)
        return len(old)


def _turns(paths: list[Path]) -> Iterator[list[Path]]:
    turn: list[Path] = []
    size = 0
    for path in paths:
        turn.append(path)
        size += path.stat().st_size
        if size >= _TURN_BYTES:
            yield turn
            turn, size = [], 0
    if turn:
        yield turn


def _seal_parts(telemetry: Path, commit: Commit, paths: list[Path]) -> None:
    (telemetry / STORE).mkdir(mode=0o700, exist_ok=True)
    before = _files(telemetry / STORE)
    sizes = {path: path.stat().st_size for path in paths}  # before reading: a part that grows meanwhile is sealed again
    windows: dict[str, Window] = {}
    known: dict[bytes, dict[str, Any]] = {}
    parts, times = [TailPart(path, known) for path in paths], []
    for part in parts:
        part.read()
        times.append(take_rows(windows, part))
    for name, window in windows.items():
        moments = [of_part[name] for of_part in times if name in of_part]
        _seal_group(telemetry, commit, name, window, np.concatenate(moments))
    _seal_events(telemetry, commit, [event for part in parts for event in part.events])
    _seal_facts(telemetry, [facts for part in parts for facts in part.facts])
    for part, of_part in zip(parts, times, strict=True):
        commit.parts[part.path.name] = {"size": sizes[part.path], "until": _newest(part, of_part, commit)}
        commit.dropped_events += part.dropped_events
        commit.skipped_bytes += part.skipped_bytes
        commit.malformed_records += part.malformed_records
    untils = (commit.sealed_until, *(commit.parts[path.name]["until"] for path in paths))
    commit.sealed_until = max((until for until in untils if until is not None), default=None)
    _make_durable(telemetry / STORE, before)
    write_commit(telemetry, commit)


def _newest(part: TailPart, times: dict[str, np.ndarray], commit: Commit) -> float | None:
    newest = [max(event.time for event in part.events)] if part.events else []
    for name, moments in times.items():
        axes = commit.groups[name]
        slots = np.floor(moments / axes.cadence + 0.5)
        inside = moments[(slots >= axes.origin) & (slots < axes.stop)]
        newest += [float(inside.max())] if len(inside) else []
    return max(newest, default=None)


def _seal_group(telemetry: Path, commit: Commit, name: str, window: Window, times: np.ndarray) -> None:
    if not len(times):
        return
    old = commit.groups.get(name)
    if old is None:
        axes = Axes(window.cadence)
        axes.settle(times, np.ones(len(times), dtype=np.int64))
    else:
        axes = Axes(**{**vars(old), "devices": list(old.devices), "metrics": list(old.metrics)})
    axes.extend([{"devices": list(window.devices), "metrics": list(window.metrics.values())}])
    slots = np.floor(times / axes.cadence + 0.5).astype(np.int64)
    slots = slots[(slots >= axes.origin) & (slots < axes.end)]
    axes.outside += len(times) - len(slots) + window.refused
    group = SealedGroup(telemetry, name, axes)
    if len(slots):
        axes.widen(int(slots.min()), int(slots.max()) + 1)
    for at in np.unique(slots // TURN_SLOTS).tolist():
        inside = slots[slots // TURN_SLOTS == at]
        written = _seal_window(group, old, window, int(inside.min()), int(inside.max()) + 1)
        commit.shards = sorted({*commit.shards, *written})
    group.write_coordinates()
    commit.groups[name] = axes


def _seal_window(group: SealedGroup, old: Axes | None, window: Window, low: int, high: int) -> list[str]:
    """Write the samples of the slots [low, high), which lie in one shard, and the rollups over them; returns the shards."""
    axes = group.axes
    unit = max(axes.levels.values(), default=1)
    first, stop = low // unit * unit, -(-high // unit) * unit
    values = np.full((len(axes.metrics), stop - first, len(axes.devices)), np.nan, dtype=np.float32)
    if old is not None and first < old.stop and stop > old.first:
        known = SealedGroup(group.telemetry, group.name, old).read(range(len(old.metrics)), first, stop)
        values[: known.shape[0], :, : known.shape[2]] = known
    columns = {device: at for at, device in enumerate(axes.devices)}
    window.paint(values, first, axes.names, np.array([columns[device] for device in window.devices], dtype=np.int64))
    written = group.write(values, first)
    for level, factor in axes.levels.items():
        written += group.write_level(level, rollup(_whole_bins(values, factor), factor), first // factor)
    return written


def _whole_bins(values: np.ndarray, factor: int) -> np.ndarray:
    spare = -values.shape[1] % factor
    return np.pad(values, ((0, 0), (0, spare), (0, 0)), constant_values=np.nan) if spare else values


def _seal_events(telemetry: Path, commit: Commit, events: list[LoggedEvent]) -> None:
    unique = {(event.attempt, event.rank, event.offset): event for event in reversed(events)}
    known: set[tuple[int, int, int]] = set()
    if any(offset <= _watermark(commit, attempt, stream_of(rank, offset)) for attempt, rank, offset in unique):
        columns = read_events(telemetry, ("attempt", "rank", "offset"), 0, commit.event_rows)
        known = {(int(attempt), int(rank), int(offset)) for attempt, rank, offset in columns.T}
    fresh = [event for key, event in unique.items() if key not in known]
    for event in fresh:
        marks = commit.watermarks.setdefault(str(event.attempt), {})
        stream = stream_of(event.rank, event.offset)
        marks[stream] = max(marks.get(stream, -1), event.offset)
    names = Names(commit.event_names)
    table = table_of(fresh, names)
    commit.event_names = list(names)
    commit.capped_values += names.capped_values
    if table.shape[1]:
        table = table[:, np.lexsort((table[3], table[2], table[1], table[0]))]
        write_events(telemetry, table, commit.event_rows)
        commit.event_rows += table.shape[1]
    steps = thinned(table)
    if commit.step_rows is not None and steps.shape[1]:
        write_steps(telemetry, steps, commit.step_rows)
        commit.step_rows += steps.shape[1]


def _seal_facts(telemetry: Path, news: list[dict[str, Any]]) -> None:
    """Add facts to those that are sealed; doing so again after an interruption changes nothing."""
    if news:
        known = read_facts(telemetry)
        for facts in news:
            merge_facts(known, facts)
        write_facts(telemetry, known)


def _watermark(commit: Commit, attempt: int, stream: str) -> int:
    return commit.watermarks.get(str(attempt), {}).get(stream, -1)


def _files(store: Path) -> dict[str, tuple[int, int, int]]:
    """Return what tells the state of each file of the store: inode, size, time of change."""
    found = {}
    for folder, _, files in os.walk(store):
        for name in files:
            path = os.path.join(folder, name)
            status = os.stat(path)
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _make_durable(store: Path, before: dict[str, tuple[int, int, int]]) -> None:
    """Bring to the disk what is not as it was before, whatever clock dates it, ere the commit says that it is there."""
    changed = [path for path, state in _files(store).items() if before.get(path) != state]
    for path in [*changed, *{os.path.dirname(path) for path in changed}]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_leftovers(telemetry: Path) -> None:
    """Remove the half-written files of a sealing that was killed."""
    for pattern in ("**/*.partial", ".zarr.json.*"):
        for path in (telemetry / STORE).glob(pattern):
            path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Seal one run and print `{"sealed_until": seconds or null, "capped_values": count}`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cordee.telemetry.store.seal", description="Seal a run's telemetry."
    )
    parser.add_argument("folder", help="the run's folder")
    parser.add_argument("--final", action="store_true", help="the run has ended: seal the newest part too")
    parser.add_argument("--drop", action="store_true", help="delete the parts that the journal says are sealed instead")
    parser.add_argument("--keep", type=float, metavar="SECONDS", help="with --drop: thin the samples that are older")
    parsed = parser.parse_args(arguments)
    try:
        if parsed.drop:
            dropped = {"dropped_parts": drop_sealed_parts(parsed.folder)}
            thinned = {} if parsed.keep is None else {"thinned_files": thin(parsed.folder, parsed.keep)}
            print(json.dumps({**dropped, **thinned}))
            return 0
        until = seal(parsed.folder, final=parsed.final)
        capped = read_commit(RunFolder(parsed.folder).telemetry).capped_values
        print(json.dumps({"sealed_until": until, "capped_values": capped}))
    except CordeeError as error:
        print(json.dumps(error.document()))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
