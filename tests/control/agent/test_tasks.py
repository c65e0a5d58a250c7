"""The one primitive: tasks with deadlines, groups and terminals, on real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from cordee.machine.processes import tree as processes
from cordee.machine.tasks.commands import find_command
from cordee.machine.tasks.task import STDERR, STDOUT, Task, TaskExit, TaskRunner
from cordee.testing.patience import PatientWait, wait_until

ENV = {"PATH": os.environ["PATH"]}

# What has it is killed where a task ends: no other process of this machine, as of another test, may have the same.
OWNER = f"run-{os.getpid()}/node/1"


class Seen:
    """What a runner reported."""

    def __init__(self) -> None:
        self.output: dict[tuple[str, int], bytes] = {}
        self.exits: dict[str, TaskExit] = {}
        self.order: list[str] = []

    def on_output(self, task: Task, stream: int, data: bytes) -> None:
        key = (task.id, stream)
        self.output[key] = self.output.get(key, b"") + data

    def on_exit(self, task: Task, ended: TaskExit) -> None:
        self.exits[task.id] = ended
        self.order.append(task.id)


def run(*tasks: Task, during=None, kill_s: float = 2.0) -> Seen:
    """Run tasks to their end and return what was reported."""
    seen = Seen()

    async def live() -> None:
        runner = TaskRunner(OWNER, seen.on_output, seen.on_exit, kill_s=kill_s)
        for task in tasks:
            runner.start(task)
        if during is not None:
            await during(runner, seen)
        deadline = time.monotonic() + 30
        while len(seen.exits) < len(tasks):
            assert time.monotonic() < deadline, seen.exits
            await asyncio.sleep(0.01)
        runner.kill_everything()

    asyncio.run(live())
    return seen


def shell(name: str, script: str, **more) -> Task:
    return Task(name, ("bash", "-c", script), more.pop("env", ENV), more.pop("cwd", "/"), **more)


@pytest.mark.usefixtures("real")
def test_output_is_kept_byte_for_byte_and_codes_and_signals_are_told_apart():
    seen = run(
        shell("bytes", "printf '\\x00\\xff\\xfe'; printf err >&2; exit 3"),
        shell("signal", "kill -SEGV $$"),
        Task("stdin", ("cat",), ENV, "/", stdin=b"x" * 300_000),
    )
    assert seen.output["bytes", STDOUT] == b"\x00\xff\xfe"
    assert seen.output["bytes", STDERR] == b"err"
    assert (seen.exits["bytes"].code, seen.exits["bytes"].signal) == (3, None)
    assert (seen.exits["signal"].code, seen.exits["signal"].signal) == (None, "SIGSEGV")
    assert seen.output["stdin", STDOUT] == b"x" * 300_000


def test_a_deadline_kills_and_says_so():
    seen = run(shell("late", "trap '' TERM; while true; do sleep 1; done", deadline_s=0.3))
    assert (seen.exits["late"].reason, seen.exits["late"].signal) == ("deadline", "SIGKILL")


def test_stopping_a_group_ends_what_ignores_sigterm_and_no_other():
    async def stop(runner: TaskRunner, seen: Seen) -> None:
        while ("a", STDOUT) not in seen.output:
            await asyncio.sleep(0.01)
        runner.stop("g", 0.2)

    stubborn = shell("a", "trap '' TERM; echo up; while true; do sleep 0.1; done", group="g")
    other = shell("c", "exit 0")
    seen = run(stubborn, other, during=stop)
    assert seen.exits["a"].reason == "stopped"
    assert seen.exits["c"].code == 0


# Seconds that nobody else on the machine sleeps for.
FIRST, SECOND = (f"{seconds}.{os.getpid()}" for seconds in (613, 614))


@pytest.fixture(params=["as here", "everywhere"])
def looking(request, monkeypatch):
    """How what tasks left is looked for: as this kernel allows, or everywhere, as where it lists no children."""
    if request.param == "everywhere":
        monkeypatch.setattr(processes, "lists_children", lambda: False)


def test_daemons_that_a_task_left_are_killed_even_when_they_hide(looking):
    script = f"setsid sleep {FIRST} & (exec env -i setsid sleep {SECOND}) & sleep 0.2; exit 0"

    async def adopt(runner: TaskRunner, seen: Seen) -> None:
        processes.become_subreaper()

    run(shell("leaves", script), during=adopt)
    wait_until(lambda: not any(map(sleeps, (FIRST, SECOND))))


DAEMON = """import os, sys, time
if os.fork():
    time.sleep(0.3); os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
hides = os.fork() == 0
os.execve("/bin/sleep", ["sleep", sys.argv[1]], {} if hides else dict(os.environ))
"""


def test_what_a_rank_left_is_killed_while_other_ranks_run_and_theirs_is_not(looking):
    """A daemon in a session of its own, forked twice, with a child that hides; its neighbour's goes with its neighbour only."""
    living: list[list[bool]] = []

    def left() -> list[bool]:
        return [sleeps(FIRST), sleeps(SECOND)]

    async def wait(runner: TaskRunner, seen: Seen) -> None:
        processes.become_subreaper()
        patience = PatientWait()
        while "rank-1" not in seen.exits or not (left()[1] or patience.over()):
            await asyncio.sleep(0.01)
        while left()[0] and not patience.over():
            await asyncio.sleep(0.02)
        living.append(left())
        runner.stop("rank-2", 0.0)

    stays = shell("rank-2", f"python -c '{DAEMON}' {SECOND}; sleep 600", group="rank-2")
    run(Task("rank-1", ("python", "-c", DAEMON, FIRST), ENV, "/"), stays, during=wait)
    assert living == [[False, True]]
    wait_until(lambda: not any(left()))


def test_the_end_of_a_rank_looks_at_all_processes_only_where_the_kernel_lists_no_children(monkeypatch):
    others = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(3)]
    there = len(processes.near_processes(()))
    read: list[int] = []
    looks: list[int] = []
    read_process, all_processes = processes.read_process, processes.all_processes

    def counted(pid):
        read.append(pid)
        return read_process(pid)

    def look_at_all():
        looks.append(1)
        return all_processes()

    async def wait(runner: TaskRunner, seen: Seen) -> None:
        processes.become_subreaper()
        runner.spared.update(other.pid for other in others)
        monkeypatch.setattr(processes, "read_process", counted)
        monkeypatch.setattr(processes, "all_processes", look_at_all)
        runner.start(shell("short", "exit 0"))
        while "short" not in seen.exits:
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        runner.stop("ranks", 0.0)

    try:
        ranks = [shell(f"rank-{number}", "sleep 600 & wait", group="ranks") for number in range(8)]
        run(*ranks, during=wait)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert bool(read) != bool(looks)
    assert bool(looks) == (not processes.lists_children())
    assert len(read) < there + 8


def sleeps(seconds: str) -> bool:
    """Return whether a process of the machine sleeps for so long."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"sleep\0{seconds}".encode() in path.read_bytes():
                return True
    return False


def test_the_end_of_a_task_leaves_those_alone_whose_name_begins_alike():
    async def wait(runner, seen):
        while "rank-1-1" not in seen.exits:
            await asyncio.sleep(0.01)
        assert [runner.pid(name) is not None for name in ("rank-1-10", "rank-1-100")] == [True, True]
        runner.stop("other", 5.0)

    others = (shell(f"rank-1-{number}", "sleep 60", group="other") for number in (10, 100))
    hidden = "setsid sleep 60 & echo $!"
    seen = run(*others, shell("rank-1-1", hidden), during=wait)
    assert {name: ended.reason for name, ended in seen.exits.items()} == {
        "rank-1-1": "exited",
        "rank-1-10": "stopped",
        "rank-1-100": "stopped",
    }
    assert seen.exits["rank-1-10"].signal == "SIGTERM"
    left = processes.read_process(int(seen.output["rank-1-1", STDOUT]))
    assert left is None or left.state == "Z"


def test_what_must_be_gone_before_the_next_attempt_are_ranks_and_tasks_of_a_pool_and_nothing_else():
    async def look(runner, seen):
        deadline = time.monotonic() + 30
        while len(found := processes.of_ranks(OWNER)) < 4 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        names = {processes.marker_of(process.pid) for process in found}
        assert names == {f"{OWNER}/rank-1-0", f"{OWNER}/task-1-7-1"}
        runner.stop("all", 0.0)

    script = "sleep 60 & wait"
    run(*(shell(name, script, group="all") for name in ("rank-1-0", "task-1-7-1", "check-1")), during=look)


def test_a_task_on_a_terminal_has_its_size_and_takes_keys():
    async def type_keys(runner: TaskRunner, seen: Seen) -> None:
        while b"ready" not in seen.output.get(("t", STDOUT), b""):
            await asyncio.sleep(0.01)
        runner.write("t", b"hello\n")

    seen = run(shell("t", "stty size; echo ready; read word; echo got $word", terminal=(33, 77)), during=type_keys)
    assert b"33 77" in seen.output["t", STDOUT]
    assert b"got hello" in seen.output["t", STDOUT]


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (("no-such-command",), 127, "not found on PATH"),
        (("/etc/passwd",), 126, "not executable"),
        (("./gone",), 127, "no such file"),
    ],
)
def test_what_cannot_start_says_why(argv, code, text):
    seen = run(Task("x", argv, ENV, "/"))
    assert (seen.exits["x"].reason, seen.exits["x"].code) == ("not_started", code)
    assert text in seen.exits["x"].text


def test_a_folder_that_is_gone_is_named():
    seen = run(shell("x", "true", cwd="/no/such/folder"))
    assert "/no/such/folder" in seen.exits["x"].text


def test_python_means_python3_where_only_that_exists(tmp_path):
    tool = tmp_path / "python3"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert find_command(("python", "x.py"), {"PATH": str(tmp_path)}, "/") == [str(tool), "x.py"]


def test_the_same_id_twice_is_refused():
    async def again(runner: TaskRunner, seen: Seen) -> None:
        with pytest.raises(ValueError, match="runs already"):
            runner.start(shell("x", "true"))

    run(shell("x", "sleep 0.2"), during=again)


def test_paused_output_waits_in_the_pipe_and_is_not_lost():
    async def pause(runner: TaskRunner, seen: Seen) -> None:
        runner.pause_output(True)
        await asyncio.sleep(0.3)
        before = len(seen.output.get(("big", STDOUT), b""))
        await asyncio.sleep(0.2)
        assert len(seen.output.get(("big", STDOUT), b"")) == before
        runner.pause_output(False)

    seen = run(shell("big", "head -c 3000000 /dev/zero"), during=pause)
    assert len(seen.output["big", STDOUT]) == 3_000_000


def test_a_task_that_starts_when_another_ends_and_ends_at_once_is_not_lost():
    """The second ends while the end of the first is still being dealt with."""
    seen = Seen()

    async def live() -> None:
        def ended(task: Task, exit: TaskExit) -> None:
            seen.on_exit(task, exit)
            if task.id == "first":
                runner.start(shell("second", "exit 0"))

        runner = TaskRunner(OWNER, seen.on_output, ended, lambda task, pid: time.sleep(0.3))
        runner.start(shell("first", "exec >&- 2>&-; sleep 0.5"))
        deadline = time.monotonic() + 60
        while len(seen.exits) < 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        runner.kill_everything()

    asyncio.run(live())
    assert seen.order == ["first", "second"]
