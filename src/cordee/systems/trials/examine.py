"""What is planned for a farm: its tasks are read, and held against the time and the nodes that it asks for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cordee.core.backends import abilities
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.job.trials import FarmTable
from cordee.machine.slots import SlotRequest
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.trials.formats import ARRAY_SCRIPT, TaskDefaults, read_file
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, lines_of


class TrialsExamination(Examination):
    """See Examination."""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        super().__init__(loaded, run_folder)
        self._tasks: list[FarmTask] = []

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        farm = self.loaded.job.farm
        assert farm is not None
        findings: list[Finding] = []
        try:
            self._tasks = tasks_of(farm, self.loaded.folder)
        except DocumentError as error:
            file, line = (error.file, error.line) if error.file else self.loaded.place("farm", "file")
            findings.append(
                Finding(error.text, "error", "farm-file", file, line, error.given, error.allowed, error.next)
            )
        if not any(name in word for word in self.loaded.job.run for name in ("{line}", "{number}")):
            file, line = self.loaded.place("run")
            text = "every task would run the same command: run has no {line}"
            findings.append(
                Finding(
                    text,
                    "error",
                    "farm-run",
                    file,
                    line,
                    self.loaded.job.run,
                    "{line}, {number}",
                    "write {line} where the task's line belongs",
                )
            )
        part = {
            "tasks": len(self._tasks),
            "retries": farm.retries,
            "order": farm.order,
            "stop_after": farm.stop_after,
            **_of_each(farm),
        }
        return Contribution(part, findings)

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


def tasks_of(farm: FarmTable, folder: Path) -> list[FarmTask]:
    """Return the tasks of a farm's file.

    Raises:
        DocumentError: as `read_file`.
    """
    defaults = TaskDefaults(SlotRequest(farm.cores, farm.gpus, farm.memory or 0), farm.time)
    return read_file(folder / farm.file, farm.format, defaults)


def keep_tasks(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Write the list of tasks into the run's folder: from here on it alone counts, whatever becomes of the file.

    Raises:
        OSError: it cannot be written.
    """
    farm = loaded.job.farm
    assert farm is not None
    tasks = tasks_of(farm, loaded.folder)
    here = folder.root / FOLDER
    (here / JOURNAL).mkdir(mode=0o700, parents=True)
    write_atomically(here / FIRST, lines_of(tasks))
    if any(ARRAY_SCRIPT in task.values["line"] for task in tasks[:1]):
        shutil.copyfile(loaded.folder / farm.file, here / ARRAY_SCRIPT)
    return ()
