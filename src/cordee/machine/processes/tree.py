"""Finding and ending every process that belongs to a task, whoever its parent is by now."""

from __future__ import annotations

import os
import signal
from typing import Collection, Iterable, Mapping, NamedTuple, Optional

from cordee.machine.processes.parent import die_with_parent, prctl

MARKER = "CORDEE_TASK"
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class Process(NamedTuple):
    """One line of /proc: identity is (pid, start_ticks), since a pid alone is reused."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_ticks: int


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process instead of init's; return whether the kernel agreed."""
    return bool(prctl()(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def is_subreaper() -> bool:
    """Return whether orphaned descendants become children of this process."""
    import ctypes

    answer = ctypes.c_int(0)
    return bool(prctl()(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0 and answer.value)


def be_told_when_parent_dies(number: int) -> None:
    """Have the kernel send this signal to this process when its parent dies; at once when it is dead already."""
    die_with_parent(os.getppid(), number)


def read_process(pid: int) -> Optional[Process]:
    """Return what /proc says of a process, or None when it is gone."""
    return _read_process(f"/proc/{pid}/stat", pid, None)


def _read_process(name: str, pid: int, proc: Optional[int]) -> Optional[Process]:
    """Read a process, named from the open folder `proc` if given: nodes have thousands of them."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except OSError:
        return None
    try:
        text = os.read(descriptor, 1024)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[0].decode(), int(fields[19]))


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Return whether the process that was seen once still runs (a zombie does not)."""
    process = read_process(pid)
    return process is not None and process.start_ticks == start_ticks and process.state not in ("Z", "X")


def all_processes() -> dict[int, Process]:
    """Return all processes that /proc shows, by pid."""
    found = {}
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                process = _read_process(f"{entry}/stat", int(entry), proc)
                if process is not None:
                    found[process.pid] = process
    finally:
        os.close(proc)
    return found


def lists_children() -> bool:
    """Return whether this kernel tells the children of a process (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


def children_of(pid: int) -> set[int]:
    """Return the pids of the children of all threads of a process, where `lists_children`; none when it is gone."""
    found: set[int] = set()
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found.update(map(int, file.readall().split()))
        except OSError:  # it has ended meanwhile
            continue
    return found


def near_processes(apart: Collection[int]) -> dict[int, Process]:
    """Return this process and all below it, by pid, but for the children `apart` and all below those.

    What lives on of a child of a subreaper once that has ended is there; the other processes of a node are not looked at.
    """
    found: dict[int, Process] = {}
    pending = [os.getpid()]
    while pending:
        process = read_process(pending.pop())
        if process is not None:
            found[process.pid] = process
            pending += children_of(process.pid) - found.keys() - set(apart)
    return found


def tree_of(root: int) -> dict[int, Process]:
    """Return a process and all below it, by pid; nothing when it is gone."""
    if not lists_children():
        table = all_processes()
        return {pid: table[pid] for pid in {root} | descendants([root], table) if pid in table}
    found: dict[int, Process] = {}
    pending = [root]
    while pending:
        process = read_process(pending.pop())
        if process is not None:
            found[process.pid] = process
            pending += children_of(process.pid) - found.keys()
    return found


def marker_of(pid: int) -> Optional[str]:
    """Return the task marker in a process's environment, or None."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None
    prefix = MARKER.encode() + b"="
    if environment.startswith(prefix):
        start = 0
    else:
        start = environment.find(b"\0" + prefix) + 1
        if start == 0:
            return None
    end = environment.find(b"\0", start)
    return environment[start + len(prefix) : end if end >= 0 else None].decode(errors="replace")


def with_marker(prefix: str, table: Optional[dict[int, Process]] = None) -> list[Process]:
    """Return the living processes whose marker is `prefix`, or begins with it where it ends with `/` (`run/`, `run/node/`)."""
    table = all_processes() if table is None else table
    own = os.getpid()
    return [
        process
        for process in table.values()
        if process.pid != own and process.state not in ("Z", "X") and _is_below(marker_of(process.pid), prefix)
    ]


def of_ranks(owner: str, kept: Collection[str] = ()) -> list[Process]:
    """Return the living processes of all ranks, and of a pool's tasks, of any attempt, that an agent with this prefix of markers started.

    Args:
        owner: the prefix.
        kept: Tasks that are left out, by their ids.
    """
    begin, but = (f"{owner}/rank-", f"{owner}/task-"), {f"{owner}/{task}" for task in kept}
    found = ((process, marker_of(process.pid) or "") for process in with_marker(f"{owner}/"))
    return [process for process, marker in found if marker.startswith(begin) and marker not in but]


def _is_below(marker: Optional[str], prefix: str) -> bool:
    """Return whether a marker is `prefix`, or below it: `run/node/1/rank-1-10` is not below `run/node/1/rank-1-1`."""
    return marker is not None and (marker == prefix or (prefix.endswith("/") and marker.startswith(prefix)))


def descendants(roots: Iterable[int], table: dict[int, Process]) -> set[int]:
    """Return all pids below `roots`, without the roots."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    pending = list(roots)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def of_task(root: int, marker: str, table: Optional[dict[int, Process]] = None) -> set[int]:
    """Return the pids of a task that this process started: see `of_tasks`."""
    return of_tasks({root: marker}, all_processes() if table is None else table)


def of_tasks(markers: Mapping[int, str], table: dict[int, Process]) -> set[int]:
    """Return the pids of tasks that this process started: their sessions, all with their markers, and all below those.

    Args:
        markers: by the pid of each task's main process; any number of tasks costs one look at each process.
        table: of all processes.
    """
    own = table.get(os.getpid())
    began = own.start_ticks if own is not None else 0
    names = set(markers.values())
    seeds = {
        process.pid
        for process in table.values()
        if process.session in markers
        or process.pid in markers
        # A task is younger than who started it: most of a node's processes need no second look.
        or (process.start_ticks >= began and process.state not in ("Z", "X") and marker_of(process.pid) in names)
    }
    living = seeds | descendants(seeds, table)
    return {pid for pid in living if pid in table and table[pid].state not in ("Z", "X")} - {os.getpid()}


def strays(parent: int, prefix: str, table: dict[int, Process]) -> set[int]:
    """Return the children that `parent` got as a subreaper and that carry no marker with `prefix`."""
    return {
        process.pid
        for process in table.values()
        if process.parent == parent and process.state != "Z" and not _is_below(marker_of(process.pid), prefix)
    }


def kill_all(pids: Iterable[int], number: int = signal.SIGKILL) -> int:
    """Signal processes; those that are gone or not ours are passed over. Returns how many were signalled."""
    count = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            count += 1
        except (ProcessLookupError, PermissionError):
            continue
    return count


def sweep(prefix: str) -> int:
    """Kill everything that `with_marker` finds until nothing new appears; return how many were killed."""
    total = 0
    for _ in range(20):
        found = with_marker(prefix)
        if not found:
            return total
        total += kill_all(process.pid for process in found if process.state != "D")
        if all(process.state == "D" for process in found):
            return total
    return total
