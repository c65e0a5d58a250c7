"""Trials that have several ranks, on several nodes: placed together, each with a world of its own, ended together."""

import json
import time
from pathlib import Path

import pytest

from cordee.control.agent.ranks.environment import rank_environment
from cordee.control.world import AttemptWorld
from cordee.core.errors import DocumentError
from cordee.machine.slots import SlotRequest
from cordee.machine.tasks.task import TaskExit
from cordee.runs.journal import read_journal
from cordee.runs.plan import Checkpoints, RunPlan, RunRequest, RunSampling, RunStep, RunTasks, RunTimeouts
from cordee.systems.trials.node.queue import NodeRoom, TaskQueue
from cordee.systems.trials.node.task_list import FarmTask, task_of
from cordee.systems.trials.node.trial_world import TrialPlaces, as_one, environments, whole_end
from cordee.systems.trials.sweeps import Sweep
from support.runs.real_run import LocalRun

# Ranks meet where they are told to; rank 0 hears of all. Of the trial with 3 the last rank fails while the others wait for ever.
SCRIPT = """
import os, socket, sys, time
import cordee
number, rank, size = int(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
print(f"{os.environ['CORDEE_NODE']} {os.environ['LOCAL_RANK']}\\n", end="", flush=True)
if number == 3:
    if rank == size - 1:
        sys.exit(7)
    time.sleep(600)
if rank:
    while True:
        try:
            peer = socket.create_connection(place, 30)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(b"%d %d\\n" % (number, rank))
    peer.recv(1)
else:
    server, seen = socket.create_server(place), []
    peers = [server.accept()[0] for _ in range(size - 1)]
    seen = sorted(peer.makefile().readline().split() for peer in peers)
    assert seen == [[str(number), str(other)] for other in range(1, size)], seen
    time.sleep(0.5)
    cordee.log(loss=number + size / 10)
"""


def sweep_of(folder: Path, table: str, nodes: int = 2) -> LocalRun:
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    run = f'name = "wide"\nrun = "python train.py {{number_}}"\n[need]\nnodes = {nodes}\n'
    (job / "cordee.toml").write_text(f'{run}[sweep]\nnumber_ = "0..5"\ngoal = "min loss"\n{table}\n')
    quick = {"timeouts__lost": 4.0, "timeouts__heartbeat": 0.2, "vet__max_load": 1000.0}
    return LocalRun(job, folder / "runs", reported=False, **quick)


def test_a_trial_gets_all_its_nodes_or_none() -> None:
    queue = TaskQueue()
    for name in ("n0", "n1", "n2"):
        queue.node(name, NodeRoom(2, 0, 100))
    one = SlotRequest(2)
    queue.add([FarmTask(number, {}, one, nodes=2, ranks=2) for number in range(2)] + [FarmTask(9, {}, one, nodes=4)])
    assert [task.id for task in queue.fits_nowhere()] == [9]
    assert {name: [task.id for task in tasks] for name, tasks in queue.give(None).items()} == {"n0": [0]}
    assert (queue.places(0), queue.places(1), queue.out, len(queue)) == (("n0", "n1"), (), 1, 1)
    assert (queue.room_for(one, 2), queue.room_for(SlotRequest(1), 3), queue.room_for(one, 4)) == (1, 2, 0)
    assert queue.give(None) == {}
    assert queue.ended("n1", 0, 1.0) is not None
    assert queue.ended("n0", 0, 1.0) is None
    assert list(queue.give(None)) == [queue.places(1)[0]]
    assert [task.id for task in queue.forget_nodes()] == [1]
    assert task_of(FarmTask(1, {}, nodes=2, ranks=2).document()) == FarmTask(1, {}, nodes=2, ranks=2)


def test_a_trial_that_is_one_rank_hears_nothing_of_the_nodes_beside_it_and_one_of_several_only_of_its_own() -> None:
    tasks = RunTasks(("torchrun", "train.py"), {})
    step = RunStep(tasks, Checkpoints("/run/checkpoints"), RunRequest(3, cpus_per_rank=1))
    timeouts = RunTimeouts(60.0, 1.0, 10.0, 60.0, 2.0, 6.0)
    plan = RunPlan("r", "slurm", "/job", "/job", "/run", (step,), timeouts, RunSampling(1.0))
    places = (("n0", "n1", "n2"), ("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    pool = AttemptWorld(1, *places, 1, "n2", 2, "10.0.0.1", 2000, 2001, resume_from="tasks-9")
    inherited = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-2]", "SLURM_JOB_CPUS_PER_NODE": "4(x3)"}
    of_pool = rank_environment(inherited, plan, pool, 2, "/channel")
    assert (of_pool["SLURM_NTASKS"], of_pool["PET_NNODES"]) == ("3", "3")
    (alone,) = environments(of_pool, plan, TrialPlaces(("n2",), (0, 0)).world(pool, 1))
    assert not {"RANK", "MASTER_ADDR", "PET_NNODES", "CORDEE_CHANNEL", "CORDEE_RESUME_FROM"} & set(alone)
    assert (alone["SLURM_NTASKS"], alone["SLURM_JOB_NODELIST"], alone["PET_STANDALONE"]) == ("1", "n2", "1")
    first, second = environments(of_pool, plan, TrialPlaces(("n1", "n2"), (3000, 3001)).world(pool, 2))
    assert [one["RANK"] for one in (first, second)] == ["2", "3"]
    assert (first["WORLD_SIZE"], first["NODE_RANK"], second["LOCAL_RANK"]) == ("4", "1", "1")
    assert (first["MASTER_ADDR"], first["MASTER_PORT"], first["PET_NNODES"]) == ("10.0.0.2", "3000", "2")
    own = tasks._replace(argv=("torchrun", "--nnodes=2", "--node-rank=$RANK", "train.py"))
    alike = plan._replace(steps=(step._replace(tasks=own),))
    places = TrialPlaces(("n2",), (3000, 3001))
    told = [environments(of_pool, one, places.world(pool, 2))[1] for one in (plan, alike)]
    assert [("PET_STANDALONE" in one, one["MASTER_PORT"]) for one in told] == [(True, "3000"), (False, "3000")]
    assert "PET_STANDALONE" not in first
    assert (first["SLURM_PROCID"], first["SLURM_NTASKS"], first["SLURM_JOB_NODELIST"]) == ("2", "4", "n[1-2]")


def test_the_first_failure_is_the_end_of_the_whole_and_an_early_end_comes_before_it() -> None:
    ends = [TaskExit("a", 0, None, "exited", 1.0, "", 5, 1.0), TaskExit("b", 7, None, "exited", 2.0, "", 3, 2.0)]
    ends.append(TaskExit("c", None, "SIGTERM", "stopped", 3.0))
    whole = as_one(ends)
    assert (whole.code, whole.reason, whole.seconds, whole.peak_bytes, whole.cpu_s) == (7, "exited", 3.0, 5, 3.0)
    rows = [[4, 1, 0, None, "exited", 1.0, 5, 1.0, "", 0.5], [4, 1, None, "SIGTERM", "halved", 2.0, 9, 1.0, "", None]]
    assert whole_end(rows, rows[0]) == [4, 1, None, "SIGTERM", "halved", 2.0, 9, 2.0, "", 0.5]


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_ranks_of_a_trial_meet_fail_together_and_each_trial_ends_once_when_an_agent_is_killed(tmp_path: Path) -> None:
    with sweep_of(tmp_path, "nodes = 2\nranks = 2") as run:

        def ends() -> list[list[object]]:
            events = read_journal(run.folder.root / "tasks" / "journal")
            return [row for event in events if event["event"] == "tasks_ended" for row in event["ended"]]

        deadline = time.monotonic() + 60
        while not ends() and time.monotonic() < deadline:
            time.sleep(0.02)
        run.kill("agent local-1")
        assert run.wait_end().text == "1 of 6 trials failed; best: loss = 0.4, trial 0: number_=0"
        trials = {trial["id"]: trial for trial in Sweep(run.folder).trials}
        values = {number: trial["value"] for number, trial in trials.items()}
        assert values == {number: None if number == 3 else pytest.approx(number + 0.4) for number in range(6)}
        assert (trials[3]["state"], trials[3]["code"]) == ("failed", 7)
        assert sorted(row[0] for row in ends() if row[2] in ("done", "failed")) == list(range(6))
        assert {tuple(line.split()) for line in run.output(rank=5).decode().splitlines()} == {
            (f"local-{node}", str(rank)) for node in range(2) for rank in range(2)
        }
        assert run.processes() == []
        assert json.loads((run.folder.root / "tasks" / "tasks-0.jsonl").read_text().splitlines()[1])["nodes"] == 2


def test_a_trial_of_more_nodes_than_the_job_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="more nodes than the job is sure to have"):
        sweep_of(tmp_path, "nodes = 3")
