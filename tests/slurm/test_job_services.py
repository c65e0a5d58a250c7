"""MLflow as a service of a job on Slurm: one store over nodes, segments, requeues and lost nodes, which a service is made of afterwards."""

from __future__ import annotations

import base64
import json
import time
import urllib.request

import pytest
from tests.systems.services.conftest import Services

from cordee.job.terminal.requests import leave_request
from cordee.systems.services.deployment import stop
from cordee.systems.services.instance import deployed
from support.runs.real_run import LocalRun

# Counts as COUNTING does, and logs each step to the tracking server before it counts as done; the MLflow run is the same in all segments.
TRACKED = """
import itertools, json, os, pathlib, sys, time
import cordee, mlflow
gate, rank = pathlib.Path(sys.argv[1]), int(os.environ.get("RANK", "0"))
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
kept = {"next": 0, "run": None}
if os.environ.get("CORDEE_RESUME_FROM"):
    kept = json.loads(pathlib.Path(os.environ["CORDEE_RESUME_FROM"]).read_text())
tracked = mlflow.start_run(run_id=kept["run"]) if rank == 0 else mlflow.start_run(run_name=f"rank-{rank}")
for step in itertools.count(kept["next"]):
    if step >= 10 and gate.exists():
        break
    stop = cordee.stopping(step)
    mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    with open(f"acknowledged-{rank}", "a") as log:
        log.write(f"{step}\\n")
    cordee.log(step=step, loss=1.0 / (step + 1))
    time.sleep(0.1)
    if rank == 0 and (stop or step % 5 == 4):
        partial = folder / f".partial-{os.getpid()}"
        partial.write_text(json.dumps({"next": step + 1, "run": tracked.info.run_id}))
        partial.rename(folder / f"step-{step + 1:06d}")
    if stop:
        os._exit(0)  # mlflow's run goes on in the next segment
"""
TRACKING = '[services]\ntracking = "mlflow"\n'


@pytest.fixture
def services(slurm, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORDEE_SERVICES", str(tmp_path / "services"))
    yield Services(tmp_path, capsys)
    for folder in deployed():
        stop(folder)


@pytest.fixture
def tracked(job, tmp_path):
    """The folder of a training that logs to MLflow; the file that it ends after; the steps that were acknowledged to a rank."""
    gate = tmp_path / "gate"

    def write(need: str):
        return job(f"python train.py {gate}", f"{need}\n{TRACKING}", TRACKED), gate

    return write


def steps_of(services: Services, run) -> dict[str, list[int]]:
    """Make a service of what a run's service has kept; return the steps of each MLflow run, by its name."""
    code, now, said = services.call(
        "restore", str(run.folder.root / "services" / "tracking"), "--name", "tracking", "--json"
    )
    assert code == 0, said
    url = now["services"][0]["endpoints"][0]["url"] if "services" in now else now["endpoints"][0]["url"]
    secret = (services.root("tracking") / "secrets" / "password").read_text()
    given = {"Authorization": "Basic " + base64.b64encode(f"admin:{secret}".encode()).decode()}

    def ask(path: str, body: dict | None = None) -> dict:
        data = json.dumps(body).encode() if body is not None else None
        asked = urllib.request.Request(
            f"{url}/api/2.0/mlflow/{path}", data, {**given, "Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    found = {}
    for one in ask("runs/search", {"experiment_ids": ["0"]})["runs"]:
        history = ask(f"metrics/get-history?run_id={one['info']['run_id']}&metric_key=loss&max_results=5000")
        found[one["info"]["run_name"]] = sorted(point["step"] for point in history.get("metrics", ()))
    return found


def acknowledged(folder, rank: int = 0) -> list[int]:
    path = folder / f"acknowledged-{rank}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def until(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def service_states(run) -> list[str]:
    return [event["state"] for event in run.events("service")]


def test_ranks_of_two_nodes_log_to_one_store_that_is_kept_with_the_run(tracked, start, services):
    folder, gate = tracked("[need]\nnodes = 2")
    gate.touch()
    run = start(folder)
    state = run.wait_end()
    assert state.state == "finished", run.output()
    assert service_states(run) == ["ready", "stopped"]
    assert run.processes() == []
    found = steps_of(services, run)
    assert sorted(found.values()) == [acknowledged(folder, 0), acknowledged(folder, 1)]


def test_a_chain_logs_to_the_same_store_in_all_its_segments(tracked, start, slurm, services):
    folder, gate = tracked('[need]\nnodes = 1\ntime = "2h"\n[on.slurm.need]\npartition = "debug"')
    run = start(folder)
    for segment in (1, 2):
        until(lambda segment=segment: run.state.segments == segment and len(acknowledged(folder)) > 8 * segment)
        slurm.command("scancel", "--signal=USR1", "--batch", run.job)
    run.wait(lambda state: state.segments == 3)
    gate.touch()
    state = run.wait_end()
    assert (state.state, state.segments) == ("finished", 3), state.text
    assert service_states(run) == ["ready", "stopped"] * 3
    assert run.processes() == []
    (steps,) = steps_of(services, run).values()
    assert steps == acknowledged(folder) == list(range(len(steps)))


@pytest.mark.parametrize("fault", ["requeue", "lost"])
def test_a_run_that_is_requeued_or_loses_its_node_logs_on_to_the_same_store(tracked, start, slurm, services, fault):
    folder, gate = tracked("[need]\nnodes = 1")
    run = start(folder)
    until(lambda: len(acknowledged(folder)) > 8)
    if fault == "requeue":
        slurm.command("scontrol", "requeue", run.job)
    else:
        slurm.kill_node("n1")
    before = len(acknowledged(folder))
    until(lambda: len(acknowledged(folder)) > before + 3)
    gate.touch()
    state = run.wait_end()
    assert state.state == "finished", state.text
    assert run.processes() == []
    (steps,) = steps_of(services, run).values()
    assert set(acknowledged(folder)) <= set(steps)


@pytest.mark.parametrize("where", ["here", "slurm"])
def test_a_cancelled_run_leaves_no_process_and_all_that_was_logged(tracked, start, slurm, services, tmp_path, where):
    folder, _ = tracked("[need]\nnodes = 1")
    if where == "slurm":
        run = start(folder)
    else:
        run = LocalRun(folder, tmp_path / "runs", vet__max_load=1000.0)
        run.start()
    try:
        until(lambda: len(acknowledged(folder)) > 8)
        leave_request(run.folder, {"request": "cancel", "by": "test", "now": False})
        assert run.wait_end().state == "cancelled"
        assert service_states(run) == ["ready", "stopped"]
        assert run.processes() == []
    finally:
        run.end()
    (steps,) = steps_of(services, run).values()
    assert set(acknowledged(folder)) <= set(steps)
