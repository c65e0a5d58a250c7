"""A run on a real Slurm: as on a laptop, through time limits, requeues, preemption and lost nodes."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import job_record
from cordee.backends.slurm.node.job import JobStart
from cordee.control.identity import agent_file, read_record
from cordee.machine.processes import tree as processes


def counted(run) -> list[str]:
    return [line for line in run.output(0).decode().splitlines() if not line.startswith("from")]


def starts(run) -> list[int]:
    return [int(line.split()[1]) for line in run.output(0).decode().splitlines() if line.startswith("from")]


def end_in_segment(run, training, segment: int, seconds: float = 150) -> None:
    """Let the training end once this segment has begun, and no earlier."""
    run.wait(lambda state: state.segments == segment, seconds)
    training.may_end()


@pytest.mark.gate
def test_a_run_ends_as_it_does_on_a_laptop(job, start):
    run = start(job("python train.py 10 0.05"), reported=True)
    state = run.wait_end()
    assert (state.state, state.exit_code, state.segments, state.restarts) == ("finished", 0, 1, 0), state.text
    assert counted(run) == ["counted to 10"]
    assert len({node.node for node in state.nodes}) == 2
    assert job_record(run.job)["JobState"] == "COMPLETED"
    assert job_record(run.job)["Comment"] == f"cordee:{run.folder.id}"


@pytest.mark.gate
def test_a_failing_run_is_a_failed_job(job, start):
    run = start(job("python -c 'raise SystemExit(7)'", "[need]\nnodes = 1\n[restart]\nretries = 0"))
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("failed", 7)
    assert job_record(run.job)["JobState"] == "FAILED"


@pytest.mark.gate
def test_three_segments_make_one_run(job, start, slurm, training):
    run = start(job(training.run, '[need]\nnodes = 2\ntime = "2h"\n[on.slurm.need]\npartition = "debug"'))
    run.wait(lambda state: state.step is not None and state.step > 20)
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    run.wait(lambda state: state.segments == 2 and state.resume_step and state.step > state.resume_step + 20)
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    end_in_segment(run, training, 3)
    state = run.wait_end()
    assert (state.state, state.segments, state.restarts) == ("finished", 3, 0), state.text
    assert [segment["reason"] for segment in state.chain] == ["time_limit", "time_limit"]
    assert all(segment["progress"] for segment in state.chain)
    stopped = [int(line.split()[-1]) for line in counted(run) if line.startswith("stopped")]
    assert starts(run) == [0, *(step + 1 for step in stopped)]
    assert counted(run)[-1] == "counted to 60"
    assert int(job_record(run.job)["Restarts"]) == 2


@pytest.mark.gate
def test_killed_parts_come_back_in_the_same_job(job, start, training):
    run = start(job(training.run))
    for attempt, part in enumerate(("supervisor", "agent", "rank 1"), 1):
        run.wait_training(attempt)
        run.kill(f"agent {sorted(node.node for node in run.state.nodes)[1]}" if part == "agent" else part)
    run.wait_training(4)
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 1), state.text
    assert counted(run)[-1] == "counted to 60"


def test_the_run_survives_its_batch_script(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    run.kill("script")
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert counted(run)[-1] == "counted to 60"


def test_the_run_survives_a_batch_host_that_is_back_as_soon_as_it_was_missed(job, start, slurm, training):
    run = start(job(training.run, "[need]\nnodes = 2\nspare_nodes = 1"))
    run.wait(lambda state: state.step is not None and state.step > 20)
    host = job_record(run.job)["BatchHost"]
    slurm.kill_node(host)
    run.wait(lambda state: "DOWN" in slurm.states()[host], 120)
    slurm.start_node(host)
    end_in_segment(run, training, 2, 250)
    state = run.wait(lambda state: state.ended, 180)
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert counted(run)[-1] == "counted to 60"


def test_a_middle_node_is_replaced_by_the_spare(job, start, slurm, training):
    run = start(job(training.run, "[need]\nnodes = 2\nspare_nodes = 1"))
    state = run.wait(lambda state: state.step is not None and state.step > 20)
    host = job_record(run.job)["BatchHost"]
    lost = next(rank.node for rank in state.ranks if rank.node != host)
    slurm.kill_node(lost)
    run.wait_training(2)
    training.may_end()
    # Not until the job is gone: Slurm waits for the lost node then.
    state = run.wait(lambda state: state.ended, 120)
    assert (state.state, state.segments, state.restarts) == ("finished", 1, 1), state.text


@pytest.mark.gate
def test_scancel_ends_the_run(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 10)
    slurm.command("scancel", run.job)
    state = run.wait_end()
    assert (state.state, state.exit_code) == ("cancelled", 1), state.text


def test_scontrol_requeue_is_another_segment(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    slurm.command("scontrol", "requeue", run.job)
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert state.chain[0]["reason"] in ("requeued", "lost")


def test_a_preempted_run_goes_on_later(job, start, slurm, training):
    run = start(job(training.run, "[need]\nnodes = 3"))
    run.wait(lambda state: state.step is not None and state.step > 20)
    slurm.command("sbatch", "--partition=debug", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert counted(run)[-1] == "counted to 60"


def test_a_segment_without_progress_ends_the_chain(job, start, slurm):
    script = "import time, cordee\nfor step in range(10**6):\n    cordee.log(step=step)\n    time.sleep(0.05)\n"
    toml = '[need]\nnodes = 1\ntime = "2h"\npartition = "debug"\n[checkpoint]\nresume = "--resume {checkpoint}"\ngrace = "60s"'
    run = start(job("python train.py", toml, script))
    run.wait(lambda state: state.step)
    slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    state = run.wait_end()
    assert (state.state, state.reason) == ("failed", "no_progress"), state.text


def test_a_second_job_of_the_run_leaves_it_alone(job, start, slurm, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 5)
    second = slurm.command("sbatch", "--parsable", str(run.folder.submit / "job.sbatch")).strip()
    deadline = time.monotonic() + 60
    while job_record(second)["JobState"] != "COMPLETED" and time.monotonic() < deadline:
        time.sleep(0.2)
    assert job_record(second)["JobState"] == "COMPLETED"
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments, state.restarts) == ("finished", 1, 0), state.text


def test_submitting_again_does_not_place_it_twice(job, start, slurm, training):
    run = start(job(training.run))
    run.start()
    assert len(slurm.command("squeue", "--noheader", "--format=%i").split()) == 1
    assert [event["job"] for event in run.events("placed")] == [run.job] * 2
    assert json.loads(run.folder.plan.read_text())["backend"] == "slurm"


@pytest.fixture
def resubmitting(tmp_path, monkeypatch):
    """A site that forbids to requeue jobs: the next segment is a new job."""
    profiles = tmp_path / "clusters"
    profiles.mkdir()
    (profiles / "slurm.toml").write_text('scheduler = "slurm"\nrequeue = "resubmit"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(profiles))


def test_where_requeueing_is_forbidden_the_next_segment_is_a_new_job(job, start, slurm, resubmitting, training):
    run = start(job(training.run, '[need]\nnodes = 2\ntime = "2h"\npartition = "debug"'))
    run.wait(lambda state: state.step is not None and state.step > 20)
    first = run.job
    assert job_record(first)["Requeue"] == "0"
    slurm.command("scancel", "--signal=USR1", "--batch", first)
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments, state.restarts) == ("finished", 2, 0), state.text
    assert run.job != first
    assert job_record(first)["JobState"] == "COMPLETED"
    assert counted(run)[-1] == "counted to 60"


def test_there_too_the_run_survives_the_batch_host(job, start, slurm, resubmitting, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    first = run.job
    host = job_record(first)["BatchHost"]
    slurm.kill_node(host)
    # What Slurm says by itself when SlurmdTimeout has passed.
    slurm.command("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=Not responding")
    end_in_segment(run, training, 2)
    state = run.wait(lambda state: state.ended, 180)
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert run.job != first
    assert counted(run)[-1] == "counted to 60"


def agents_of(run) -> dict[str, int]:
    """Return the pids of agents by node, also of those that have just been started; what an agent forks is none."""
    begun = [f"cordee.control.agent.agent\0--folder\0{run.folder.root}".encode(), b"SLURMD_NODENAME="]
    found = {}
    for pid, process in processes.all_processes().items():
        try:
            command, environment = (Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ"))
            parent = name(process.parent)
        except OSError:
            continue
        if begun[0] in command and parent == "slurmstepd":
            names = [line for line in environment.split(b"\0") if line.startswith(begun[1])]
            found[names[0].decode().partition("=")[2] if names else ""] = pid
    return found


def test_the_run_survives_its_batch_script_while_its_agents_begin(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    script, before = run.pid("script"), agents_of(run)
    processes.kill_all(before.values())
    deadline = time.monotonic() + 60
    while not set(agents_of(run).values()) - set(before.values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    processes.kill_all([script, run.pid("supervisor")])
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert counted(run)[-1] == "counted to 60"


def lone(find) -> int:
    """Return the pid of an srun that has no process any more which ends its step in its place."""
    deadline, pid = time.monotonic() + 60, 0
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, StopIteration):
            pid = find()
            if all(one.state == "Z" for one in processes.all_processes().values() if one.parent == pid):
                return pid
        time.sleep(0.02)
    raise TimeoutError(f"no srun is alone; the last was {pid}")


def srun_of_the_supervisor(run) -> int:
    """Return the pid of the srun by which the supervisor started agents."""
    everything = processes.all_processes()
    shell = next(one.pid for one in everything.values() if one.parent == run.pid("supervisor"))
    return next(one.pid for one in everything.values() if one.parent == shell and name(one.pid) == "srun")


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_the_run_notices_nothing_when_srun_is_killed_again_and_again(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    agents = agents_of(run)
    processes.kill_all([lone(lambda: run.pid("srun"))])
    processes.kill_all([lone(lambda: run.pid("srun"))])
    step = run.state.step
    run.wait(lambda state: state.step > step + 40)
    assert agents_of(run) == agents
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments, state.attempt) == ("finished", 1, 1), state.text
    assert counted(run)[-1] == "counted to 60"


def test_an_agent_that_the_supervisor_started_lives_on_when_its_srun_is_killed(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    run.kill(f"agent {sorted(agents_of(run))[1]}")
    run.wait_training(2)
    processes.kill_all([lone(lambda: srun_of_the_supervisor(run))])
    step = run.state.step
    run.wait(lambda state: state.step > step + 40)
    training.may_end()
    state = run.wait_end()
    assert (state.state, state.segments, state.attempt) == ("finished", 1, 2), state.text


def test_the_run_survives_its_batch_script_its_supervisor_and_srun_at_once(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    processes.kill_all([lone(lambda: run.pid("srun")), run.pid("script"), run.pid("supervisor")])
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert counted(run)[-1] == "counted to 60"
    assert run.processes() == []


def test_a_job_that_several_ask_to_requeue_at_once_is_requeued_once(job, start, training):
    run = start(job(training.run))
    run.wait(lambda state: state.step is not None and state.step > 20)
    here = JobStart(run.job, 0, "n1")
    processes.kill_all([run.pid("script"), run.pid("supervisor")])
    while here.fate() == "running":
        time.sleep(0.02)
    with ThreadPoolExecutor(4) as pool:
        going = list(pool.map(lambda _: here.go_on(run.folder, "requeue", "killed"), range(4)))
    assert going == [{"how": "requeue", "job": run.job}] * 4
    end_in_segment(run, training, 2)
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 2), state.text
    assert int(job_record(run.job)["Restarts"]) == 1
    assert counted(run)[-1] == "counted to 60"


def test_an_agent_that_is_told_to_end_stays_when_the_batch_host_is_lost(job, start, slurm, resubmitting, training):
    run = start(job(training.run), timeouts__orphan=25.0)
    run.wait(lambda state: state.step is not None and state.step > 20)
    host = job_record(run.job)["BatchHost"]
    other = next(node.node for node in run.state.nodes if node.node != host)
    slurm.kill_node(host)
    processes.kill_all([read_record(agent_file(run.folder, other))["pid"]], signal.SIGTERM)
    slurm.command("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=Not responding")
    end_in_segment(run, training, 2)
    state = run.wait(lambda state: state.ended, 180)
    assert (state.state, state.segments) == ("finished", 2), state.text
