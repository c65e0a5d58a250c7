"""Which processes belong to which rank, and what each rank's tree has used, at a small cost per look.

A look lists /proc once for all ranks and reads only the members and the processes it has not seen before. A process is
a member when its parent is one, or when a rank's main process leads its session; it stays one when its parent dies
first.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Optional

from cordee.telemetry.node.samplers.process_files import ProcessFiles

_FULL_LOOK_EVERY = 60


class ProcessCounters(NamedTuple):
    """One process at one moment; the counters only grow while it lives.

    `children_ticks` holds the CPU time of children that it has waited for; `read_bytes` and `write_bytes` hold theirs
    too and are None where the kernel does not let us see them.
    """

    parent: int
    session: int
    start_ticks: int
    alive: bool
    own_ticks: int
    children_ticks: int
    rss_pages: int
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None
    threads: int = 1


class BusyProcess(NamedTuple):
    """A living process of a tree: the ticks that it used since the look before (None: it was not there), its threads."""

    ticks: Optional[int]
    threads: int


class TreeLook(NamedTuple):
    """What one rank's tree used since the look before, and holds now; counters are None when they cannot be known."""

    ticks: Optional[int]
    read_bytes: Optional[int]
    write_bytes: Optional[int]
    rss_pages: int
    processes: int
    members: dict[int, BusyProcess] = {}  # noqa: RUF012 - never changed


class ProcessTrees:
    """Follows the process trees of ranks from look to look.

    Args:
        proc: where /proc is.
        list_every_s: how often new processes are looked for. Big nodes have thousands of the kernel's own, and listing
            them at every look is most of its cost.
    """

    def __init__(self, proc: str = "/proc", list_every_s: float = 0.0) -> None:
        self._proc = proc
        self._list_every_s = list_every_s
        self._list_at = 0.0
        self._members: dict[int, tuple[int, ProcessCounters]] = {}
        self._roots: dict[int, tuple[int, int]] = {}
        self._others: set[int] = set()
        self._looks = 0
        self._files = ProcessFiles(proc)

    def look(self, roots: dict[int, int]) -> dict[int, Optional[TreeLook]]:
        """Return the look at each rank; None for a rank whose main process is gone.

        Args:
            roots: main pid of each rank.

        Raises:
            OSError: the process table cannot be listed.
        """
        others = roots != {rank: root for rank, (root, _) in self._roots.items()}
        now_s = time.monotonic()
        if others or now_s >= self._list_at:
            self._list_at = now_s + self._list_every_s
            pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
            self._others &= pids
            if others or self._looks % _FULL_LOOK_EVERY == 0:
                self._others.clear()
            self._looks += 1
        else:
            pids = set(self._members)
        fresh = {pid: usage for pid in pids - self._others for usage in (self._usage(pid),) if usage is not None}
        before, known_roots = self._members, self._roots
        self._roots = {
            rank: (pid, known_roots[rank][1] if known_roots.get(rank, (0,))[0] == pid else fresh[pid].start_ticks)
            for rank, pid in roots.items()
            if pid in fresh
        }
        owner = self._owners(fresh, before)
        self._others.update(pid for pid in fresh if pid not in owner)
        self._members = {pid: (rank, self._with_io(pid, fresh[pid])) for pid, rank in owner.items()}
        of_rank: dict[int, dict[int, ProcessCounters]] = {rank: {} for rank in roots}
        for pid, (rank, usage) in self._members.items():
            of_rank[rank][pid] = usage
        self._files.only(self._members)
        gone = _gone(before, self._members)
        return {rank: self._of_rank(rank, of_rank[rank], before, gone, known_roots) for rank in roots}

    def close(self) -> None:
        """Close the files of all processes."""
        self._files.only(())

    def _owners(
        self, fresh: dict[int, ProcessCounters], before: dict[int, tuple[int, ProcessCounters]]
    ) -> dict[int, int]:
        """Return the rank of each process that has one."""
        owner: dict[int, int] = {}
        sessions = {}
        for rank, (root, start_ticks) in self._roots.items():
            if fresh[root].start_ticks == start_ticks:
                owner[root] = rank
                sessions[root] = rank
        for pid, usage in fresh.items():
            known = before.get(pid)
            if known is not None and known[1].start_ticks == usage.start_ticks and known[0] in self._roots:
                owner.setdefault(pid, known[0])
            elif usage.session in sessions:
                owner.setdefault(pid, sessions[usage.session])
        for pid in fresh:
            path = []
            while pid in fresh and pid not in owner and pid not in path:
                path.append(pid)
                pid = fresh[pid].parent
            if pid in owner:
                owner.update((member, owner[pid]) for member in path)
        return owner

    def _of_rank(
        self,
        rank: int,
        members: dict[int, ProcessCounters],
        before: dict[int, tuple[int, ProcessCounters]],
        gone: dict[int, tuple[int, int, int]],
        known_roots: dict[int, tuple[int, int]],
    ) -> Optional[TreeLook]:
        root, start_ticks = self._roots.get(rank, (0, 0))
        main = self._members.get(root)
        if main is None or not main[1].alive or main[1].start_ticks != start_ticks:
            return None
        rss = sum(usage.rss_pages for usage in members.values() if usage.alive)
        alive = sum(usage.alive for usage in members.values())
        if known_roots.get(rank) != self._roots[rank]:
            begun = {pid: BusyProcess(None, usage.threads) for pid, usage in members.items() if usage.alive}
            return TreeLook(None, None, None, rss, alive, begun)
        busy: dict[int, BusyProcess] = {}
        ticks, read, written = 0, 0, 0
        visible = True
        for pid, usage in members.items():
            known = before.get(pid)
            past = known[1] if known is not None and known[1].start_ticks == usage.start_ticks else _BORN
            gone_ticks, gone_read, gone_written = gone.get(pid, (0, 0, 0))
            own = max(0, usage.own_ticks - past.own_ticks)
            ticks += own
            if usage.alive:
                busy[pid] = BusyProcess(own, usage.threads)
            ticks += max(0, usage.children_ticks - past.children_ticks - gone_ticks)
            if usage.read_bytes is None or usage.write_bytes is None:
                visible = visible and not usage.alive
                continue
            read += max(0, usage.read_bytes - (past.read_bytes or 0) - gone_read)
            written += max(0, usage.write_bytes - (past.write_bytes or 0) - gone_written)
        return TreeLook(ticks, read if visible else None, written if visible else None, rss, alive, busy)

    def _usage(self, pid: int) -> Optional[ProcessCounters]:
        try:
            text = self._files.read(pid, "stat", pid in self._members)
        except OSError:
            return None
        fields = text[text.rfind(b")") + 2 :].split(None, 22)
        if len(fields) < 22:
            return None
        return ProcessCounters(
            int(fields[1]),
            int(fields[3]),
            int(fields[19]),
            fields[0] not in (b"Z", b"X"),
            int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]),
            int(fields[21]),
            threads=int(fields[17]),
        )

    def _with_io(self, pid: int, usage: ProcessCounters) -> ProcessCounters:
        if not usage.alive:
            return usage
        try:
            text = self._files.read(pid, "io", keep=True)
        except OSError:
            return usage
        start, middle = text.find(b"\nread_bytes: "), text.find(b"\nwrite_bytes: ")
        if start < 0 or middle < 0:
            return usage
        read_bytes, write_bytes = text[start + 13 : middle], text[middle + 14 : text.find(b"\n", middle + 1)]
        return ProcessCounters(*usage[:7], int(read_bytes), int(write_bytes), usage.threads)


_BORN = ProcessCounters(0, 0, 0, True, 0, 0, 0, 0, 0)


def _gone(
    before: dict[int, tuple[int, ProcessCounters]], now: dict[int, tuple[int, ProcessCounters]]
) -> dict[int, tuple[int, int, int]]:
    """Return what members that are gone had used before, summed by their nearest ancestor that is still there.

    A parent that waits for a child takes over all that the child ever used, also what was already counted for it.
    """
    sums: dict[int, tuple[int, int, int]] = {}
    for pid, (_, usage) in before.items():
        if pid in now and now[pid][1].start_ticks == usage.start_ticks:
            continue
        heir, hops = usage.parent, 0
        while heir in before and heir not in now and hops < len(before):
            heir, hops = before[heir][1].parent, hops + 1
        ticks, read, written = sums.get(heir, (0, 0, 0))
        sums[heir] = (
            ticks + usage.own_ticks + usage.children_ticks,
            read + (usage.read_bytes or 0),
            written + (usage.write_bytes or 0),
        )
    return sums
