"""Sweeps: the values that are tried, what becomes of trials, which one is best and what mattered."""

import itertools
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cordee.core.errors import DocumentError, UsageError
from cordee.job.submit import step_of
from cordee.runs.journal import read_journal
from cordee.systems.trials.farm_life import add_trials, begin_again
from cordee.systems.trials.pictures import pictures
from cordee.systems.trials.report import FarmSection
from cordee.systems.trials.space import MOST_SOBOL, choose, parameter, sobol, space_of
from cordee.systems.trials.sweeps import Sweep, importance
from support.runs.real_run import LocalRun

SCRIPT = """
import sys, cordee
x, bad = float(sys.argv[1]), sys.argv[2]
for step in range(3):
    cordee.log(step=step, loss=(x - 0.25) ** 2 + (2 - step), other=7.0)
if bad == "nan":
    cordee.log(loss=float("nan"))
if bad == "end":
    sys.exit(4)
"""
_QUICK = {"timeouts__lost": 4.0, "timeouts__heartbeat": 0.2, "vet__max_load": 1000.0}


def sweep_of(folder: Path, table: str, run: str = "python train.py {x} {bad}") -> LocalRun:
    job = folder / "job"
    job.mkdir(exist_ok=True)
    (job / "train.py").write_text(SCRIPT)
    (job / "cordee.toml").write_text(f'name = "sweep"\nrun = "{run}"\n# kept\n[sweep]\n{table}\n[need]\nnodes = 1\n')
    return LocalRun(job, folder / "runs", reported=False, **_QUICK)


def test_a_sobol_sequence_fills_every_interval_once_in_each_dimension_and_every_square_of_two() -> None:
    points = list(sobol(MOST_SOBOL, 64))
    for dimension in range(MOST_SOBOL):
        assert sorted(int(point[dimension] * 64) for point in points) == list(range(64))
    shifted = list(sobol(2, 64, [12345, 67890]))
    assert len({(int(x * 8), int(y * 8)) for x, y in points[:0] or [(p[0], p[1]) for p in points]}) == 64
    assert len({(int(x * 8), int(y * 8)) for x, y in shifted}) == 64
    assert points[1] == [0.5] * MOST_SOBOL


def test_choices_reach_the_script_as_they_stand() -> None:
    given = [0.9999999, 0.99999999, 0.12345678, 16777216.0, 3, "it's a", True]
    tried = [float(values["x"]) for values in choose([parameter("x", given[:5])], "grid", None, 0)]
    assert tried == given[:5]
    assert parameter("x", given).grid == [str(value) for value in given]
    (held,) = space_of({"x": given, "y": {"range": [1], "when": {"x": 0.99999999}}})[1:]
    assert held.when == {"x": ("0.99999999",)}


def test_values_lie_in_their_ranges_and_the_same_seed_gives_the_same() -> None:
    space = [
        parameter("a", "log 1e-4..1e-1"),
        parameter("b", "1..3"),
        parameter("c", ["x", 2, 0.5]),
        parameter("d", "-1..1.5"),
    ]
    for sampler in ("random", "sobol"):
        chosen = choose(space, sampler, 100, 7)
        assert chosen == choose(space, sampler, 100, 7) != choose(space, sampler, 100, 8)
        assert chosen[:10] == choose(space, sampler, 10, 7)
        assert all(1e-4 <= float(one["a"]) <= 1e-1 and -1 <= float(one["d"]) <= 1.5 for one in chosen)
        assert {one["b"] for one in chosen} == {"1", "2", "3"}
        assert {one["c"] for one in chosen} == {"x", "2", "0.5"}
        assert 30 <= sum(float(one["a"]) < 10**-2.5 for one in chosen) <= 70
    assert choose(space[1:3], "grid", None, 0) == [
        {"b": b, "c": c} for b, c in itertools.product("123", ("x", "2", "0.5"))
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("1e-1..1e-5", "a range without values"),
        ("log 0..1", "a range without values"),
        ("about 3", "is not a range"),
        ("nan..1", "a range without values"),
        ([], "has no value"),
        ("0..1", "may mean the numbers 0, 1, or all between"),
        ("-1..1", "may mean the numbers -1, 0, 1, or all between"),
    ],
)
def test_a_range_that_is_none_is_refused(given: object, text: str) -> None:
    with pytest.raises(DocumentError, match=text) as error:
        parameter("lr", given)
    assert error.value.allowed


def test_how_a_parameter_was_understood_is_told() -> None:
    told = [parameter("a", given).words for given in ("1..8", "0..0.5", "log 1e-4..1", ["x", 2])]
    assert told == [
        "a: 8 whole numbers, 1 to 8 (real ones: 1.0..8.0)",
        "a: real numbers from 0 to 0.5",
        "a: real numbers from 0.0001 to 1, even in their logarithm",
        "a: one of x, 2",
    ]


def test_what_a_sampler_cannot_do_is_refused() -> None:
    ranges = [parameter(f"p{number}", "0.0..1.0") for number in range(MOST_SOBOL + 1)]
    for space, sampler, trials, text in (
        (ranges[:1], "grid", None, "a grid needs values"),
        (ranges, "sobol", 4, "too many parameters"),
        (ranges[:1], "random", None, "needs to know how many"),
        ([], "random", 4, "no parameter"),
        ([parameter("a", "1..1000")] * 1 + [parameter("b", "1..1000")], "grid", None, "too many points"),
    ):
        with pytest.raises(DocumentError, match=text):
            choose(space, sampler, trials, 0)


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_trials_have_values_and_those_that_crash_or_log_no_number_are_told_apart(tmp_path: Path) -> None:
    with sweep_of(tmp_path, 'x = [0.0, 0.25]\nbad = ["no", "nan", "end"]\ngoal = "min loss"') as run:
        assert run.wait_end().text == "4 of 6 trials failed; best: loss = 0, trial 3: x=0.25 bad=no"
        sweep = Sweep(run.folder)
        told = {
            tuple(trial["parameters"].values()): (trial["state"], trial["value"], trial["text"])
            for trial in sweep.trials
        }
        assert told == {
            ("0.0", "no"): ("done", 0.0625, None),
            ("0.25", "no"): ("done", 0.0, None),
            **{(x, "nan"): ("failed", None, "it logged no finite loss") for x in ("0.0", "0.25")},
            **{(x, "end"): ("failed", None, None) for x in ("0.0", "0.25")},
        }
        best = sweep.best
        assert best is not None
        assert best["parameters"] == {"x": "0.25", "bad": "no"}
        ((together, lines), (name, svg), *others) = pictures(sweep)
        assert (together, lines.count("<path")) == ("all trials at once, the best are blue", 2)
        assert (name, svg.count("M"), len(others)) == ("loss over x", 2, 1)
        reported: Any = SimpleNamespace(
            run=SimpleNamespace(folder=run.folder), step=step_of(run.folder), state=run.state
        )
        section = FarmSection(reported)
        assert section.lines()[:4] == [
            "Trials",
            "  2 of 6 done, 4 failed",
            "  1: it logged no finite loss",
            "  2: exit code 4",
        ]
        assert section.lines()[-1] == "  best: loss = 0, trial 3: x=0.25 bad=no"
        assert section.html().count("<svg") == 3
        made = sweep.best_document()
        assert tomllib.loads(made) == {"name": "sweep", "run": "python train.py 0.25 no", "need": {"nodes": 1}}
        assert "# kept" in made


@pytest.mark.parametrize("victim", ["agent local-0", "supervisor"])
@pytest.mark.usefixtures("real")
def test_a_sweep_survives_a_kill_with_each_trial_ended_once(tmp_path: Path, victim: str) -> None:
    with sweep_of(tmp_path, 'x = "0.0..1.0"\nbad = ["no"]\ngoal = "min loss"\ntrials = 16') as run:
        journal = run.folder.root / "tasks" / "journal"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(event["event"] == "tasks_ended" for event in read_journal(journal)):
                break
            time.sleep(0.02)
        run.kill(victim)
        assert run.wait_end().state == "finished"
        rows = [row for event in read_journal(journal) if event["event"] == "tasks_ended" for row in event["ended"]]
        assert sorted(row[0] for row in rows if row[2] == "done") == list(range(16))
        assert all(trial["value"] is not None for trial in Sweep(run.folder).trials)
        add_trials(run.folder, Sweep(run.folder), 4)
        begin_again(run.folder)
        assert run.wait_end().state == "finished"
        trials = Sweep(run.folder).trials
        assert len({trial["parameters"]["x"] for trial in trials}) == len(trials) == 20
        assert run.processes() == []


def test_which_parameter_mattered_is_told_and_where_too_few_trials_are_done_it_is_not() -> None:
    points = choose(
        [parameter("a", "0.0..1.0"), parameter("b", "0.0..1.0"), parameter("c", ["u", "v"])], "sobol", 64, 1
    )
    trials = [{"parameters": point, "value": 10 * float(point["a"]) + (point["c"] == "u")} for point in points]
    found = importance(trials)
    assert found is not None
    assert found["a"] > 0.8
    assert found["b"] < 0.1
    assert importance(trials[:7]) is None
    assert importance([{**trial, "value": 1.0} for trial in trials]) == {"a": 0.0, "b": 0.0, "c": 0.0}


@pytest.mark.parametrize(
    ("table", "run", "text"),
    [
        ('x = "0..2"\ngoal = "min loss"', "python train.py", "the trials would not differ in x"),
        ('x = "0..1"', "python train.py {x}", "sweep.goal"),
        ('x = "0..1"\ngoal = "low loss"', "python train.py {x}", "is no goal"),
        ('x = "0.5..1"\ngoal = "min loss"', "python train.py {x}", "a grid needs values"),
        ('x = "1..2"\ngoal = "min loss"\nsampler = "best"\ntrials = 3', "python train.py {x}", "sweep.sampler"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tmp_path: Path, table: str, run: str, text: str) -> None:
    with pytest.raises(DocumentError, match=text):
        sweep_of(tmp_path, table, run)


@pytest.mark.usefixtures("real")
def test_a_run_that_is_no_sweep_says_so(tmp_path: Path) -> None:
    with sweep_of(tmp_path, 'x = [1]\nbad = ["end"]\ngoal = "max loss"') as run:
        run.wait_end()
        with pytest.raises(UsageError, match="no trial of this sweep has a value"):
            Sweep(run.folder).best_document()
