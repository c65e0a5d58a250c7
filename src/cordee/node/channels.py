"""The channels of a node's ranks: events are read ahead, and forgotten only when the supervisor has stored them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Optional

from cordee.client.channel import ChannelReader, create_channel
from cordee.node.data_positions import DataPositions
from cordee.node.logged_names import LoggedNames
from cordee.node.name_cap import NameCap
from cordee.node.placing import split_places
from cordee.runs.blocklog import encode_events

_EVENTS_PER_READ = 5000


class RankChannels:
    """All channel files of one node of one run, also those that an earlier, killed agent left.

    Args:
        run: the run id.
        node: the node's name.

    Attributes:
        data: how far the ranks are in their data sets.
    """

    def __init__(self, run: str, node: str) -> None:
        self.folder = _memory_folder() / f"cordee-{os.getuid()}" / run / node
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._node = node
        self._open: dict[tuple[int, int], ChannelReader] = {}
        self._reported_drops: dict[tuple[int, int], int] = {}
        self._cap = NameCap()
        self._closed: set[tuple[int, int]] = set()
        self._names = LoggedNames(node)
        self._first: list[bytes] = []
        self.data = DataPositions()
        for path in sorted(self.folder.glob("*-*.channel")):
            attempt, _, rank = path.stem.partition("-")
            if attempt.isdigit() and rank.isdigit():
                self._add(int(attempt), int(rank), path)
                self._closed.add((int(attempt), int(rank)))

    def create(self, attempt: int, rank: int) -> str:
        """Make the channel of a rank that is about to start and return its path."""
        path = self.folder / f"{attempt}-{rank}.channel"
        create_channel(path)
        self._add(attempt, rank, path)
        return str(path)

    def close(self, attempt: int, rank: int) -> None:
        """Say that the rank has ended: its file goes when all that it holds is stored."""
        if (attempt, rank) in self._open:
            self._closed.add((attempt, rank))

    def say_first(self, records: bytes) -> None:
        """Put whole records before what the ranks say from now on."""
        self._first.append(records)

    def read(self) -> tuple[bytes, dict[str, int], dict[int, int]]:
        """Return new events as encoded records, the cursor to acknowledge per channel, and each rank's current step."""
        records, cursors, steps = self._first, {}, {}
        self._first = []
        for (attempt, rank), reader in self._open.items():
            before = reader.cursor
            events, cursor = reader.read(_EVENTS_PER_READ)
            dropped = reader.dropped
            news = dropped - self._reported_drops.get((attempt, rank), 0)
            self.data.take(attempt, rank, events)
            events, places = split_places(self._node, rank, attempt, events)
            records.append(places)
            events = self._cap.keep((attempt, rank), events)
            if events or news:
                records.append(encode_events(self._node, rank, attempt, news, events))
                self._reported_drops[attempt, rank] = dropped
            if cursor != before:
                cursors[f"{attempt}-{rank}"] = cursor
                self._names.declared(reader.declared())
            if (attempt, rank) not in self._closed and reader.step is not None:
                steps[rank] = reader.step
        records.append(self._names.news())
        return b"".join(records), cursors, steps

    def acknowledge(self, cursors: dict[str, int]) -> None:
        """Free what the supervisor has stored; drained channels of ended ranks are removed."""
        for name, cursor in cursors.items():
            attempt, _, rank = name.partition("-")
            key = (int(attempt), int(rank))
            reader = self._open.get(key)
            if reader is not None:
                reader.acknowledge(cursor)
        self._remove_drained()

    @property
    def total(self) -> Optional[int]:
        """How many steps the training has, if a rank said so."""
        return max((reader.total or 0 for reader in self._open.values()), default=0) or None

    @property
    def capped_values(self) -> list[tuple[int, int]]:
        """Ranks that use too many metric names, and how many values were left out of each."""
        found: dict[int, int] = {}
        for (_, rank), count in self._cap.left_out.items():
            found[rank] = found.get(rank, 0) + count
        return list(found.items())

    def request_stop(self, attempt: int) -> None:
        """Ask the ranks of an attempt that call `cordee.stopping` to say which step they are at."""
        for key, reader in self._open.items():
            if key[0] == attempt and key not in self._closed:
                reader.request_stop()

    def stop_answers(self, attempt: int) -> dict[int, Optional[int]]:
        """Return, for each running rank that uses `cordee.stopping`, the step where it waits (None: not there yet)."""
        return {
            rank: reader.ack_step
            for (of_attempt, rank), reader in self._open.items()
            if of_attempt == attempt and (of_attempt, rank) not in self._closed and reader.uses_stopping
        }

    def stop_at(self, attempt: int, step: int) -> None:
        """Tell the ranks of an attempt the step that all agreed on."""
        for key, reader in self._open.items():
            if key[0] == attempt:
                reader.set_stop_step(step)

    def remove(self) -> None:
        """Delete the node's channel files for good."""
        for reader in self._open.values():
            reader.close()
        self._open.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        for parent in (self.folder.parent, self.folder.parent.parent):
            try:
                parent.rmdir()
            except OSError:
                return

    def _add(self, attempt: int, rank: int, path: Path) -> None:
        try:
            self._open[attempt, rank] = ChannelReader(path)
        except (OSError, ValueError):
            path.unlink()

    def _remove_drained(self) -> None:
        for key in list(self._closed):
            reader = self._open[key]
            if reader.drained:
                reader.close()
                del self._open[key]
                self._closed.discard(key)
                try:
                    os.unlink(reader.path)
                except FileNotFoundError:
                    continue


def _memory_folder() -> Path:
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
