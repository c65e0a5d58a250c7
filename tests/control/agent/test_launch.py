"""Both ways of starting ranks keep the same promises: forked on one node, and by an srun over two that share a machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.control.launch import RankCommand, make_launch
from cordee.control.world import AttemptWorld
from cordee.machine.node_folder import NodeFolder, name_of_user
from cordee.machine.processes import tree as processes
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import TaskExit, TaskRunner
from cordee.runs.plan import Checkpoints, RunPlan, RunRequest, RunSampling, RunStep, RunTasks, RunTimeouts
from cordee.testing.patience import PatientWait

WAIT_S = 30.0
SIZE = 4
SRUN = -1
FAKE_SRUN = Path(__file__).parent / "fake_srun.py"


class Host(WatchedTasks):
    """An agent, as far as a launch knows it."""

    def __init__(self, run: str, node: str, folder: Path) -> None:
        self.meeting_place, self.watched = NodeFolder(folder, run, node).path, self
        super().__init__(lambda **told: TaskRunner(f"{run}/{node}/1", kill_s=5.0, **told))
        self.started: dict[int, int] = {}
        self.output: dict[tuple[int, int], bytes] = {}
        self.ended: dict[int, TaskExit] = {}

    def rank_started(self, world: AttemptWorld, rank: int, pid: int) -> None:
        self.started[rank] = pid

    def rank_output(self, world: AttemptWorld, rank: int, stream: int, data: bytes) -> None:
        self.output[rank, stream] = self.output.get((rank, stream), b"") + data

    def rank_ended(self, world: AttemptWorld, rank: int, ended: TaskExit) -> None:
        assert rank not in self.ended, "a rank ends once"
        self.ended[rank] = ended


class Party:
    """Four ranks: the launches of all nodes of one attempt. The first node's runner is made last: it hears of children."""

    def __init__(self, kind: str, folder: Path, argv: tuple[str, ...], env: dict[str, str], **more: Any) -> None:
        names = ("n1",) if kind == "fork" else ("n1", "n2")
        step = RunStep(
            RunTasks(argv, env, kind, mpi=more.get("mpi")),
            Checkpoints(str(folder)),
            RunRequest(len(names), cpus_per_rank=2),
        )
        timeouts = RunTimeouts(more.get("connect_s", WAIT_S), 1.0, 10.0, 60.0, 2.0, 6.0)
        plan = RunPlan("r", "slurm", str(folder), str(folder), str(folder), (step,), timeouts, RunSampling(1.0))
        hosts = [Host(folder.name, name, folder) for name in reversed(names)]
        self.hosts = hosts[::-1]
        self.launches, self.commands = [], []
        for index, host in enumerate(self.hosts):
            world = AttemptWorld(1, names, ("::1",) * len(names), SIZE // len(names), names[index], index, "::1", 1, 2)
            self.launches.append(make_launch(kind, host, plan, world))
            self.commands.append(
                [RankCommand(rank, argv, {**env, "RANK": str(rank)}, str(folder)) for rank in world.local_ranks]
            )

    def start(self) -> None:
        for launch, commands in zip(self.launches, self.commands, strict=True):
            launch.start(commands)

    @property
    def ended(self) -> dict[int, TaskExit]:
        return {rank: ended for host in self.hosts for rank, ended in host.ended.items()}

    @property
    def pids(self) -> dict[int, int]:
        return {rank: pid for launch in self.launches for rank, pid in launch.pids().items()}

    def stop(self, grace_s: float) -> None:
        for launch in self.launches:
            launch.stop(grace_s)

    def output(self, rank: int, stream: int = 0) -> bytes:
        return b"".join(host.output.get((rank, stream), b"") for host in self.hosts)

    async def until(self, condition: Callable[[], Any]) -> None:
        patience = PatientWait(WAIT_S)
        while not condition():
            assert not patience.over(), (self.ended, {key: self.output(*key) for key in [(SRUN, 0), (SRUN, 1)]})
            await asyncio.sleep(0.01)

    async def all_ended(self) -> None:
        await self.until(lambda: len(self.ended) == SIZE)

    async def all_said(self, word: bytes) -> None:
        await self.until(lambda: all(word in self.output(rank) for rank in range(SIZE)))


Live = Callable[..., Party]


@pytest.fixture(params=["fork", "srun"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Run a script as four ranks: `live(kind, script, during)` returns when all have ended; nothing may be left."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_SRUN} "$@"\n')
    srun.chmod(0o755)
    env = {
        "PATH": f"{srun.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SLURM_CPUS_PER_TASK": "64",
    }

    def run(kind: str, script: str, during: Callable[[Party], Awaitable[None]] | None = None, **more: Any) -> Party:
        argv = more.pop("argv", (sys.executable, "-u", "-c", script))
        more_env = more.pop("env", {})

        async def main() -> Party:
            party = Party(kind, tmp_path, argv, {**env, **more_env}, **more)
            party.start()
            if during is not None:
                await during(party)
            await party.all_ended()
            for launch in party.launches:
                await launch.settle(WAIT_S)
            party.hosts[0].tasks.kill_everything()
            return party

        return asyncio.run(main())

    yield run
    assert processes.with_marker(f"{tmp_path.name}/") == []


@pytest.mark.usefixtures("real")
def test_output_codes_and_signals_are_each_ranks_own(live: Live, kind: str) -> None:
    script = """
import os, sys
rank = int(os.environ["RANK"])
sys.stdout.buffer.write(b"\\x00\\xff rank %d" % rank)
print("err", rank, file=sys.stderr)
sys.stdout.flush()
if rank == 3:
    os.kill(os.getpid(), 11)
sys.exit(rank)
"""
    party = live(kind, script)
    assert {rank: (end.code, end.signal) for rank, end in party.ended.items()} == {
        0: (0, None),
        1: (1, None),
        2: (2, None),
        3: (None, "SIGSEGV"),
    }
    assert {end.reason for end in party.ended.values()} == {"exited"}
    for rank in range(SIZE):
        assert party.output(rank) == b"\x00\xff rank %d" % rank
        assert party.output(rank, 1) == b"err %d\n" % rank
    assert party.hosts[-1].started.keys() == {SIZE - 1} | {SIZE - 2} if kind == "srun" else {0, 1, 2, 3}


def test_a_command_that_is_not_there_did_not_start(live: Live, kind: str) -> None:
    party = live(kind, "", argv=("no-such-command",))
    assert {(end.code, end.reason) for end in party.ended.values()} == {(127, "not_started")}
    assert "cannot start 'no-such-command'" in party.ended[0].text


@pytest.mark.usefixtures("real")
def test_ranks_that_ignore_sigterm_and_start_daemons_leave_nothing(live: Live, kind: str, tmp_path: Path) -> None:
    nap = str(600 + os.getpid() / 1e7)
    script = f"""
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "{nap}"], start_new_session=True, env={{}})
print("ready")
time.sleep(600)
"""

    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        party.stop(0.2)

    party = live(kind, script, during)
    assert {(end.signal, end.reason) for end in party.ended.values()} == {("SIGKILL", "stopped")}
    assert f"sleep {nap}" not in os.popen("ps -eo args").read().splitlines()


def test_a_stop_gives_the_ranks_time_to_save(live: Live, kind: str) -> None:
    script = """
import signal, sys, time
def save(number, frame):
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready\\n", end="")
time.sleep(600)
"""

    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        party.stop(WAIT_S)

    party = live(kind, script, during)
    assert {(end.code, end.reason) for end in party.ended.values()} == {(0, "stopped")}
    assert party.output(2) == b"ready\nsaved\n"


def test_a_signal_reaches_the_main_process_of_each_rank(live: Live, kind: str) -> None:
    script = "import signal, sys; print('ready'); sys.exit(signal.sigwait([signal.SIGUSR1]))"

    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        for launch in party.launches:
            launch.signal(signal.SIGUSR1)

    script = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]);" + script
    party = live(kind, script, during)
    assert {end.code for end in party.ended.values()} == {int(signal.SIGUSR1)}


def test_paused_output_waits_and_none_is_lost(live: Live, kind: str) -> None:
    script = "import sys; print('ready'); sys.stdout.write('x' * 300_000)"

    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        for host, launch in zip(party.hosts, party.launches, strict=True):
            host.tasks.pause_output(True)
            launch.pause_output(True)
        held = [len(party.output(rank)) for rank in range(SIZE)]
        await asyncio.sleep(0.1)
        assert [len(party.output(rank)) for rank in range(SIZE)] == held
        for host, launch in zip(party.hosts, party.launches, strict=True):
            host.tasks.pause_output(False)
            launch.pause_output(False)

    party = live(kind, script, during)
    assert [party.output(rank).count(b"x") for rank in range(SIZE)] == [300_000] * SIZE


def test_srun_is_asked_for_exactly_the_attempts_ranks(live: Live) -> None:
    asked = live("srun", "", mpi="pmix").output(SRUN).decode()
    for option in (
        "--overlap",
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--nodelist=n[1-2]",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--mem=0",
        "--mpi=pmix",
        "--cpus-per-task=2",
    ):
        assert f" {option}" in asked
    assert "--mpi" not in live("srun", "").output(SRUN).decode()


def test_a_rank_keeps_what_srun_set_for_it_and_the_rest_is_its_agents(live: Live) -> None:
    script = "import os; e = os.environ; print(e['RANK'], e['SLURM_PROCID'], e['PMI_RANK'], e['CORDEE_TASK'])"
    party = live("srun", script, env={"PMI_RANK": "99", "SLURM_PROCID": "99"})
    run = party.hosts[0].tasks.owner.partition("/")[0]
    assert party.output(3).decode().split() == ["3", "3", "3", f"{run}/n2/1/rank-1-3"]


def test_an_srun_that_cannot_start_anything_fails_every_rank_with_its_words(live: Live) -> None:
    party = live("srun", "", env={"FAKE_SRUN": "refuse"}, connect_s=3.0)
    assert party.ended[0].code == 1
    assert party.ended[0].text == "srun ended with code 1: srun: error: cannot find mpi plugin for mpi/none-such"
    assert "no rank to n2 within 3 s" in party.ended[3].text


def test_without_srun_no_rank_starts(live: Live, tmp_path: Path) -> None:
    (tmp_path / "bin" / "srun").unlink()
    party = live("srun", "", env={"PATH": str(tmp_path / "bin")}, connect_s=1.0)
    assert (party.ended[0].code, party.ended[0].reason) == (127, "not_started")
    assert "cannot start 'srun'" in party.ended[0].text


def test_a_rank_that_srun_never_brings_is_missed(live: Live) -> None:
    async def during(party: Party) -> None:
        await party.until(lambda: 3 in party.ended)
        came.update(party.pids)  # on a busy machine others may be late, too
        party.stop(0.0)

    came: set[int] = set()
    party = live("srun", "import time; time.sleep(600)", during, env={"FAKE_SRUN": "skip:3"}, connect_s=3.0)
    assert 3 not in came
    for rank, ended in party.ended.items():
        assert ended.reason == "stopped" if rank in came else ended.text.startswith("srun brought no rank to n")


def test_a_stop_before_any_rank_came_ends_srun_too(live: Live) -> None:
    async def during(party: Party) -> None:
        await party.until(lambda: b"srun:" in party.output(SRUN))
        party.stop(0.0)

    party = live("srun", "", during, env={"FAKE_SRUN": "nobody"})
    assert {end.reason for end in party.ended.values()} == {"stopped"}


def test_a_killed_srun_leaves_no_rank_behind(live: Live) -> None:
    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        srun = party.hosts[0].tasks.pid("srun-1")
        assert srun is not None
        os.kill(srun, signal.SIGKILL)

    party = live("srun", "import time; print('ready'); time.sleep(600)", during)
    assert {end.signal for end in party.ended.values()} == {"SIGKILL"}


def test_an_abandoned_attempt_ends_without_a_word(live: Live, kind: str) -> None:
    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        pids = list(party.pids.values())
        for launch in party.launches:
            launch.abandon()
        await party.until(lambda: not any(processes.read_process(pid) for pid in pids))
        assert party.ended == {}
        party.hosts[0].ended = dict.fromkeys(range(SIZE), TaskExit("", 0, None, "", 0.0))

    live(kind, "import time; print('ready'); time.sleep(600)", during)


@pytest.mark.usefixtures("real")
def test_ranks_end_when_their_agent_is_gone(live: Live, tmp_path: Path) -> None:
    """An agent that is killed closes its ends of the FIFOs, and that is all that a rank's launcher needs to see."""

    async def during(party: Party) -> None:
        await party.all_said(b"ready")
        second = party.launches[1]
        pids = [second.pids()[rank] for rank in (2, 3)]
        for entry in second._ranks.values():
            second._close(entry)
        await party.until(lambda: not any(processes.read_process(pid) for pid in pids))
        await party.until(lambda: not list(party.hosts[1].meeting_place.glob("*.order")))
        assert set(party.pids) == {0, 1, 2, 3}
        party.stop(0.0)

    live("srun", "import time; print('ready'); time.sleep(600)", during)
    shutil.rmtree(tmp_path / name_of_user())
