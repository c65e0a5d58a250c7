"""What a supervisor asks of the run's file system in its steady state, and how long it holds its nodes at the end."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from cordee.backends.local.node.allocation import LocalAllocation
from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.timing import ticker
from cordee.control.supervisor.timing.paces import LOCAL, SHARED, Paces
from cordee.control.supervisor.timing.progress import ProgressPace
from cordee.control.wakeup import Wakeup
from cordee.faces.web.runs import stamps
from cordee.runs import lookout
from cordee.runs.checkpoint import BEAT_S
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import JournalWriter
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.news import NewsWriter, RunNews, news_file
from cordee.runs.plan import Checkpoints, RunPlan, RunSampling, RunStep, RunTasks, RunTimeouts
from cordee.systems.checkpoints.node.folder import MANIFEST, SCHEMA
from cordee.systems.checkpoints.node.owner import RunCheckpoints
from support.operations import counted

PLAN = RunPlan(
    "t",
    "local",
    "/job",
    "/job",
    "/run",
    (RunStep(RunTasks(("true",), {}), Checkpoints("/run/checkpoints")),),
    RunTimeouts(60.0, 1.0, 20.0, 60.0, 10.0, 8.0),
    RunSampling(1.0),
)


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")


class Asking:
    """All that a supervisor on a shared file system asks of it while its ranks train: looks, its journal, its checkpoints."""

    def __init__(self, folder: RunFolder, checkpoints: Path) -> None:
        self.place, self.ownership = LocalAllocation(folder, PLAN), Ownership(folder.control / "epochs")
        self.ownership.claim()
        self.paces, self.progress, self.clock = Paces(SHARED, 0.0), ProgressPace(ticker._SHARED_PROGRESS_S), 0.0
        self.journal = JournalWriter(folder.journal, "supervisor-1", 1, mono=lambda: self.clock)
        policy = Checkpoints(str(checkpoints), pattern="step-*")
        self.checkpoints = RunCheckpoints(policy, folder.id, folder.control, 60.0, 5.0)
        self.checkpoints.begin_training()
        self.seen, self.marks = None, 1

    def tick(self) -> None:
        """A fifth of a second, as the supervisor's ticker has it."""
        self.clock = round(self.clock + 0.2, 1)
        if self.paces.due("requests", self.clock):
            assert self.place.requests(self.ownership.look) == []
        if self.paces.due("owner", self.clock):
            assert self.ownership.look() == "ours"
        if self.paces.due("checkpoints", self.clock):
            newest = self.checkpoints.glance()
            if newest != self.seen:
                self.seen = newest
                self.marks += 1
                self.paces.news("checkpoints", self.clock)
                self.journal.append("checkpoint_seen", durable=False, name=newest.name)
            self.paces.cost("checkpoints", self.checkpoints.operations, self.clock)
        if self.clock % BEAT_S == 0:
            self.checkpoints.beat()
        if self.clock % 2.0 == 0:
            if self.progress.due(self.clock, int(self.clock), None):
                self.journal.append("progress", durable=False, waits=True, step=int(self.clock))
            self.journal.flush()


def saves(checkpoints: Path, run: str, step: int, ranks: int) -> None:
    """Write a checkpoint as `cordee.checkpointer` does, two files a rank, the manifest last."""
    place = checkpoints / f"step-{step:09d}"
    place.mkdir(parents=True)
    files = {name: 0 for rank in range(ranks) for name in (f"__{rank}_0.distcp", f"rank-{rank}.pt")}
    for name in files:
        (place / name).touch()
    manifest = {"schema": SCHEMA, "step": step, "run": run, "files": files}
    (place / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("ranks", [1, 2000])
def test_a_supervisor_on_a_shared_file_system_asks_at_most_one_operation_a_second_whatever_its_ranks_save(
    folder, tmp_path, ranks
):
    checkpoints = tmp_path / "checkpoints"
    asking = Asking(folder, checkpoints)
    rates = []
    for step in range(4):
        saves(checkpoints, folder.id, step, ranks)
        until = asking.clock + 1800.0
        with counted(tmp_path) as operations:
            while asking.clock < until:
                asking.tick()
        rates.append(operations.total() / 1800.0)
        assert asking.seen.step == step
    assert rates[0] <= 1.0  # progress is written often at first
    assert rates[3] <= 0.9


def test_a_supervisor_asks_most_at_first_and_little_for_a_checkpoint(folder, tmp_path):
    asking, looks = Asking(folder, tmp_path / "checkpoints"), []
    saves(tmp_path / "checkpoints", folder.id, 0, 4)
    for second in range(80):
        if second == 60:
            saves(tmp_path / "checkpoints", folder.id, 1, 4)
        with counted(tmp_path) as operations:
            for _ in range(5):
                asking.tick()
        looks.append(operations.total())
    assert sum(looks[:10]) <= 60
    assert max(sum(looks[at : at + 10]) for at in range(10, 71)) <= 25
    for step in range(2, 5):
        saves(tmp_path / "checkpoints", folder.id, step, 4)
        for most in (8, 2):
            with counted(tmp_path) as operations:
                asking.checkpoints.glance()
            assert operations.total() <= most


class Follows:
    """What `cordee run`, or `watch`, does beside a supervisor on the same shared file system, by the supervisor's clock."""

    def __init__(self, folder: RunFolder, asking: Asking, per_s: float) -> None:
        self.asking, self.due = asking, 0.0
        self.lookout = lookout.Lookout(folder, shared_per_s=per_s, shared=True, clock=lambda: asking.clock)
        self.journal = JournalFollower(folder)
        self.oldest_s, self.asked = 0.0, 0

    def look(self) -> None:
        """One turn, if it is time for it; remembers how old the progress that is shown has been at most."""
        if self.asking.clock < self.due:
            return
        if self.lookout.look().journal:
            self.journal.read()
        self.due = self.asking.clock + self.lookout.pause_s
        self.oldest_s = max(self.oldest_s, self.asking.clock - (self.journal.state.step or 0))


class Page:
    """What a server does while somebody follows a run."""

    reads = 14  # telemetry, when there is something new; the journal is read here, too

    def __init__(self, folder: RunFolder, asking: Asking) -> None:
        self.journal, self.asked = JournalFollower(folder), 0
        self.stamps = stamps.Stamps(folder, shared=True, clock=lambda: asking.clock)
        self.stamp, self.oldest_s = None, 0.0

    def look(self) -> None:
        """One turn: it is asked at least every second."""
        before, self.stamp = self.stamp, self.stamps.now()
        if self.stamp != before:
            self.asked += self.reads
            self.journal.read()


@pytest.mark.parametrize("clients", [[lookout.SHARED_PER_S] * 2, [lookout.WATCHED_PER_S]], ids=["run, logs", "watch"])
def test_supervisor_and_those_who_wait_together_ask_at_most_two_operations_a_second_from_the_first_minute_on(
    folder, tmp_path, clients
):
    checkpoints = tmp_path / "checkpoints"
    JournalWriter(folder.journal, "client", 0).append("submitted")
    asking, writer = Asking(folder, checkpoints), NewsWriter(news_file(folder.root))
    asking.journal.append("supervisor_started", segment=1)
    waiting = [Follows(folder, asking, per_s) for per_s in clients]
    saves(checkpoints, folder.id, 0, 4)
    asked = []
    for until in (60.0, 1800.0):
        with counted(tmp_path) as operations:
            while asking.clock < until:
                asking.tick()
                written = asking.journal.sequence - asking.journal.pending
                writer.tell(RunNews(1, asking.marks, written, int(asking.clock), {"n1-1.log": int(asking.clock)}))
                for one in waiting:
                    one.look()
        asked.append(operations.total())
    assert asked[1] / 1740.0 <= 2.0
    assert sum(asked) / 1800.0 <= 2.1
    assert all(one.oldest_s <= 60.0 for one in waiting)


@pytest.mark.campaign
@pytest.mark.parametrize("each_s", [None, 30.0], ids=["one checkpoint", "a checkpoint every 30 s"])
@pytest.mark.parametrize("several", [(1, 0, 0), (0, 0, 1), (1, 1, 1), (4, 3, 3)], ids=str)
def test_however_many_wait_all_together_ask_at_most_two_operations_a_second_and_learn_of_the_end(
    folder, tmp_path, several, each_s
):
    JournalWriter(folder.journal, "client", 0).append("submitted")
    asking, writer = Asking(folder, tmp_path / "checkpoints"), NewsWriter(news_file(folder.root))
    asking.journal.append("supervisor_started", segment=1)
    commands, watches, pages = several
    paces = [lookout.SHARED_PER_S] * commands + [lookout.WATCHED_PER_S] * watches
    waiting = [Follows(folder, asking, per_s) for per_s in paces] + [Page(folder, asking) for _ in range(pages)]
    saves(tmp_path / "checkpoints", folder.id, 0, 4)

    def on(until: float, *, ending: bool = False) -> int:
        asked = sum(one.asked for one in waiting)
        with counted(tmp_path) as operations:
            while asking.clock < until:
                asking.tick()
                step = int(asking.clock)
                if each_s is not None and asking.clock % each_s == 0:
                    asking.journal.append("checkpoint_seen", durable=False, name=f"step-{step}")
                    asking.journal.flush()
                    asking.marks += 1
                written = asking.journal.sequence - asking.journal.pending
                writer.tell(RunNews(1, asking.marks, written, step, {"n1-1.log": step}, ending))
                for one in waiting:
                    one.look()
        return operations.total() + sum(one.asked for one in waiting) - asked

    on(180.0)
    assert on(360.0) / 180.0 <= 2.0
    assert on(1800.0) / 1440.0 <= 2.0
    assert all(one.oldest_s <= (60.0 if len(waiting) == 1 else 30.0 + 15.0 * len(waiting)) for one in waiting)
    asking.journal.append("ended", state="completed", exit_code=0)
    asking.journal.flush()
    asking.marks += 1
    on(1805.0, ending=True)
    assert all(one.journal.state.state == "completed" for one in waiting)


@pytest.mark.parametrize("paces", [SHARED, LOCAL])
def test_looks_are_quick_after_news_and_never_further_apart_than_promised(paces):
    looks, now = Paces(paces, 0.0), 0.0
    gaps: dict[str, list[float]] = {what: [] for what in paces}
    last = dict.fromkeys(paces, 0.0)
    while now < 3600.0:
        for what in paces:
            if looks.due(what, now):
                gaps[what].append(now - last[what])
                last[what] = now
        now += 0.1
    for what, pace in paces.items():
        assert max(gaps[what]) <= pace.most_s + 0.11
        assert gaps[what][1] <= pace.least_s + 0.11
        looks.due(what, now)
        looks.news(what, now + 0.05)
        assert looks.due(what, now + 0.05)


def ours():
    return "ours"


def test_a_request_is_found_whatever_the_time_of_its_folder_says(folder):
    place = LocalAllocation(folder, PLAN)
    for _ in range(7):
        place.requests(ours)
    before = os.stat(folder.requests)
    write_atomically(folder.requests / "cancel-1.json", '{"request": "cancel"}')
    os.utime(folder.requests, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a file system that shows an old time
    found = [request for _ in range(6) for request in place.requests(ours)]
    assert found == [{"request": "cancel"}]


def test_a_request_is_left_to_the_newer_supervisor(folder):
    older, newer = (Ownership(folder.control / "epochs", lambda owner: False) for _ in range(2))
    older.claim()
    newer.claim()
    write_atomically(folder.requests / "cancel-1.json", '{"request": "cancel"}')
    assert LocalAllocation(folder, PLAN).requests(older.look) == []
    assert LocalAllocation(folder, PLAN).requests(newer.look) == [{"request": "cancel"}]


def test_waiting_ends_with_a_process_that_is_nobodys_child_and_with_a_call(monkeypatch):
    script = """
import os, signal, subprocess, sys, time
from cordee.control.wakeup import Wakeup
waking = Wakeup()
shell = subprocess.run(["sh", "-c", "sleep 0.5 >/dev/null & echo $!"], capture_output=True, text=True)
began = time.monotonic()
waking.wait([int(shell.stdout)], 60.0)
assert time.monotonic() - began < 30.0
os.kill(os.getpid(), signal.SIGUSR1)
waking.wait([os.getpid()], 60.0)
assert waking.called
child = subprocess.Popen(["sleep", "0.5"])
waking.called = False
waking.wait([], 60.0)
print("woke", round(time.monotonic() - began) < 30)
"""
    process = asyncio.run(_run(script))
    assert process == b"woke True\n"
    assert Wakeup.wait.__doc__


async def _run(script: str) -> bytes:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]


class Endless:
    async def finish(self) -> None:
        await remarks.document_side("endless", "x")


def test_the_nodes_are_given_back_in_time_however_long_sealing_takes(folder, monkeypatch, tmp_path):
    program = tmp_path / "endless.sh"
    program.write_text(f"#!/bin/sh\necho $$ $(nice) > {tmp_path}/began\nexec sleep 600\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(remarks, "module_argv", lambda *_, **__: [str(program)])
    began = time.monotonic()
    asyncio.run(remarks.close(Endless(), 1.0))
    assert time.monotonic() - began < 30.0
    pid = int((tmp_path / "began").read_text().split()[0])
    assert not os.path.exists(f"/proc/{pid}")
