"""The pulse files of a node's ranks: which process wrote each, and of which rank that is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, Mapping, NamedTuple, Optional

from cordee.machine import sysfs
from cordee.machine.processes.tree import is_same_process, tree_of
from cordee.systems.explain.node.patience import times_longer
from cordee.wire.pulse import DUMP, STACKS, SUFFIX, TRACE, TRACED, WAKE, Pulse, PulseReader

_TRIES = 5
_SILENT_S, _BEATS_S = 5.0, 2.5
_MOST_TIMES_SILENT = 1.5  # on a busy node; a thread that holds the interpreter shall be told before a hang is declared


class RankProcess:
    """One process of a rank that shows how far it is.

    Args:
        rank: the rank that the agent started.
        pid, start_ticks: of the process, as this node numbers it.
        reader: of its file.

    Attributes:
        pulse: as it was read last.
    """

    def __init__(self, rank: int, pid: int, start_ticks: int, reader: PulseReader, now: float) -> None:
        self.rank, self.pid, self.start_ticks, self._reader = rank, pid, start_ticks, reader
        self.path, self.pulse = reader.path, reader.read()
        self._beat_at = now

    def look(self, now: float) -> bool:
        """Read it; return whether its main thread has moved."""
        before, self.pulse = self.pulse, self._reader.read()
        if self.pulse.beats != before.beats:
            self._beat_at = now
        return self.pulse.moves != before.moves

    def beat_age_s(self, now: float) -> float:
        """Return for how long its interpreter has run no other thread than the one that holds it."""
        return now - self._beat_at

    def is_silent(self, now: float) -> bool:
        """Return whether a thread holds its interpreter, and its others do not only wait for the processor."""
        age_s = self.beat_age_s(now)
        return age_s > _SILENT_S and age_s > _SILENT_S * min(_MOST_TIMES_SILENT, times_longer())

    def computes(self, now: float) -> bool:
        """Return whether what it uses of the processor is work: its interpreter runs, and it waits in no collective, where it might spin."""
        waits = any(group.enqueued > max(group.completed, 0) for group in self.pulse.groups)
        return not waits and self.beat_age_s(now) < _BEATS_S

    def want(self, window: int) -> None:
        """Have what it does with its time looked at, for a window of this number; 0: no longer."""
        self._reader.want(window)

    def ask_dump(self) -> int:
        """Ask it for the Flight Recorder's dump, at once; return the number that it says when the dump is there."""
        number = (self._reader.read().dumped + 1) % (1 << 32)
        self._reader.ask(number)
        return number

    def unseen(self, seconds: float) -> None:
        """Nobody could see it for so long: that time does not count."""
        self._beat_at += seconds

    def marks(self) -> Iterator[tuple[tuple[int, str], int]]:
        """Yield how far it is, by kinds of progress."""
        yield (self.pid, ""), self.pulse.optimizer_steps
        for group in self.pulse.groups:
            yield (self.pid, f"group {group.name}"), group.enqueued + group.completed + 2

    def close(self) -> None:
        """Remove its files: the process is gone."""
        self._reader.close()
        remove_pulse(self.path)


class _Namesake(NamedTuple):
    """A process that goes by a pid in its own PID namespace."""

    rank: int
    pid: int
    start_ticks: int


class NodePulses:
    """All pulse files of one attempt on this node.

    Args:
        folder: where they lie.
        attempt: its number.
    """

    def __init__(self, folder: Path, attempt: int) -> None:
        self._folder, self._begin = folder, f"{attempt}-"
        self._known: dict[str, RankProcess] = {}
        self._tries: dict[str, int] = {}

    def look(self, roots: Mapping[int, int], now: float) -> None:
        """Find new files, and forget those of processes that are gone.

        Args:
            roots: main pid of each rank.
            now: the time.
        """
        for name, process in list(self._known.items()):
            if process.rank not in roots or (
                process.beat_age_s(now) > 1.5 and not is_same_process(process.pid, process.start_ticks)
            ):
                self._known.pop(name).close()
        names = set(_names(self._folder, self._begin)) - self._known.keys()
        fresh = [name for name in names if self._tries.get(name, 0) < _TRIES]
        if fresh:
            self._take(fresh, _by_own_pid(roots), now)

    def of_rank(self, rank: int) -> list[RankProcess]:
        """Return the processes of a rank: an elastic launcher's workers alone where there are any."""
        found = [process for process in self._known.values() if process.rank == rank]
        return [process for process in found if process.pulse.elastic] or found

    def close(self) -> None:
        """Let go of all files and remove them: the attempt is over."""
        for process in self._known.values():
            process.close()
        self._known.clear()
        for name in _names(self._folder, self._begin):
            remove_pulse(os.path.join(self._folder, name))

    def _take(self, names: list[str], processes: Mapping[int, list[_Namesake]], now: float) -> None:
        for name in names:
            self._tries[name] = self._tries.get(name, 0) + 1
            try:
                reader = PulseReader(os.path.join(self._folder, name))
            except (OSError, ValueError):
                continue
            found = _whose(reader.read(), processes)
            if found is None:
                reader.close()
                if self._tries[name] == _TRIES:
                    remove_pulse(reader.path)
                continue
            self._known[name] = RankProcess(*found, reader, now)


def trainers(rank: int, processes: list[RankProcess]) -> dict[int, RankProcess]:
    """Return the process that trains by its rank: that of the agent, or its own where several train, as with torchrun and `mp.spawn`."""
    several = len({process.pulse.rank for process in processes if process.pulse.groups}) > 1
    if several:
        processes = [process for process in processes if process.pulse.groups]
    owns = {process: several or process.pulse.elastic for process in processes}
    return {process.pulse.rank if owns[process] else rank: process for process in sorted(processes, key=_weight)}


def _weight(process: RankProcess) -> tuple[int, int, int]:
    """Return what tells the process that trains from others of the same rank that have imported torch too."""
    return len(process.pulse.groups), process.pulse.optimizer_steps, process.pulse.beats


def remove_pulse(path: str) -> None:
    """Remove a pulse file and what lies beside it."""
    for ending in (SUFFIX, STACKS, DUMP, WAKE, TRACED, TRACE, f"{TRACE}.tmp"):
        try:
            os.unlink(path[: -len(SUFFIX)] + ending)
        except OSError:
            continue


def _names(folder: Path, begin: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith(begin) and name.endswith(SUFFIX)]
    except OSError:
        return []


def _by_own_pid(roots: Mapping[int, int]) -> dict[int, list[_Namesake]]:
    """Return the processes of all ranks by the pid that each has for itself, which a PID namespace makes another one."""
    found: dict[int, list[_Namesake]] = {}
    for rank, root in roots.items():
        for process in tree_of(root).values():
            found.setdefault(own_pid(process.pid), []).append(_Namesake(rank, process.pid, process.start_ticks))
    return found


def own_pid(pid: int) -> int:
    """Return the pid by which a process knows itself."""
    for line in (sysfs.text(f"/proc/{pid}/status", 8192) or "").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _whose(pulse: Pulse, processes: Mapping[int, list[_Namesake]]) -> Optional[_Namesake]:
    """Return the process that writes a pulse; of several that go by one pid, that of the rank which it says."""
    found = processes.get(pulse.pid, [])
    said = [process for process in found if process.rank == pulse.rank]
    return found[0] if len(found) == 1 else said[0] if len(said) == 1 else None
