"""Sweeps that learn: samplers of Optuna in a child, ends before the end, conditions, several goals."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import DocumentError, UsageError
from cordee.job.submit.prepare import create_run, prepare
from cordee.job.terminal.run_args import state_of
from cordee.runs.journal import JournalWriter, read_journal
from cordee.systems.trials.farm_life import add_trials, begin_again, submit_run
from cordee.systems.trials.node.commands import filled_in
from cordee.systems.trials.node.journal_tail import SiblingTails
from cordee.systems.trials.node.rungs import Halving, Rungs
from cordee.systems.trials.sampler import OptunaStudy
from cordee.systems.trials.shown import Farm
from cordee.systems.trials.space import choose, space_of
from cordee.systems.trials.sweeps import Sweep
from support.runs.real_run import LocalRun

SCRIPT = """
import sys, time, cordee
x, seconds = float(sys.argv[1]), float(sys.argv[2])
for step in range(1, 10):
    cordee.log(step=step, loss=(x - 0.25) ** 2 + 1 / step, speed=x)
    time.sleep(seconds)
if len(sys.argv) > 3 and x > 0.5:
    cordee.log(loss=float("nan"))
"""
_QUICK = {"timeouts__lost": 4.0, "timeouts__heartbeat": 0.2, "vet__max_load": 1000.0}


def sweep_of(folder: Path, table: str, run: str = "python train.py {x} 0", reported: bool = False) -> LocalRun:
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "cordee.toml").write_text(f'name = "sweep"\nrun = "{run}"\n[sweep]\n{table}\n[need]\nnodes = 1\n')
    return LocalRun(job, folder / "runs", reported=reported, **_QUICK)


def child_of(run: LocalRun, module: str) -> int:
    """Return the pid of a child of the supervisor, once it is there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(OSError):
            supervisor = run.pid("supervisor")
            for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
                if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                    return int(child)
        time.sleep(0.02)
    raise AssertionError(f"no {module} was started")


def test_a_trial_goes_on_only_among_the_best_of_its_rung() -> None:
    halving = Halving(Rungs(2, 3), largest=False)
    assert [halving.goes_on(task, 0, 1.0 - task / 10) for task in range(3)] == [True, True, True]
    assert [halving.goes_on(3, 0, 0.95), halving.goes_on(4, 0, None), halving.goes_on(5, 0, 0.75)] == [
        False,
        False,
        True,
    ]
    assert halving.goes_on(0, 1, 9.0)  # alone at its rung
    largest = Halving(Rungs(2, 3), largest=True)
    assert [largest.goes_on(0, 0, 1.0), largest.goes_on(1, 0, 0.5), largest.goes_on(2, 0, 2.0)] == [True, False, True]
    assert [Rungs(2, 3).step_of(rung) for rung in range(3)] == [2, 6, 18]


def test_a_parameter_whose_condition_does_not_hold_has_no_value_and_its_words_are_left_out() -> None:
    space = space_of({"opt": ["adam", "sgd"], "m": {"range": [0.5, 0.9], "when": {"opt": "sgd"}}})
    points = choose(space, "grid", None, 0)
    assert points == [{"opt": "adam"}, {"opt": "sgd", "m": "0.5"}, {"opt": "sgd", "m": "0.9"}]
    argv = ["train", "{opt}", "--m={m}", "{other}"]
    assert filled_in(argv, points[0], ("opt", "m")) == ("train", "adam", "{other}")
    assert filled_in(argv, points[1], ("opt", "m")) == ("train", "sgd", "--m=0.5", "{other}")
    other = space_of({"opt": ["adam", "sgd"], "m": {"range": "0.0..1.0", "when": {"opt": "sgd"}, "otherwise": 0}})
    assert {point["m"] for point in choose(other, "random", 20, 1) if point["opt"] == "adam"} == {"0"}


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"m": {"range": "0.0..1.0", "when": {"opt": "sgd"}}}, "a condition that never holds"),
        ({"opt": ["a"], "m": {"range": "0.0..1.0", "when": {"opt": "b"}}}, "a condition that never holds"),
        ({"m": {"range": "0.0..1.0"}}, "no parameter with a condition"),
        ({"m": {"first": 1}}, "no parameter with a condition"),
    ],
)
def test_a_condition_that_is_none_is_refused(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        space_of(parameters)


def ask(sampler: str, trials: list[dict[str, Any]], goals: int = 1, count: int = 3) -> list[dict[str, str]]:
    """Return what the child chooses."""
    space = space_of({"x": "log 1e-3..1.0", "n": "1..4", "opt": ["a", "b"]})
    begin = {"sampler": sampler, "seed": 1, "space": [one.document() for one in space]}
    begin |= {"goals": [["min", f"g{number}"] for number in range(goals)], "trials": trials}
    lines = [json.dumps(begin), *(json.dumps({"ask": 100 + number}) for number in range(count))]
    command = [sys.executable, "-m", "cordee.systems.trials.sampler"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ready, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ready == {"ready": True}
    assert [answer["id"] for answer in answers] == [100, 101, 102][:count]
    return [answer["parameters"] for answer in answers]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("sampler", "goals"), [("tpe", 2), ("gp", 1), ("cma", 1), ("nsga", 2)])
def test_each_sampler_goes_on_from_all_that_it_is_told(sampler: str, goals: int) -> None:
    trials: list[dict[str, Any]] = [
        {"id": n, "parameters": {"x": f"{10 ** (-3 + n / 5):.6g}", "n": "2", "opt": "ab"[n % 2]}, "state": "done"}
        for n in range(12)
    ]
    for number, trial in enumerate(trials):
        trial.update(values=[abs(number - 6.0), float(number)][:goals], reached=[])
    trials[3].update(state="failed", values=[])
    trials[4].update(state="halved", reached=[[3, 1.0], [9, None]])
    trials[5].update(state="running", values=[])
    trials[6].update(parameters={"x": "77", "n": "2", "opt": "a"})  # of another space
    for values in ask(sampler, trials, goals):
        assert 1e-3 <= float(values["x"]) <= 1.0
        assert values["n"] in "1234"
        assert values["opt"] in ("a", "b")


def test_a_sampler_is_told_of_trials_that_other_jobs_have_chosen(tmp_path: Path) -> None:
    journals = []
    for name in ("part-1", "part-2"):
        (tmp_path / name / "tasks" / "journal").mkdir(parents=True)
        journals.append(JournalWriter(tmp_path / name / "tasks" / "journal", "supervisor-1", 1))
    siblings = SiblingTails(tmp_path / "part-1")
    assert siblings.look() == []
    trial = {"id": 1, "values": {"x": "0.25"}, "cores": 1}
    journals[1].append("trials_made", tasks=[trial])
    journals[0].append("trials_made", tasks=[{**trial, "id": 0}])
    (made,) = siblings.look()
    journals[1].append("tasks_ended", node="n", ended=[[1, 1, "done", 0, None, "exited", 1.0, 0, 0.0, "", 3.5]])
    (ended,) = siblings.look()
    assert siblings.look() == []
    table = {"x": "0.0..1.0"}
    begin = {"sampler": "tpe", "seed": 0, "space": [one.document() for one in space_of(table)], "goals": [["min", "l"]]}
    study = OptunaStudy({**begin, "trials": []})
    told = {"id": 1, "parameters": {"x": "0.25"}, "reached": []}
    study.ask(0)
    study.tell({**told, "state": "running", "values": []})
    study.tell({**told, "state": "running", "values": []})
    for _ in range(2):
        study.tell({**told, "state": "done", "values": [ended["ended"][0][10]]})
    assert [task["id"] for task in made["tasks"]] == [1]
    trials = study._study.trials
    assert [(one.state.name, one.value, one.params.get("x")) for one in trials[1:]] == [("COMPLETE", 3.5, 0.25)]


@pytest.mark.usefixtures("real")
def test_jobs_of_one_sweep_number_their_trials_apart_and_are_told_together(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text("import sys, cordee\ncordee.log(loss=float(sys.argv[1]))\n")
    table = '[sweep]\nx = "0.0..1.0"\ngoal = "min loss"\nsampler = "tpe"\ntrials = 7\njobs = 2\n'
    (job / "cordee.toml").write_text(f'name = "dealt"\nrun = "python train.py {{x}}"\n{table}')
    folder = create_run(prepare(str(job), "local", {"vet.max_load": 1000.0}, tmp_path / "runs"))
    submit_run(folder)
    deadline = time.monotonic() + 90
    while not state_of(folder).ended and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state_of(folder).state == "finished"
    assert [(trial["id"], trial["state"]) for trial in Sweep(folder).trials] == [(n, "done") for n in range(7)]
    parts = [Farm(part) for part in sorted((folder.root / "children").iterdir())]
    assert [[task.id for task in part.tasks] for part in parts] == [[0, 2, 4, 6], [1, 3, 5]]
    with pytest.raises(DocumentError, match="more jobs than trials"):
        prepare(str(job), "local", {"sweep.jobs": 9}, tmp_path / "runs").require_valid()


def test_a_sampler_that_learns_comes_near_where_the_loss_is_small() -> None:
    trials = [
        {
            "id": n,
            "parameters": {"x": f"{10 ** (-3 + n / 14):.6g}", "n": "2", "opt": "a"},
            "state": "done",
            "reached": [],
        }
        for n in range(40)
    ]
    for trial in trials:
        trial["values"] = [abs(float(trial["parameters"]["x"]) - 0.1)]  # type: ignore[index]
    near = [0.02 < float(values["x"]) < 0.4 for values in ask("tpe", trials)]
    assert all(near)


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_sweep_learns_while_it_runs_ends_trials_early_and_goes_on_when_the_sampler_is_killed(tmp_path: Path) -> None:
    table = 'x = "0.0..1.0"\ngoal = "min loss"\ntrials = 14\nsampler = "tpe"\nhalving = { first = 2 }'
    with sweep_of(tmp_path, table, "python train.py {x} 0.1", reported=True) as run:
        os.kill(child_of(run, "cordee.systems.trials.sampler"), signal.SIGKILL)
        state = run.wait_end()
        assert state.state == "finished"
        assert any(
            finding.text == "the sampler of the sweep: it was started again: signal 9" for finding in state.findings
        )
        sweep = Sweep(run.folder)
        assert len(sweep.trials) == len({trial["parameters"]["x"] for trial in sweep.trials}) == 14
        states = [trial["state"] for trial in sweep.trials]
        assert set(states) == {"done", "halved"}
        assert sweep.best is not None
        assert sweep.best["state"] == "done"
        assert all(trial["value"] > 1 / 9 for trial in sweep.trials if trial["value"] is not None)
        with pytest.raises(UsageError, match="no such parameter"):
            add_trials(run.folder, sweep, 4, {"y": "0.0..1.0"})
        add_trials(run.folder, sweep, 3, {"x": "0.2..0.3"})
        begin_again(run.folder)
        assert run.wait_end().state == "finished"
        trials = Sweep(run.folder).trials
        assert [0.2 <= float(trial["parameters"]["x"]) <= 0.3 for trial in trials[14:]] == [True] * 3
        rows = [
            event for event in read_journal(run.folder.root / "tasks" / "journal") if event["event"] == "tasks_ended"
        ]
        assert sorted(row[0] for event in rows for row in event["ended"]) == list(range(17))
        assert run.processes() == []


@pytest.mark.usefixtures("real")
def test_a_sampler_that_cannot_stay_ends_the_sweep_and_says_why(tmp_path: Path) -> None:
    """Where the supervisor runs there is no document side."""
    table = 'x = "0.0..1.0"\ngoal = "min loss"\ntrials = 4\nsampler = "tpe"'
    with sweep_of(tmp_path, table) as run:
        state = run.wait_end()
        assert state.state == "failed"
        assert state.text is not None
        assert state.text == (
            "4 trials were not chosen, as the sampler did not stay: it ended 4 times, the last time: exit code 1"
        )


@pytest.mark.usefixtures("real")
def test_trials_with_several_goals_from_files_have_a_front_and_stale_files_are_no_values(tmp_path: Path) -> None:
    code = "import json,sys; n,x=sys.argv[1:]; x=float(x); x>2 or json.dump({'a': x, 'b': 1-x if x<1 else 9}, open(f'r-{n}.json','w'))"
    table = 'x = [0.0, 0.5, 1.5, 3.0]\ngoal = ["min a", "min b"]\nresult = "r-{number}.json"'
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "r-3.json").write_text('{"a": -1, "b": -1}')
    (tmp_path / "job" / "measure.py").write_text(code)
    (tmp_path / "job" / "cordee.toml").write_text(
        f'name = "two"\nrun = "python measure.py {{number}} {{x}}"\n[sweep]\n{table}\n'
    )
    with LocalRun(tmp_path / "job", tmp_path / "runs", reported=False, **_QUICK) as run:
        run.wait_end()
        sweep = Sweep(run.folder)
        assert [trial["values"] for trial in sweep.trials] == [[0.0, 1.0], [0.5, 0.5], [1.5, 9.0], None]
        assert sweep.trials[3]["text"] == "its result file has no finite a, b"
        assert sweep.document()["front"] == [0, 1]
        with pytest.raises(UsageError, match="no one best trial"):
            sweep.best_document()
        assert 'run = "python measure.py 1 0.5"' in sweep.best_document(1)


@pytest.mark.usefixtures("real")
def test_retries_are_counted_for_each_reason(tmp_path: Path) -> None:
    table = 'x = [0.0, 0.9]\ngoal = "min loss"\nretries = { value = 1, exit = 5 }'
    with sweep_of(tmp_path, table, "python train.py {x} 0 nan") as run:
        assert run.wait_end().text == "1 of 2 trials failed; best: loss = 0.173611, trial 0: x=0.0"
        assert [(trial["state"], trial["tries"]) for trial in Sweep(run.folder).trials] == [("done", 1), ("failed", 2)]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('x = "0.0..1.0"\ngoal = ["min a", "max b"]\nsampler = "cma"\ntrials = 3', "cma knows one goal only"),
        ('x = "0.0..1.0"\ngoal = "min a"\nsampler = "tpe"', "needs to know how many"),
        ('x = "0.0..1.0"\ngoal = ["min a", "max a"]', "names one metric twice"),
        ('x = "0.0..1.0"\ngoal = "min a"\nhalving = { first = 0 }', "sweep.halving.first"),
    ],
)
def test_a_sweep_that_cannot_learn_so_is_refused(tmp_path: Path, table: str, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        sweep_of(tmp_path, table)


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_trials_are_in_mlflow_once_however_often_the_tracker_is_started(tmp_path: Path) -> None:
    trial = {"id": 3, "parameters": {"x": "0.5"}, "state": "done", "values": [0.25]}
    begin = {"run": "sweep-1", "goals": [["min", "loss"]], "track": ["mlflow"], "trials": [trial]}
    told = {"tell": {**trial, "id": 4, "state": "failed", "values": []}}
    env = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "cordee.systems.trials.tracker"],
            input=f"{json.dumps(begin)}\n{json.dumps(told)}\n",
            capture_output=True,
            text=True,
            env=env,
            timeout=300,
        )
        assert [json.loads(line) for line in done.stdout.splitlines()] == [{}, {}], done.stderr
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        rows = database.execute("select name, status from runs order by name").fetchall()
        values = database.execute("select key, value from metrics").fetchall()
    assert rows == [("trial-3", "FINISHED"), ("trial-4", "FAILED")]
    assert values == [("loss", 0.25)]
