"""Connections between supervisor and agents that break, hang and swallow: nothing is lost, nothing runs twice."""

from __future__ import annotations

import signal
import time

import pytest

from support.runs.proxied import ProxiedRun, proxied

pytestmark = pytest.mark.usefixtures("real")

ORDERS = ("setup", "checks", "port", "ranks")
NEWS = ("setup_done", "checks_output", "checks_done", "port", "ranks_started", "ranks_ended")
ONCE = """
import os
from pathlib import Path
with open(Path(os.environ["CORDEE_RUN_DIR"]) / "trained", "a") as file:
    file.write("once ")
"""
# Writes who trains and when, until the file `end` is there; the last rank fails in the first attempt once `fail` is there.
WRITING = """
import os, sys, time
from pathlib import Path
run = Path(os.environ["CORDEE_RUN_DIR"])
attempt, rank = os.environ["CORDEE_ATTEMPT"], int(os.environ.get("RANK", 0))
while not (run / "end").exists():
    if rank == int(os.environ.get("WORLD_SIZE", 1)) - 1 and attempt == "1" and (run / "fail").exists():
        sys.exit((run / "fail").read_text())
    with open(run / f"written-{attempt}-{rank}", "a") as file:
        file.write(f"{time.time()}\\n")
    time.sleep(0.05)
"""
SHORT = '[timeouts]\nlost = "6s"\n[restart]\nretries = 0\n'
SPARE = "[need]\nnodes = 2\nspare_nodes = 1\nranks_per_node = 1\n"


def times(run: ProxiedRun, attempt: int) -> list[float]:
    files = run.folder.root.glob(f"written-{attempt}-*")
    return sorted(float(line) for file in files for line in file.read_text().splitlines())


def trains(run: ProxiedRun, attempt: int, seconds: float = 60.0) -> None:
    run.run.wait_training(attempt, seconds)
    run.run.wait(lambda state: times(run, attempt), seconds)


def finish(run: ProxiedRun) -> None:
    """Have the ranks end, and see that no two attempts ever trained at the same time."""
    (run.folder.root / "end").touch()
    state = run.run.wait(lambda state: state.ended)
    assert (state.state, state.exit_code) == ("finished", 0)
    for attempt in range(1, state.attempt):
        assert times(run, attempt)[-1] < times(run, attempt + 1)[0]


def outcomes(run: ProxiedRun) -> list[str]:
    return [event["outcome"] for event in run.run.events("attempt_ended")]


@pytest.mark.gate
def test_a_connection_that_breaks_at_every_order_and_news_loses_none_and_doubles_none(job, tmp_path):
    folder = job(ONCE, toml='setup = ["echo once >> $CORDEE_RUN_DIR/prepared"]\n', run="python train.py")
    (folder / "cordee.toml").write_text((folder / "cordee.toml").read_text().replace("$CORDEE_RUN_DIR", str(tmp_path)))
    with proxied(folder, tmp_path / "runs", 0) as run:
        run.proxy.cuts = {(kind, arrives) for kind in (*ORDERS, *NEWS) for arrives in (False, True)}
        wanted = set(run.proxy.cuts)
        run.start_agent(0)
        state = run.run.wait(lambda state: state.ended, 90)
        assert (state.state, state.restarts, state.failures, state.text) == (
            "finished",
            0,
            [],
            "all ranks exited with code 0",
        )
        assert wanted - set(run.proxy.done) == set()
        assert (run.folder.root / "trained").read_text() == "once "
        assert (tmp_path / "prepared").read_text() == "once\n"
        assert [event["verdict"] for event in run.run.events("node_verdict")] == ["healthy"]
        assert len(run.run.events("node_connected")) == 1


def test_a_node_without_a_connection_counts_as_living_until_it_is_heard_of(job, tmp_path):
    folder = job(WRITING, toml=SPARE + "[restart]\nretries = 1\n", run="python train.py")
    with proxied(folder, tmp_path / "runs", 3) as run:
        trains(run, 1)
        run.proxy.held.add("local-0")
        run.proxy.cut("local-0")
        (run.folder.root / "fail").write_text("ValueError: bad")
        run.run.wait(lambda state: run.run.events("rank_exited"))
        time.sleep(1.0)  # a supervisor that forgot about the node would have begun the next attempt by now
        assert run.run.state.attempt == 1
        run.proxy.held.clear()
        trains(run, 2)
        finish(run)
        assert outcomes(run) == ["failed", "finished"]
        assert run.run.events("node_lost") == []


@pytest.mark.parametrize("says", ["", "RuntimeError: Connection reset by peer"])
def test_ranks_that_a_silent_network_hides_end_before_others_take_their_place(job, tmp_path, says):
    folder = job(WRITING, toml=SPARE + SHORT, run="python train.py")
    with proxied(folder, tmp_path / "runs", 3) as run:
        trains(run, 1)
        run.proxy.swallowed.add("local-0")
        if says:
            (run.folder.root / "fail").write_text(says)
        trains(run, 2)
        finish(run)
        assert outcomes(run) == ["node_lost", "finished"]
        assert [event["node"] for event in run.run.events("node_lost")] == ["local-0"]


def test_a_supervisor_that_stood_still_finds_ranks_ended_by_their_lease_and_goes_on(job, tmp_path):
    folder = job(WRITING, toml=SHORT, run="python train.py")
    with proxied(folder, tmp_path / "runs", 1) as run:
        trains(run, 1)
        run.supervisor.send_signal(signal.SIGSTOP)
        time.sleep(5.0)  # longer than the lease of 2.4 s, and less than what makes a node lost
        stopped = time.time()
        run.supervisor.send_signal(signal.SIGCONT)
        trains(run, 2)
        assert times(run, 1)[-1] < stopped - 1.0
        finish(run)
        assert outcomes(run) == ["node_lost", "finished"]
        assert run.run.events("node_lost") == []


def test_a_short_break_and_a_short_standstill_change_nothing(job, tmp_path):
    folder = job(WRITING, toml=SHORT, run="python train.py")
    with proxied(folder, tmp_path / "runs", 1) as run:
        trains(run, 1)
        run.proxy.cut("local-0")
        time.sleep(1.0)
        run.supervisor.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        run.supervisor.send_signal(signal.SIGCONT)
        time.sleep(1.0)
        finish(run)
        assert outcomes(run) == ["finished"]
