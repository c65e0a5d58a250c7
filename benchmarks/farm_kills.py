"""Kills parts of farms with SIGKILL at random moments, again and again: what has ended never runs again, what was lost runs again alone.

    python benchmarks/farm_kills.py --kills 50 --tasks 2000

A farm of so many tasks on two nodes of this machine. While it runs, one of these is killed, chosen by chance: an agent, the supervisor, a node (its
agent and all that runs below it, at once), or a client, which is adding a task to the farm or follows it. Where a farm ends before all kills
are done, another begins. `--kinds supervisor` kills nothing else: then no task may begin twice. Each task holds a lock while anything of it lives, and writes when its tries begin and end.

Right is: every task done once in the journal; no try begins behind the one that has ended (whatever the clocks say); a try without an end is
followed by the next one; no two tries of a task at once; nothing left behind. One line of JSON for each farm, then a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kill_groups import ended, left_behind, pid_of

from cordee.machine.processes import tree
from cordee.runs.journal import read_journal
from cordee.systems.trials.shown import Farm
from support.runs.real_run import LocalRun

TASK = (
    "exec 9> {folder}/locks/$CORDEE_TASK_ID; flock -n 9 || {{ echo $CORDEE_TASK_ID $CORDEE_TASK_TRY twice >> {folder}/trace; exit 9; }}; "
    "echo $CORDEE_TASK_ID $CORDEE_TASK_TRY begin >> {folder}/trace; sleep {seconds:.2f}; echo $CORDEE_TASK_ID $CORDEE_TASK_TRY end >> {folder}/trace"
)
KINDS = ("agent", "supervisor", "client", "node")
NODES = ("local-0", "local-1")
_FIRST_S, _LAST_S = 0.5, 5.0
_COMES_S = 60.0


class KilledFarm:
    """One farm.

    Args:
        folder: a scratch folder.
        tasks: how many.
        seed: of what is killed, and when.
        kinds: what may be.
    """

    def __init__(self, folder: Path, tasks: int, seed: int, kinds: Sequence[str] = KINDS) -> None:
        self._folder, self._random, self._count, self._kinds = folder, random.Random(seed), tasks, kinds
        (folder / "locks").mkdir(parents=True)
        self._job = folder / "job"
        self._job.mkdir()
        self._job.joinpath("tasks.txt").write_text("".join(self._line() for _ in range(tasks)))
        self._job.joinpath("cordee.toml").write_text(
            'name = "kills"\nrun = ["sh", "-c", "{line}"]\n[farm]\nfile = "tasks.txt"\n[need]\nnodes = 2\n[restart]\nretries = 100000\n'
        )
        self._clients: list[subprocess.Popen[bytes]] = []

    def _line(self) -> str:
        return TASK.format(folder=self._folder, seconds=self._random.uniform(0.3, 0.9)) + "\n"

    def run(self, kills: int) -> dict[str, Any]:
        """Run it, with so many kills at most; returns what happened."""
        began, killed, resumed = time.monotonic(), [], 0
        with LocalRun(self._job, self._folder / "runs", vet__max_load=1000.0, timeouts__lost=8.0) as run:
            run.wait_training()
            while len(killed) < kills and not run.state.ended:
                time.sleep(self._random.uniform(_FIRST_S, _LAST_S))
                killed += self._kill(run)
            state, resumed = ended(run)
            for client in self._clients:
                client.wait()
            wrong = [] if state.state == "finished" else [f"it ended {state.state}: {state.text}"]
            found = self._look(run)
            wrong += found.pop("wrong") + left_behind(run) + self._orphans()
        return {
            **{
                "killed": dict(Counter(killed)),
                "attempts": state.attempt,
                "supervisors": state.epoch,
                "resumed": resumed,
            },
            **{**found, "seconds": round(time.monotonic() - began, 1), "run": str(run.folder.root), "wrong": wrong},
        }

    def _kill(self, run: LocalRun) -> list[str]:
        """Kill one part; returns what it was, nothing where the run ended first."""
        kind, node = self._random.choice(self._kinds), self._random.choice(NODES)
        if kind == "client":
            self._kill_client(run)
            return [kind]
        part = "supervisor" if kind == "supervisor" else f"agent {node}"
        deadline = time.monotonic() + _COMES_S
        while not (pid := pid_of(run, part)):
            if run.state.ended or time.monotonic() > deadline:
                return []
            time.sleep(0.1)
        pids = [pid]
        if kind == "node":
            pids += [one.pid for one in tree.with_marker(f"{run.folder.id}/{node}/")]
        for one in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        return [kind]

    def _kill_client(self, run: LocalRun) -> None:
        """Start a client that adds a task and follows the farm, and kill it somewhere on its way."""
        more = self._folder / f"more-{len(self._clients)}.txt"
        more.write_text(self._line())
        command = [sys.executable, "-m", "cordee.faces.cli", "farm", "add", str(run.folder.root), str(more)]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._clients.append(client)
        time.sleep(self._random.uniform(0.2, 4.0))
        client.kill()

    def _look(self, run: LocalRun) -> dict[str, Any]:
        """Hold what the tasks wrote against the journal."""
        farm = Farm(run.folder.root)
        events = read_journal(run.folder.root / "tasks" / "journal")
        rows = [row for event in events if event["event"] == "tasks_ended" for row in event["ended"]]
        done = defaultdict(list)
        for row in rows:
            if row[2] in ("done", "failed"):
                done[row[0]].append(row[1])
        begun: dict[int, list[int]] = defaultdict(list)
        ends: dict[int, list[int]] = defaultdict(list)
        twice = []
        for line in (self._folder / "trace").read_text().splitlines():
            task, number, what = line.split()
            if what == "twice":
                twice.append(f"task {task}: try {number} while another ran")
            else:
                (begun if what == "begin" else ends)[int(task)].append(int(number))
        wrong = list(twice)
        for task in (task.id for task in farm.tasks):
            if len(done[task]) != 1:
                wrong.append(f"task {task} has {len(done[task])} ends")
                continue
            last = done[task][0]
            if begun[task] != sorted(set(begun[task])):
                wrong.append(f"task {task}: tries began in the order {begun[task]}")
            if begun[task][-1:] != [last] or last not in ends[task]:
                wrong.append(f"task {task}: try {last} counts, tries {begun[task]} began, {ends[task]} ended")
        again = [task for task, numbers in begun.items() if len(numbers) > 1]
        if self._kinds == ["supervisor"]:
            wrong += [f"task {task} began again though only supervisors were killed" for task in again]
        unended = sum(len(set(begun[task]) - set(ends[task])) for task in begun)
        lone = sum(len(set(ends[task])) > 1 for task in ends)
        return {
            **{"tasks": len(farm.tasks), "ends": sum(map(len, done.values())), "run_again": len(again)},
            **{"broken_off": unended, "ended_unheard": lone, "most_tries": max(map(len, begun.values()))},
            "wrong": wrong,
        }

    def _orphans(self) -> list[str]:
        """Return the processes of tasks that live: they name the folder."""
        found = []
        for process in tree.all_processes().values():
            with contextlib.suppress(OSError):
                if str(self._folder / "locks").encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                    found.append(f"process {process.pid} of a task is left")
        return found


def main() -> int:
    """Run farms until all kills are done; exit code 1 when something was not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="what is killed")
    parser.add_argument("--seed", type=int, default=1, help="of the first farm")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    while (left := options.kills - sum(sum(one["killed"].values()) for one in found)) > 0:
        folder = Path(tempfile.mkdtemp(prefix="farm-kills-"))
        found.append(KilledFarm(folder, options.tasks, options.seed + len(found), options.kinds).run(left))
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    kinds = Counter[str]()
    for one in found:
        kinds.update(one["killed"])

    def total(name: str) -> int:
        return sum(one[name] for one in found)

    print("| what | how many |\n|---|---|")
    print(f"| farms, tasks with those that clients added | {len(found)}, {total('tasks')} |")
    print(f"| killed: {', '.join(KINDS)} | {', '.join(str(kinds[kind]) for kind in KINDS)} |")
    print(
        f"| attempts, supervisors, `cordee resume` | {total('attempts')}, {total('supervisors')}, {total('resumed')} |"
    )
    print(f"| ends in the journals | {total('ends')} |")
    print(f"| tasks that ran again | {total('run_again')}, at most {max(one['most_tries'] for one in found)} tries |")
    print(f"| tries broken off; ended and unheard, so run again | {total('broken_off')}; {total('ended_unheard')} |")
    print(f"| not right | {sum(len(one['wrong']) for one in found)} |")
    return 1 if any(one["wrong"] for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
