"""The channels of a node's ranks: events are read ahead, and forgotten only when the supervisor has stored them."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional

from cordee.control.agent.ranks.data_positions import DataPositions
from cordee.core.errors import CordeeError
from cordee.core.units import format_size
from cordee.machine.node_folder import IN_USE, RUN, NodeFolder, folders_of, memory_places, name_of_user
from cordee.runs.folder import say
from cordee.telemetry.node.blocklog import encode_events
from cordee.telemetry.node.logged_names import LoggedNames
from cordee.telemetry.node.name_cap import NameCap
from cordee.telemetry.node.places import place_record
from cordee.wire.channel import CHANNEL_BYTES, ChannelReader, create_channel
from cordee.wire.facts import FindingFact, LayoutFact, SourceFact
from cordee.wire.messages import RankFinding, RankPlace

_EVENTS_PER_READ = 5000
# Of the rings, in one call of `read`. A byte there becomes at most six in the record, one event is at most 0.5 MiB:
# so the records of one call are below 10 MiB, and a message of 16 MiB holds them.
READ_BYTES = 1 << 20


class NoRoom(CordeeError):
    """No place of this node takes what ranks and their agent need to meet."""

    kind = "node_memory"

    def __init__(self, what: str, errors: list[str]) -> None:
        text = f"{what}, and no place of this node has it: {'; '.join(errors)}"
        super().__init__(text, allowed="/dev/shm, $TMPDIR or /tmp with some space", next="make room in one of them")


class RankChannels:
    """All channel files of one node of one run, also those that an earlier, killed agent left.

    Args:
        run: the run id.
        node: the node's name.
        tell: takes a sentence when a channel had to be made elsewhere than in memory.
        root: the run's folder, which whoever sweeps here later finds by a link; None: that is not needed.

    Attributes:
        data: how far the ranks are in their data sets.
        found: what ranks said that they found, since `telemetry` took it last.
        places: where ranks said that they stand, since then.

    Raises:
        NoRoom: this node has no place where a folder can be made.
    """

    def __init__(self, run: str, node: str, tell: Callable[[str], None] = say, *, root: Optional[Path] = None) -> None:
        self._run, self._node, self._tell, self._root = run, node, tell, root
        earlier = list(folders_of(run, node))
        for folder in earlier:
            with suppress(OSError):  # not swept while it is read
                os.utime(folder / IN_USE)
        self._places: dict[Path, NodeFolder] = {}
        self._main = self._first_place()
        self._open: dict[tuple[int, int], ChannelReader] = {}
        self._reported_drops: dict[tuple[int, int], int] = {}
        self._cap = NameCap()
        self._closed: set[tuple[int, int]] = set()
        self._names = LoggedNames(node)
        self._first: list[bytes] = []
        self._turn = 0
        self.data = DataPositions()
        self.found: list[RankFinding] = []
        self.places: list[RankPlace] = []
        for path in sorted(path for folder in earlier for path in folder.glob("*-*.channel")):
            attempt, _, rank = path.stem.partition("-")
            if attempt.isdigit() and rank.isdigit() and self._add(int(attempt), int(rank), path):
                self._closed.add((int(attempt), int(rank)))

    def _first_place(self) -> NodeFolder:
        errors = []
        for place in memory_places():
            try:
                return self._place(place)
            except OSError as error:
                errors.append(_at(place, error))
        raise NoRoom("the ranks' channels need a folder", errors)

    def _place(self, place: Path) -> NodeFolder:
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = NodeFolder(place, self._run, self._node)
            wanted = place / name_of_user()
            if found.path.parent.parent != wanted:
                say(f"cordee agent {self._node}: {wanted} is not this user's alone; this run uses {found.path}")
        found.renew()
        if self._root is not None:
            with suppress(FileExistsError):
                (found.path / RUN).symlink_to(self._root)
        return found

    @property
    def folder(self) -> Path:
        """The folder in which this agent and its ranks leave files for each other."""
        return self._main.path

    def renew(self) -> None:
        """Make the folder again if somebody has removed it.

        Raises:
            NoRoom: no place of this node takes it.
        """
        try:
            self._main.renew()
        except OSError:
            self._main = self._first_place()

    def touch(self) -> None:
        """Say that the folders are in use."""
        for place in self._places.values():
            place.touch()

    def create(self, attempt: int, rank: int) -> str:
        """Make the channel of a rank that is about to start and return its path: in memory, else on a disk of the node.

        Raises:
            NoRoom: the text names each place and its reason.
        """
        what = f"the channel of rank {rank} needs {format_size(CHANNEL_BYTES)}"
        path = self._made(f"{attempt}-{rank}.channel", create_channel, "channels of ranks lie", what)
        self._add(attempt, rank, path)
        return str(path)

    def reserve(self, name: str, size: int) -> Path:
        """Make a file with room for `size` bytes and return its path: in memory, else on a disk of the node.

        Raises:
            NoRoom: the text names each place and its reason.
        """
        return self._made(name, lambda path: _reserve(path, size), f"{name} lies", f"{name} needs {format_size(size)}")

    def _made(self, name: str, make: Callable[[Path], None], lies: str, needs: str) -> Path:
        errors = []
        for place in memory_places():
            try:
                path = self._place(place).path / name
                make(path)
            except OSError as error:
                errors.append(_at(place, error))
                continue
            if errors:
                self._tell(f"{lies} in {place}, not in memory: {'; '.join(errors)}")
            return path
        raise NoRoom(needs, errors)

    def close(self, attempt: int, rank: int) -> None:
        """Say that the rank has ended: its file goes when all that it holds is stored."""
        if (attempt, rank) in self._open:
            self._closed.add((attempt, rank))

    def say_first(self, records: bytes) -> None:
        """Put whole records before what the ranks say from now on."""
        self._first.append(records)

    def read(self) -> tuple[bytes, dict[str, int], dict[int, int]]:
        """Return new events as encoded records, the cursor to acknowledge per channel, and each rank's current step.

        At most READ_BYTES of all rings together: the rest is read by the next calls, which begin where this one ended.
        """
        records, cursors, steps = self._first, {}, {}
        self._first = []
        left = READ_BYTES
        channels = list(self._open.items())
        begin = self._turn % max(1, len(channels))
        for at, ((attempt, rank), reader) in enumerate(channels[begin:] + channels[:begin], begin):
            if (attempt, rank) not in self._closed and reader.step is not None:
                steps[rank] = reader.step
            if left <= 0:
                continue
            before = reader.cursor
            events, cursor = reader.read(_EVENTS_PER_READ, left)
            left -= cursor - before
            self._turn = at + 1
            dropped = reader.dropped
            news = dropped - self._reported_drops.get((attempt, rank), 0)
            told = reader.told()
            self.data.take(attempt, rank, [fact for _, fact in told])
            records.append(place_record(self._node, rank, attempt, told))
            events = self._cap.keep((attempt, rank), events)
            if events or news:
                records.append(encode_events(self._node, rank, attempt, news, events))
                self._reported_drops[attempt, rank] = dropped
            if cursor != before:
                cursors[f"{attempt}-{rank}"] = cursor
                self._names.take(fact for _, fact in told if isinstance(fact, SourceFact))
                said = [fact for _, fact in told if isinstance(fact, LayoutFact) and not fact.refused]
                self.places += [RankPlace(attempt, rank, dict(fact.place)) for fact in said[-1:]]
                self.found += [RankFinding(*fact) for _, fact in told if isinstance(fact, FindingFact)]
        records.append(self._names.news())
        return b"".join(records), cursors, steps

    def steps(self, attempt: int) -> dict[int, int]:
        """Return the last step of each running rank of an attempt that has said one."""
        return {
            rank: reader.step
            for (of_attempt, rank), reader in self._open.items()
            if of_attempt == attempt and (of_attempt, rank) not in self._closed and reader.step is not None
        }

    @property
    def unread_bytes(self) -> int:
        """What ranks have said that `read` has not returned yet."""
        return sum(reader.unread_bytes for reader in self._open.values())

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
    def drained(self) -> bool:
        """Whether the supervisor has stored all that ranks have said."""
        return all(reader.drained for reader in self._open.values())

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
        for place in self._places.values():
            place.remove()
        for folder in folders_of(self._run, self._node):  # of earlier agents, elsewhere
            shutil.rmtree(folder, ignore_errors=True)

    def _add(self, attempt: int, rank: int, path: Path) -> bool:
        try:
            self._open[attempt, rank] = ChannelReader(path)
        except (OSError, ValueError):
            path.unlink(missing_ok=True)
            return False
        return True

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


def _reserve(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _at(place: Path, error: OSError) -> str:
    return f"{place}: {error.strerror}"
