"""What choosing trials costs in the sampler's child, over Optuna's bare ask and tell in one process.

    python benchmarks/sweep_sampler.py --trials 300 --times 5

The same study both ways: four parameters, TPE, each trial asked for and told before the next. CPU seconds of this process and its children.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from cordee.systems.trials.space import space_of

SPACE = {"lr": "log 1e-5..1e-1", "width": "1..8", "drop": "0.0..0.5", "opt": ["adam", "sgd"]}
GOALS = [["min", "loss"]]


def loss(values: Any) -> float:
    return abs(float(values["lr"]) - 1e-3) + 0.1 * float(values["drop"]) + (values["opt"] == "sgd")


def bare(trials: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True, n_startup_trials=10)
    study = optuna.create_study(sampler=sampler)
    for _ in range(trials):
        trial = study.ask()
        values = {
            "lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "width": trial.suggest_int("width", 1, 8),
            "drop": trial.suggest_float("drop", 0.0, 0.5),
            "opt": trial.suggest_categorical("opt", ["adam", "sgd"]),
        }
        study.tell(trial, loss(values))


def child(trials: int) -> None:
    space = [one.document() for one in space_of(SPACE)]
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "cordee.systems.trials.sampler"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def say(line: Any) -> None:
            print(json.dumps(line), file=process.stdin, flush=True)

        say({"sampler": "tpe", "seed": 0, "space": space, "goals": GOALS, "trials": []})
        process.stdout.readline()
        for number in range(trials):
            say({"ask": number})
            values = json.loads(process.stdout.readline())["parameters"]
            say({"tell": {"id": number, "state": "done", "values": [loss(values)]}})
        process.stdin.close()


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", choices=("bare", "child"))
    options = parser.parse_args()
    if options.only:
        began, before = time.perf_counter(), cpu_s()
        (bare if options.only == "bare" else child)(options.trials)
        print(json.dumps([time.perf_counter() - began, cpu_s() - before]))
        return
    found: dict[str, list[list[float]]] = {"bare": [], "child": []}
    for _ in range(options.times):
        for way in found:
            command = [sys.executable, __file__, "--trials", str(options.trials), "--only", way]
            found[way].append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    for way, rows in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{way}: {wall:.2f} s, {cpu:.2f} s of CPU, {1e3 * cpu / options.trials:.2f} ms of CPU a trial")
    pairs = [b[1] / a[1] for a, b in zip(found["bare"], found["child"], strict=True)]
    print(f"child / bare, CPU, median of {options.times} pairs: {statistics.median(pairs):.3f}")


if __name__ == "__main__":
    main()
