"""Which task goes to which node next. Pure: no clock, no files."""

from __future__ import annotations

from collections import deque
from typing import Deque, Iterable, Mapping, NamedTuple, Optional

from cordee.machine.slots import SlotRequest
from cordee.systems.trials.node.task_list import FarmTask

# A node gets tasks in advance for as long, so that it is not idle while news travels.
_AHEAD_S = 0.4
_MOST_AHEAD = 256
# Only so many of those that wait are looked at for what fits into a gap.
_LOOK_AHEAD = 256


class NodeRoom(NamedTuple):
    """What a node has for tasks: cores, GPUs, bytes of memory."""

    cores: int
    gpus: int
    memory_bytes: int

    def holds(self, asks: SlotRequest) -> bool:
        """Return whether it would have room for a task if it were empty."""
        return asks.cores <= self.cores and asks.devices <= self.gpus and asks.memory_bytes <= self.memory_bytes

    def times(self, asks: SlotRequest) -> int:
        """Return how many such tasks it would hold if it were empty."""
        most = [self.cores // asks.cores] if asks.cores else []
        if asks.gpus:
            most.append(int(self.gpus / asks.gpus + 1e-6) if asks.gpus >= 1 else self.gpus * int(1 / asks.gpus + 1e-6))
        if asks.memory_bytes:
            most.append(self.memory_bytes // asks.memory_bytes)
        return min(most, default=1)


class _NodeLoad:
    """What a node was given and has not ended."""

    def __init__(self, room: NodeRoom) -> None:
        self.room = room
        self.tasks: dict[int, FarmTask] = {}
        self.cores, self.gpus, self.memory = 0, 0.0, 0
        self.mean_s: Optional[float] = None

    def add(self, task: FarmTask, sign: int) -> None:
        self.cores += sign * task.asks.cores
        self.gpus += sign * task.asks.gpus
        self.memory += sign * task.asks.memory_bytes

    def takes(self, asks: SlotRequest, now: bool = False) -> bool:
        """Return whether it has room now, or, but for `now`, will have had it before the next news of it can be answered."""
        ahead = 0.0
        if self.mean_s is not None and not now:
            ahead = min(_MOST_AHEAD, _AHEAD_S / max(self.mean_s, 1e-3))
        room = self.room
        return (
            self.cores + asks.cores <= room.cores * (1 + ahead)
            and self.gpus + asks.gpus <= room.gpus * (1 + ahead) + 1e-6
            and self.memory + asks.memory_bytes <= room.memory_bytes * (1 + ahead)
        )


class TaskQueue:
    """The tasks that wait, and what each node has of them.

    Args:
        longest_first: whether those with the longest time go first, in place of the order in which they are given.
        at_once: how many nodes may have at the same time; None: as many as fit.
    """

    def __init__(self, longest_first: bool = False, at_once: Optional[int] = None) -> None:
        self._longest_first = longest_first
        self._at_once = at_once
        self._waiting: Deque[FarmTask] = deque()
        self._nodes: dict[str, _NodeLoad] = {}
        self._worlds: dict[int, tuple[FarmTask, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def add(self, tasks: Iterable[FarmTask], first: bool = False) -> None:
        """Take tasks that wait; `first`: before all others."""
        if first:
            self._waiting.extendleft(reversed(list(tasks)))
        else:
            self._waiting.extend(tasks)
        if self._longest_first:
            self._waiting = deque(sorted(self._waiting, key=lambda task: -(task.time_s or 0.0)))

    def node(self, name: str, room: NodeRoom) -> None:
        """A node is ready for tasks, or has other room than before."""
        self._nodes.setdefault(name, _NodeLoad(room)).room = room

    def has(self, name: str, task: FarmTask) -> None:
        """A node that is ready has a task already."""
        load = self._nodes[name]
        load.tasks[task.id] = task
        load.add(task, 1)

    def forget_nodes(self) -> list[FarmTask]:
        """No node is ready any more; returns what they had."""
        lost = [task for load in self._nodes.values() for task in load.tasks.values()]
        lost += [task for task, _ in self._worlds.values()]
        self._nodes.clear()
        self._worlds.clear()
        return lost

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that are ready."""
        return list(self._nodes)

    @property
    def out(self) -> int:
        """How many tasks nodes have."""
        return sum(len(load.tasks) for load in self._nodes.values()) + len(self._worlds)

    def room_for(self, asks: SlotRequest, nodes: int = 1) -> int:
        """Return how many tasks that ask each of so many nodes for this could run at once on those that are ready."""
        times = [load.room.times(asks) for load in self._nodes.values()]
        most = sum(times) // nodes
        # No node counts more often than there are tasks.
        while (fewer := sum(min(most, one) for one in times) // nodes) < most:
            most = fewer
        return most

    def places(self, task: int) -> tuple[str, ...]:
        """Return the nodes that have a task of several ranks, the first rank's first; none where it is no such task."""
        return self._worlds[task][1] if task in self._worlds else ()

    def ended(self, node: str, task: int, seconds: float) -> Optional[FarmTask]:
        """A task has ended after so long, on all of its nodes; returns it, None where the node does not have it."""
        if task in self._worlds:
            whole, nodes = self._worlds.pop(task)
            for name in nodes:
                self._nodes[name].add(whole, -1)
            return whole
        load = self._nodes.get(node)
        found = load.tasks.pop(task, None) if load is not None else None
        if load is not None and found is not None:
            load.add(found, -1)
            load.mean_s = seconds if load.mean_s is None else 0.9 * load.mean_s + 0.1 * seconds
        return found

    def give(self, left_s: Optional[float]) -> Mapping[str, list[FarmTask]]:
        """Return what each node is to have now, the least loaded first; tasks that could not end in `left_s` stay.

        A task of several ranks is given where all its nodes have room at once: to its first node here, `places` names all.
        """
        given: dict[str, list[FarmTask]] = {}
        kept: list[FarmTask] = []
        by_load = sorted(self._nodes.items(), key=lambda item: item[1].cores / max(1, item[1].room.cores))
        while self._waiting and len(kept) < _LOOK_AHEAD and (self._at_once is None or self.out < self._at_once):
            task = self._waiting.popleft()
            late = left_s is not None and task.time_s is not None and task.time_s > left_s
            if task.has_world and not late:
                names = [name for name, load in by_load if load.room.holds(task.asks) and load.takes(task.asks, True)]
                if len(names) < task.nodes:
                    kept.append(task)
                    break
                self._worlds[task.id] = (task, tuple(sorted(names[: task.nodes])))
                for name in self.places(task.id):
                    self._nodes[name].add(task, 1)
                given.setdefault(self.places(task.id)[0], []).append(task)
                by_load.sort(key=lambda item: item[1].cores / max(1, item[1].room.cores))
                continue
            fits = (name for name, load in by_load if load.room.holds(task.asks) and load.takes(task.asks))
            place = None if late else next(fits, None)
            if place is None:
                kept.append(task)
                if not late and all(load.cores >= load.room.cores for _, load in by_load):
                    break
                continue
            self.has(place, task)
            given.setdefault(place, []).append(task)
            by_load = [*by_load[1:], by_load[0]] if by_load and by_load[0][0] == place else by_load
        self._waiting.extendleft(reversed(kept))
        return given

    def fits_nowhere(self) -> list[FarmTask]:
        """Take out, and return, those that no node of these could ever run."""
        rooms = [load.room for load in self._nodes.values()]
        never = [task for task in self._waiting if sum(room.holds(task.asks) for room in rooms) < task.nodes]
        if never:
            gone = {task.id for task in never}
            self._waiting = deque(task for task in self._waiting if task.id not in gone)
        return never

    def too_late(self, left_s: Optional[float]) -> bool:
        """Return whether there are tasks that wait, and none of them could end in `left_s`."""
        if left_s is None or not self._waiting:
            return False
        return all(task.time_s is not None and task.time_s > left_s for task in self._waiting)
