"""What a trial says while it runs, and how good it was: the agent's end of its channel, or the file that it leaves."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence

from cordee.machine.foreign_files import read_json
from cordee.systems.trials.node.rungs import Rungs
from cordee.wire.channel import ChannelReader, create_channel

_MOST_BYTES = 1 << 20
Reached = tuple[int, Optional[float]]


class TrialReport:
    """One trial's channel.

    Args:
        path: of its file, which is made.
        metrics: the names of what counts, the first goal's first.
        rungs: where the first one is compared with other trials'; None: nowhere.

    Attributes:
        values: the last one of each, None before the first. NaN and infinity are kept.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, path: Path, metrics: Sequence[str], rungs: Optional[Rungs] = None) -> None:
        self.path = path
        self.values: dict[str, Optional[float]] = dict.fromkeys(metrics)
        self._rungs, self._rung, self._logged = rungs, 0, 0
        create_channel(path)
        self._reader = ChannelReader(path)

    def read(self) -> list[Reached]:
        """Take what has been logged since the last time; returns the rungs that it came to, with its value there."""
        reached: list[Reached] = []
        while True:
            events, cursor = self._reader.read()
            for _, _, step, values in events:
                for name in self.values:
                    self.values[name] = values.get(name, self.values[name])
                if self._rungs is not None and next(iter(self.values)) in values:
                    reached += self._compared(step)
            self._reader.told()
            self._reader.acknowledge(cursor)
            if not events:
                return reached

    def _compared(self, step: Optional[int]) -> list[Reached]:
        assert self._rungs is not None
        self._logged += 1
        there, found = self._logged if step is None else step, []
        while there >= self._rungs.step_of(self._rung):
            value = next(iter(self.values.values()))
            found.append((self._rung, value if value is not None and math.isfinite(value) else None))
            self._rung += 1
        return found

    def close(self) -> Optional[list[float]]:
        """Take the rest, and return the values where all are finite numbers."""
        self.read()
        self._reader.close()
        with suppress(OSError):
            os.unlink(self.path)
        return finite(self.values.values())


class ResultFile(NamedTuple):
    """The file that a trial leaves, and what was there before it began; None: nothing."""

    path: Path
    before: Optional[tuple[int, ...]]

    def values(self, metrics: Sequence[str]) -> Optional[list[float]]:
        """Return the values in it where it is new and has finite numbers for all metrics; it may be a number alone for one."""
        if _stamp(self.path) in (None, self.before):
            return None
        try:
            found: Any = read_json(self.path, self.path.parent, _MOST_BYTES)
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict):
            found = {metrics[0]: found} if len(metrics) == 1 else {}
        return finite([found.get(name) for name in metrics])


def result_file(path: Path) -> ResultFile:
    """Return a trial's file, before the trial begins."""
    return ResultFile(path, _stamp(path))


def _stamp(path: Path) -> Optional[tuple[int, ...]]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def finite(values: Any) -> Optional[list[float]]:
    """Return numbers where all are finite; None else."""
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    all_there = len(numbers) == len(list(values)) and all(math.isfinite(number) for number in numbers)
    return numbers if all_there else None
