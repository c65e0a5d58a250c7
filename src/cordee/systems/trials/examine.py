"""What is planned for a farm: its tasks are read, and held against the time and the nodes that it asks for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cordee.core.backends import abilities
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.document import Job
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.job.trials import FarmTable, parameters_of, settings_of
from cordee.machine.slots import SlotRequest
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.trials.formats import ARRAY_SCRIPT, TaskDefaults, read_file
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, lines_of
from cordee.systems.trials.space import choose, parameter


class TrialsExamination(Examination):
    """See Examination."""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        super().__init__(loaded, run_folder)
        self._tasks: list[FarmTask] = []

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        return self._farm(self.loaded.job.farm) if self.loaded.job.farm is not None else self._sweep()

    def _farm(self, farm: FarmTable) -> Contribution:
        findings = self._read("farm", "file")
        if not any(name in word for word in self.loaded.job.run for name in ("{line}", "{number}")):
            file, line = self.loaded.place("run")
            text, what = (
                "every task would run the same command: run has no {line}",
                "write {line} where the task's line belongs",
            )
            findings.append(
                Finding(text, "error", "farm-run", file, line, self.loaded.job.run, "{line}, {number}", what)
            )
        part = {"tasks": len(self._tasks), "retries": farm.retries, "order": farm.order, "stop_after": farm.stop_after}
        return Contribution({**part, **_of_each(farm)}, findings)

    def _sweep(self) -> Contribution:
        findings = self._read("sweep", "goal")
        if findings:
            return Contribution({"tasks": 0, "retries": 0}, findings)
        settings = settings_of(self.loaded.job.sweep)
        words = " ".join(self.loaded.job.run)
        for name in parameters_of(self.loaded.job.sweep):
            if f"{{{name}}}" not in words:
                file, line = self.loaded.place("sweep", name)
                text, allowed = f"the trials would not differ in {name}: run has no {{{name}}}", f"{{{name}}} in run"
                findings.append(
                    Finding(
                        text,
                        "error",
                        "sweep-run",
                        file,
                        line,
                        name,
                        allowed,
                        f"write {{{name}}} where its value belongs",
                    )
                )
        aim, metric = settings.goal.split()
        part = {"tasks": len(self._tasks), "retries": settings.retries, "aim": aim, "metric": metric}
        return Contribution({**part, "sweep": dict(self.loaded.job.sweep)}, findings)

    def _read(self, *keys: str) -> list[Finding]:
        """Read the tasks; returns what is wrong with them."""
        try:
            self._tasks = tasks_of(self.loaded.job, self.loaded.folder)
        except ValidationError as error:
            file, line = self.loaded.place("sweep")
            return [
                Finding(f"sweep.{'.'.join(map(str, fault['loc']))}: {fault['msg']}", "error", "sweep", file, line)
                for fault in error.errors()
            ]
        except DocumentError as error:
            file, line = (error.file, error.line) if error.file else self.loaded.place(*keys)
            return [
                Finding(error.text, "error", f"{keys[0]}-{keys[1]}", file, line, error.given, error.allowed, error.next)
            ]
        return []

    def judge(self, plan: Plan) -> list[Finding]:
        return [*self._too_long(plan), *self._too_large(plan)]

    def _too_long(self, plan: Plan) -> list[Finding]:
        """Refuse tasks that no job of the run has the time for."""
        segment = plan.step.segment
        if segment.limit_s is None:
            return []
        most_s = segment.limit_s - segment.grace_s
        long = [task for task in self._tasks if task.time_s is not None and task.time_s > most_s]
        if not long:
            return []
        file, line = self.loaded.place("farm", "time")
        one = max(long, key=lambda task: task.time_s or 0.0)
        text = f"{_count(long)} asks for more time than a job of this run has for tasks: line {one.line} for {format_duration(one.time_s or 0)}"
        what = "ask for more [need] time, a shorter [checkpoint] grace, or less time for the task"
        return [
            Finding(
                text,
                "error",
                "farm-time",
                file,
                line,
                format_duration(one.time_s or 0),
                f"at most {format_duration(most_s)}",
                what,
            )
        ]

    def _too_large(self, plan: Plan) -> list[Finding]:
        """Refuse tasks that ask for more GPUs than the job's nodes have."""
        most = plan.step.request.gpus_per_node
        large = [task for task in self._tasks if task.asks.devices > most]
        if not large or not abilities(plan.backend).queues:
            return []
        file, line = self.loaded.place("farm", "gpus")
        text = f"{_count(large)} asks for more GPUs than the job's nodes have"
        what = "set [need] gpus_per_node"
        return [Finding(text, "error", "farm-gpus", file, line, large[0].asks.gpus, f"at most {most}", what)]


def _of_each(farm: FarmTable) -> dict[str, object]:
    """Return what tasks that are added later ask for, unless their lines say something else."""
    return {
        "format": farm.format,
        "cores": farm.cores,
        "gpus": farm.gpus,
        "memory_bytes": farm.memory,
        "time_s": farm.time,
    }


def _count(tasks: list[FarmTask]) -> str:
    return "one task" if len(tasks) == 1 else f"each of {len(tasks)} tasks"


def trials_of(sweep: Mapping[str, Any], more: int = 0) -> list[FarmTask]:
    """Return the trials of a sweep.

    Args:
        sweep: the table.
        more: how many there are to be beyond what it says.

    Raises:
        DocumentError: as `choose`.
        ValidationError: the sweep says something that is not understood.
    """
    settings = settings_of(sweep)
    space = [parameter(name, given) for name, given in parameters_of(sweep).items()]
    sampler = settings.sampler or ("sobol" if settings.trials else "grid")
    asks = SlotRequest(settings.cores, settings.gpus, settings.memory or 0)
    trials = None if settings.trials is None else settings.trials + more
    values = choose(space, sampler, trials, settings.seed)
    return [FarmTask(index, one, asks, settings.time) for index, one in enumerate(values)]


def tasks_of(job: Job, folder: Path) -> list[FarmTask]:
    """Return the tasks of a farm's file, or the trials of a sweep.

    Raises:
        DocumentError: as `read_file` and `choose`.
        ValidationError: the sweep says something that is not understood.
    """
    farm = job.farm
    if farm is None:
        return trials_of(job.sweep)
    defaults = TaskDefaults(SlotRequest(farm.cores, farm.gpus, farm.memory or 0), farm.time)
    return read_file(folder / farm.file, farm.format, defaults)


def keep_tasks(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Write the list of tasks into the run's folder: from here on it alone counts, whatever becomes of the file.

    Raises:
        OSError: it cannot be written.
    """
    farm = loaded.job.farm
    tasks = tasks_of(loaded.job, loaded.folder)
    here = folder.root / FOLDER
    (here / JOURNAL).mkdir(mode=0o700, parents=True)
    write_atomically(here / FIRST, lines_of(tasks))
    if farm is not None and any(ARRAY_SCRIPT in task.values["line"] for task in tasks[:1]):
        shutil.copyfile(loaded.folder / farm.file, here / ARRAY_SCRIPT)
    return ()
