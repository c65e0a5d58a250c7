"""What is planned for a farm: its tasks are read, and held against the time and the nodes that it asks for."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cordee.core.backends import abilities
from cordee.core.documents.faults import ValuePlace, findings_of
from cordee.core.documents.merge import Merge
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.job.command import launches_itself
from cordee.job.document import Job
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.job.trials import LEARNING, FarmTable, SweepSettings, parameters_of, retries_of, settings_of
from cordee.machine.foreign_files import digest_regular
from cordee.machine.slots import SlotRequest
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.trials.arrays import SCRIPT
from cordee.systems.trials.formats import TaskDefaults, array_in, read_file, text_of_list
from cordee.systems.trials.node.task_list import FIRST, FOLDER, JOURNAL, FarmTask, lines_of, read_tasks
from cordee.systems.trials.sampler import missing
from cordee.systems.trials.space import SweepParameter, choose, space_of

# The largest number that Slurm gives a job.
_MOST_JOB = 67_000_000


def read_sweep(
    job: Job, folder: Path, profile: object, merge: Merge
) -> tuple[SweepSettings | None, list[Finding], list[Finding]]:
    """Return what [sweep] says beside its parameters, and what is wrong with that; no notes."""
    try:
        return settings_of(job.sweep) if job.sweep else None, [], []
    except ValidationError as error:

        def place(path: Keys) -> ValuePlace:
            found = merge.place(("sweep", *path), ValuePlace())
            return replace(found, prefix=(*found.prefix, "sweep"))

        return None, findings_of(error, SweepSettings, job.sweep, place), []


class TrialsExamination(Examination):
    """See Examination."""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        super().__init__(loaded, run_folder)
        self._tasks: list[FarmTask] = []
        self._saying = JobFindings(loaded)
        self._table = "farm" if loaded.job.farm is not None else "sweep"

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        part = self._farm(self.loaded.job.farm) if self.loaded.job.farm is not None else self._sweep()
        return Contribution({"tasks": len(self._tasks), **part}, self._saying.findings)

    def _farm(self, farm: FarmTable) -> dict[str, Any]:
        path = self.loaded.folder / farm.file
        read = {"file": str(path), "digest": digest_regular(path)} if self._read("file") else {}
        if not any(name in word for word in self.loaded.job.run for name in ("{line}", "{number}")):
            text = "every task would run the same command: run has no {line}"
            about = {"given": self.loaded.job.run, "allowed": "{line}, {number}"}
            self._saying.error("run", "farm-run", text, **about, next="write {line} where the task's line belongs")
        part = {"retries": retries_of(farm.retries), "order": farm.order, "stop_after": farm.stop_after}
        # What tasks that are added later ask for, unless their lines say something else.
        asks = {"cores": farm.cores, "gpus": farm.gpus, "memory_bytes": farm.memory, "time_s": farm.time}
        return {**part, "format": farm.format, **asks, **read, **(self._array(path, farm.format) if read else {})}

    def _array(self, path: Path, kind: str) -> dict[str, Any]:
        """Return what is planned for a job array, and say what of its script a farm does not do."""
        array = array_in(path, kind)
        if array is None:
            return {}
        if array.unheeded:
            text = f"not done as sbatch would: {'; '.join(array.unheeded)}"
            self._saying.findings.append(Finding(text, "warn", "farm-array", str(path), array.line))
        return {"at_once": array.at_once}

    def _sweep(self) -> dict[str, Any]:
        if not self._read("goal"):
            return {"retries": 0}
        settings = settings_of(self.loaded.job.sweep)
        words = " ".join(self.loaded.job.run)
        names = parameters_of(self.loaded.job.sweep)
        for name in (name for name in names if f"{{{name}}}" not in words):
            text, what = f"the trials would not differ in {name}: run has no {{{name}}}", "where its value belongs"
            about = {"given": name, "allowed": f"{{{name}}} in run", "next": f"write {{{name}}} {what}"}
            self._saying.error(f"sweep.{name}", "sweep-run", text, **about)
        space = space_of(names)
        self._understood(settings, space)
        if settings.ranks > 1 and launches_itself(self.loaded.job.run):
            text = f"each of the {settings.ranks} ranks of a trial on a node starts a launcher, and that starts ranks of its own"
            what = "set [sweep] ranks = 1, and say to the launcher how many it is to start"
            self._saying.warn("sweep.ranks", "sweep-ranks", text, given=settings.ranks, allowed="1", next=what)
        halving = settings.halving
        part: dict[str, Any] = {
            "retries": retries_of(settings.retries),
            "goals": [goal.split() for goal in settings.goal],
            "result": settings.result,
            "track": settings.track,
            "names": list(names),
            "nodes": settings.nodes,
            "halving": None if halving is None else [halving.first, halving.factor],
            "sweep": dict(self.loaded.job.sweep),
        }
        if settings.sampler in LEARNING:
            self._learning(settings)
            kept = ("sampler", "seed", "trials", "cores", "gpus", "nodes", "ranks")
            sampling = {name: getattr(settings, name) for name in kept}
            sampling.update(memory_bytes=settings.memory, time_s=settings.time)
            part["sampling"] = {**sampling, "space": [one.document() for one in space]}
        return part

    def _understood(self, settings: SweepSettings, space: Sequence[SweepParameter]) -> None:
        """Say how the sweep was understood: a range of whole numbers looks much like one of real ones."""
        count = settings.trials if settings.sampler in LEARNING else len(self._tasks)
        sampler = settings.sampler or ("sobol" if settings.trials else "grid")
        text = f"{count} trials by {sampler}; {'; '.join(one.words for one in space)}"
        self._saying.info("sweep.goal", "sweep-understood", text)

    def _learning(self, settings: SweepSettings) -> None:
        """Say what a sampler that learns lacks."""
        assert settings.sampler is not None

        def wrong(key: str, text: str, given: Any, allowed: str, what: str) -> None:
            self._saying.error(f"sweep.{key}", f"sweep-{key}", text, given=given, allowed=allowed, next=what)

        lacking = missing(settings.sampler)
        if lacking:
            text = f"the sampler {settings.sampler} needs {', '.join(lacking)}, which {sys.executable} does not have"
            wrong("sampler", text, settings.sampler, "grid, random, sobol", "pip install 'cordee[sweep]'")
        if settings.sampler == "cma" and len(settings.goal) > 1:
            goals = list(settings.goal)
            wrong("goal", "cma knows one goal only", goals, "tpe, gp or nsga for several", "change sampler")
        if settings.trials is None:
            text = f"the sampler {settings.sampler} needs to know how many"
            wrong("sampler", text, None, "trials = 64", "set [sweep] trials")

    def _read(self, key: str) -> bool:
        """Read the tasks; returns False, and says what is wrong with them, where they cannot be read."""
        try:
            self._tasks = tasks_of(self.loaded.job, self.loaded.folder)
        except DocumentError as error:
            named = [name for name in parameters_of(self.loaded.job.sweep) if error.text.startswith(f"sweep.{name} ")]
            file, line = (error.file, error.line) if error.file else self.loaded.place(self._table, *(named or [key]))
            about = (error.given, error.allowed, error.next)
            self._saying.findings.append(Finding(error.text, "error", f"{self._table}-{key}", file, line, *about))
        else:
            return True
        return False

    def judge(self, plan: Plan) -> list[Finding]:
        self._saying = JobFindings(self.loaded)
        self._too_long(plan)
        self._too_large(plan)
        self._too_wide(plan)
        return self._saying.findings

    def _too_long(self, plan: Plan) -> None:
        """Refuse tasks that no job of the run has the time for."""
        segment = plan.step.segment
        if segment.limit_s is None:
            return
        most_s = segment.limit_s - segment.grace_s
        long = [task for task in self._tasks if task.time_s is not None and task.time_s > most_s]
        if long:
            one = max(long, key=lambda task: task.time_s or 0.0)
            longest = format_duration(one.time_s or 0)
            which = f"line {one.line} for {longest}" if one.line else longest
            text = f"{_count(long)} asks for more time than a job of this run has for tasks: {which}"
            what = "ask for more [need] time, a shorter [checkpoint] grace, or less time for the task"
            allowed = f"at most {format_duration(most_s)}"
            self._saying.error(f"{self._table}.time", "farm-time", text, given=longest, allowed=allowed, next=what)

    def _too_large(self, plan: Plan) -> None:
        """Refuse tasks that ask for more GPUs than the job's nodes have."""
        most = plan.step.request.gpus_per_node
        large = [task for task in self._tasks if task.asks.devices > most]
        if large and abilities(plan.backend).queues:
            text = f"{_count(large)} asks for more GPUs than the job's nodes have"
            about = {"given": large[0].asks.gpus, "allowed": f"at most {most}", "next": "set [need] gpus_per_node"}
            self._saying.error(f"{self._table}.gpus", "farm-gpus", text, **about)

    def _too_wide(self, plan: Plan) -> None:
        """Refuse trials of more nodes than the job has."""
        nodes, least = plan.step.systems["trials"].get("nodes", 1), plan.step.request.min_nodes
        if nodes > least:
            text = "each trial asks for more nodes than the job is sure to have"
            what = "ask for more by [need] nodes (and min_nodes), or for fewer by [sweep] nodes"
            self._saying.error("sweep.nodes", "sweep-nodes", text, given=nodes, allowed=f"at most {least}", next=what)


def _count(tasks: list[FarmTask]) -> str:
    return "one task" if len(tasks) == 1 else f"each of {len(tasks)} tasks"


def trials_of(sweep: Mapping[str, Any], more: int = 0) -> list[FarmTask]:
    """Return the trials of a sweep.

    Args:
        sweep: the table.
        more: how many there are to be beyond what it says.

    Raises:
        DocumentError: as `choose`.
    """
    settings = settings_of(sweep)
    space = space_of(parameters_of(sweep))
    if settings.sampler in LEARNING:
        return []
    sampler = settings.sampler or ("sobol" if settings.trials else "grid")
    asks = SlotRequest(settings.cores, settings.gpus, settings.memory or 0)
    trials = None if settings.trials is None else settings.trials + more
    values = choose(space, sampler, trials, settings.seed)
    world = {"nodes": settings.nodes, "ranks": settings.ranks}
    return [FarmTask(index, one, asks, settings.time, **world) for index, one in enumerate(values)]


def tasks_of(job: Job, folder: Path, array_job: int = 0) -> list[FarmTask]:
    """Return the tasks of a farm's file, or the trials of a sweep.

    Args:
        array_job: the number by which the tasks of a job array know it.

    Raises:
        DocumentError: as `read_file` and `choose`.
    """
    farm = job.farm
    if farm is None:
        return trials_of(job.sweep)
    asks, said = SlotRequest(farm.cores, farm.gpus, farm.memory or 0), frozenset(farm.model_fields_set)
    defaults = TaskDefaults(asks, farm.time, said, array_job)
    return read_file(folder / farm.file, farm.format, defaults)


@functools.lru_cache(maxsize=1)
def _dealt_out(parent: str) -> list[FarmTask]:
    """Return the tasks of a run that are dealt out to those below it: they are kept before these."""
    return read_tasks(Path(parent), [FIRST])


def keep_tasks(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Write the list of tasks into the run's folder: from here on it alone counts, whatever becomes of the file.

    Raises:
        OSError: it cannot be written.
    """
    farm = loaded.job.farm
    share = plan.step.systems["trials"].get("share")
    if share and plan.parent:
        tasks = _dealt_out(plan.parent)[share[0] :: share[1]]
    else:
        tasks = tasks_of(loaded.job, loaded.folder, zlib.crc32(folder.id.encode()) % _MOST_JOB + 1)
    here = folder.root / FOLDER
    (here / JOURNAL).mkdir(mode=0o700, parents=True)
    write_atomically(here / FIRST, lines_of(tasks), durable=not plan.parent)
    if farm is not None and array_in(loaded.folder / farm.file, farm.format) is not None:
        (here / SCRIPT).write_text(text_of_list(loaded.folder / farm.file), encoding="utf-8")
    return ()
