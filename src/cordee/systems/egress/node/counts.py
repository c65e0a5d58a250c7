"""Bytes that the processes of a run have sent and received, by the address at the other end: two ways to know them, each with its precision."""

from __future__ import annotations

import os
from typing import Any, Collection, NamedTuple, Optional

from cordee.core.clock import unix_s
from cordee.machine.cgroups import groups_of, job_group
from cordee.machine.foreign_files import parse_json
from cordee.machine.processes.tree import all_processes, descendants, tree_of, with_marker
from cordee.machine.tcp_sockets import TcpConnection, TcpConnections

# A connection that no process of ours has at so many looks is another's.
_LOOKS = 3
_STALE_S = 10.0
_MOST_DESTINATIONS = 20_000
_MOST_UNCLAIMED = 2000
_MOST_COUNTERS_BYTES = 8 << 20
UNTOLD = "?"  # as a destination: of what goes to more destinations than are kept apart


class DestinationTraffic:
    """What has gone to one destination, in bytes, and how many connections there were and are."""

    __slots__ = ("connections", "open", "received", "sent")

    def __init__(self) -> None:
        self.sent = self.received = self.connections = self.open = 0


class Method(NamedTuple):
    """How it was counted.

    Attributes:
        name: `nft-cgroup` or `sock-diag`.
        precision: what that counts and what it does not, a sentence.
    """

    name: str
    precision: str


NFT = Method(
    "nft-cgroup", "every packet of the job, with its headers, of all protocols; told each second by the site's command"
)
SOCKETS = Method(
    "sock-diag",
    "payload of TCP that was acknowledged, exact to the end of each connection; not: UDP, and the first connection to an address where it ends before anybody could look whose it was (0.1 s)",
)
SOCKETS_NO_ENDS = Method(
    "sock-diag",
    "payload of TCP at the last look of each second; what is sent between it and a connection's end is missing; not: UDP",
)


class SocketCounts:
    """Counts by sock_diag, of the connections that processes of a run have.

    A connection is a run's where a process below this one, or with the run's mark, has it open, or where Slurm's control
    group of the job has made it.

    Args:
        owner: the mark of the run's processes on this node, `RUN/NODE/`.
        alone: nobody else uses this node: what nobody can be found for is the run's. Elsewhere it is where the run has had other
            connections to the same address.

    Raises:
        OSError: the kernel has no sock_diag.
    """

    def __init__(self, owner: str, alone: bool) -> None:
        self._owner, self._alone = owner, alone
        self._connections = TcpConnections()
        self._moved: dict[int, tuple[int, int]] = {}  # of ours, by cookie
        self._strange: dict[int, int] = {}  # looks at others, by cookie
        self._cgroups = job_cgroup_numbers()
        self.by_address: dict[str, DestinationTraffic] = {}
        self._unclaimed: dict[str, list[TcpConnection]] = {}
        self._forgotten = 0
        inodes = open_sockets(run_processes(owner))
        for one in self._connections.living():  # what was there before the run is another's
            if not self._is_ours(one, inodes):
                self._strange[one.cookie] = _LOOKS

    @property
    def method(self) -> Method:
        return SOCKETS if self._connections.hears_ends else SOCKETS_NO_ENDS

    @property
    def unclaimed_sent(self) -> int:
        """Bytes of connections that had ended before anybody could look whose they were; none where `alone`."""
        return self._forgotten + sum(one.sent or 0 for some in self._unclaimed.values() for one in some)

    @property
    def remark(self) -> str:
        """What is missing, for people; empty: nothing."""
        if self._connections.missed:
            return "connections ended faster than they were counted: some of what was sent is missing"
        return ""

    def look(self) -> None:
        """Count on."""
        living = self._connections.living()
        ended = self._connections.ended()  # after the others: what ends meanwhile is in both, and not in none
        ours = self._ours(living)
        for traffic in self.by_address.values():
            traffic.open = 0
        for one in living:
            if one.cookie in self._moved or one.cookie in ours:
                self._take(one).open += 1
        for one in ended:
            if one.cookie in self._moved:
                self._take(one)
                del self._moved[one.cookie]
                continue
            looks = self._strange.pop(one.cookie, 0)
            if looks == 0 and (
                self._alone or (one.remote in self.by_address and not _is_loopback(one.remote))
            ):  # nobody has seen it alive
                self._take(one)
                del self._moved[one.cookie]
            elif looks < _LOOKS:
                self._unclaimed.setdefault(one.remote, []).append(one)
                if len(self._unclaimed) > _MOST_UNCLAIMED:
                    self._forgotten += sum(old.sent or 0 for old in self._unclaimed.pop(next(iter(self._unclaimed))))
        for address in {one for one in self._unclaimed.keys() & self.by_address.keys() if not _is_loopback(one)}:
            for one in self._unclaimed.pop(address):  # the run is connected there after all
                self._take(one)
                del self._moved[one.cookie]
        there = {one.cookie for one in living}
        for known in (
            self._strange,
            {} if self._connections.hears_ends and not self._connections.missed else self._moved,
        ):
            for gone in known.keys() - there:
                del known[gone]

    def close(self) -> None:
        self._connections.close()

    def _take(self, one: TcpConnection) -> DestinationTraffic:
        traffic = self.by_address.get(one.remote)
        if traffic is None:
            address = one.remote if len(self.by_address) < _MOST_DESTINATIONS else UNTOLD
            traffic = self.by_address.setdefault(address, DestinationTraffic())
        if one.cookie not in self._moved:
            traffic.connections += 1
        sent, received = self._moved.get(one.cookie, (0, 0))
        now = max(sent, one.sent or 0), max(received, one.received or 0)
        traffic.sent += now[0] - sent
        traffic.received += now[1] - received
        self._moved[one.cookie] = now
        return traffic

    def _ours(self, living: Collection[TcpConnection]) -> set[int]:
        """Return the cookies of connections that are the run's and were not known to be."""
        unknown = [one for one in living if one.cookie not in self._moved and self._strange.get(one.cookie, 0) < _LOOKS]
        if not unknown:
            return set()
        own = os.getpid()
        inodes = open_sockets(tree_of(own).keys() - {own})
        if any(self._strange.get(one.cookie) == _LOOKS - 1 and one.inode not in inodes for one in unknown):
            inodes |= open_sockets(run_processes(self._owner))  # who has left the tree; it takes a look at each process
        self._cgroups = job_cgroup_numbers() if self._cgroups else set()
        ours = {one.cookie for one in unknown if self._is_ours(one, inodes)}
        for one in unknown:
            if one.cookie in ours:
                self._strange.pop(one.cookie, None)
            else:
                self._strange[one.cookie] = self._strange.get(one.cookie, 0) + 1
        return ours

    def _is_ours(self, one: TcpConnection, inodes: set[int]) -> bool:
        return one.inode in inodes or one.cgroup in self._cgroups


class FileCounts:
    """Counts that the site's command (see `cordee.systems.egress.node.guard`) writes into a file each second.

    Args:
        path: of the file.
    """

    method = NFT
    unclaimed_sent = 0
    remark = ""

    def __init__(self, path: str) -> None:
        self._path = path
        self.by_address: dict[str, DestinationTraffic] = {}

    def look(self) -> None:
        """Read it.

        Raises:
            OSError: it is not there, or is not written any more.
            ValueError: it holds no counts.
        """
        with open(self._path, "rb") as file:
            told = parse_json(file.read(_MOST_COUNTERS_BYTES))
        if not isinstance(told, dict) or not isinstance(told.get("destinations"), dict):
            raise ValueError(f"{self._path} holds no counts")
        age_s = unix_s() - float(told["at"])
        if age_s > _STALE_S:
            raise OSError(f"{self._path} was written {age_s:.0f} s ago: the site's command has ended")
        found: dict[str, DestinationTraffic] = {}
        for address, (sent, received) in told["destinations"].items():
            traffic = found[address] = DestinationTraffic()
            traffic.sent, traffic.received = int(sent), int(received)
        self.by_address = found

    def close(self) -> None:
        pass


def counts_of(counters: Optional[str], owner: str, alone: bool) -> Any:
    """Return the most precise counts that there are here.

    Args:
        counters: the file of the site's counters; None: it keeps none.

    Raises:
        OSError: there are none at all.
    """
    if counters is not None:
        exact = FileCounts(counters)
        try:
            exact.look()
            return exact
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
    return SocketCounts(owner, alone)


def _is_loopback(address: str) -> bool:
    """Return whether an address is that of everybody on this node, so that it says nothing of whose a connection is."""
    return address.startswith("127.") or address == "::1"


def run_processes(owner: str) -> set[int]:
    """Return the processes of a run on this node: all below this process, all with the run's mark, and all below those."""
    table, own = all_processes(), os.getpid()
    marked = {process.pid for process in with_marker(owner, table)}
    return (marked | descendants([own, *marked], table)) - {own}


def open_sockets(pids: Collection[int], proc: str = "/proc") -> set[int]:
    """Return the inodes of all sockets that processes have open, as far as we may see."""
    found = set()
    for pid in pids:
        folder = f"{proc}/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def job_cgroup_numbers() -> set[int]:
    """Return the numbers of the control group (version 2) that Slurm made for this job, and of all below it; none without one."""
    group = job_group([one for one in groups_of("memory") if one.version == 2])
    if group is None or not os.path.basename(group.folder).startswith("job_"):
        return set()
    found = set()
    for folder, _, _ in os.walk(group.folder):
        try:
            found.add(os.stat(folder).st_ino)
        except OSError:
            continue
    return found
