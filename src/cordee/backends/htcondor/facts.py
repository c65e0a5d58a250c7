"""What an HTCondor pool says of a run: its newest job, why no machine takes it, and the machines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

from cordee.backends.facts import GONE, HELD, SUSPENDED, NodeGroup, SchedulerFacts
from cordee.backends.htcondor.job_states import end_words, state_of
from cordee.backends.htcondor.queue import IDLE, CondorJob, HTCondorError, ended_job, jobs_of, read_ads, run_command
from cordee.job.submit.settle import newest_at_home
from cordee.runs.folder import RunFolder
from cordee.runs.log_tails import last_lines

_COMMAND_S = 10.0
_ANALYSIS_S = 20.0  # it looks at each machine of the pool
_KIB, _MIB = 1 << 10, 1 << 20
_STATES = {"held": HELD, "suspended": SUSPENDED, "waiting": "PENDING", "running": "RUNNING"}
_RESOURCES = ("Cpus", "Memory", "Disk", "GPUs")
_UNITS = {"Memory": _MIB, "Disk": _KIB}
_MACHINE = (
    "State",
    *_RESOURCES,
    *(f"TotalSlot{name}" for name in _RESOURCES),
    "PartitionableSlot",
    "GPUs_GlobalMemoryMb",
    "GPUs_Capability",
)
_MOST_GROUPS = 100

_Answer = TypeVar("_Answer")


class _AnalysisLine(NamedTuple):
    """A part of a job's requirements, and how many slots meet it."""

    text: str
    matched: int


@dataclass(frozen=True)
class PoolAnalysis:
    """What `condor_q -better-analyze` says.

    Attributes:
        conditions: parts of the requirements that no slot meets as it is now.
        refusing: how many machines do not take the job by rules of their own.
    """

    conditions: tuple[str, ...] = ()
    refusing: int = 0


@dataclass(frozen=True)
class PoolFit:
    """How a job fits on the machines of the pool, in bytes and counts.

    Attributes:
        machines: how many there are.
        large_enough: how many of them could ever run the job, by what it asks for.
        free: how many of these could run it now.
        most: the largest of each, by what is asked for: `memory`, `disk`, `cpus`, `gpus`.
    """

    machines: int
    large_enough: int
    free: int
    most: dict[str, float]


class _Questions:
    """Asks one thing after the other and remembers what could not be asked."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def ask(self, what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """Return what `ask` returns; None where it raises HTCondorError."""
        try:
            return ask()
        except HTCondorError as error:
            self.unknown.append(f"{what}: {error.argv[0]}: {error.text}")
            return None


def collect_facts(folder: RunFolder, job: str | None) -> SchedulerFacts:
    """Return what the pool knows of a run's newest job with a few quick commands; never raises for the pool's sake.

    Args:
        job: the newest job by the journal.
    """
    asking = _Questions()
    facts = SchedulerFacts("htcondor", job)
    jobs = asking.ask("your jobs", lambda: jobs_of([folder], others=True, most_s=_COMMAND_S))
    own = [one for one in jobs or [] if one.run == folder.id]
    found = next((one for one in reversed(own) if one.active), None)
    if found is not None:
        facts = _of_job(replace(facts, own_jobs=_by_state(jobs or [])), found, folder)
        facts = replace(facts, state=_STATES[state_of(found).standing], reason=state_of(found).text)
        if found.status == IDLE and found.made:
            facts = _with_pool(facts, found, asking)
    elif jobs is not None:
        ended = asking.ask("how its job ended", lambda: ended_job(folder.id, most_s=_COMMAND_S))
        last = ended or next(reversed(own), None)
        if last is not None:
            state, _, reason = end_words(last).partition(" ")
            facts = replace(_of_job(facts, last, folder), state=state, reason=reason)
        elif job is not None and not asking.unknown:
            facts = replace(facts, state=GONE)
    return replace(facts, unknown=tuple(asking.unknown))


def _by_state(jobs: Iterable[CondorJob]) -> dict[str, int]:
    return dict(Counter(_STATES[state_of(job).standing] for job in jobs if job.active))


def _of_job(facts: SchedulerFacts, job: CondorJob, folder: RunFolder) -> SchedulerFacts:
    code, signal = job.ad.get("ExitCode"), job.ad.get("ExitSignal")
    output = (line for end in ("out", "err") for line in last_lines(folder.submit / f"htcondor-{job.id}.{end}"))
    return replace(
        facts,
        job=job.id,
        submitted_at=job.number("QDate") or None,
        exit_code=code if isinstance(code, int) and not job.active else None,
        signal=signal if isinstance(signal, int) and job.ad.get("ExitBySignal") else None,
        cores=int(job.number("RequestCpus")) or None,
        gpus_per_node=int(job.number("RequestGPUs")) or None,
        memory_bytes=int(job.number("RequestMemory") * _MIB) or None,
        most_rss_bytes=int(job.memory_used_mib * _MIB) or None,
        node_count=1,
        nodes=job.text("RemoteHost"),
        restarts=max(0, job.starts - 1),
        batch_output=tuple(output),
        own={"job": job.ad, "at_home": newest_at_home(folder)},
    )


def _with_pool(facts: SchedulerFacts, job: CondorJob, asking: _Questions) -> SchedulerFacts:
    """Add what stands in the way of a job that waits."""
    argv = ["condor_status", "-constraint", 'SlotType =!= "Dynamic"', "-json", "-attributes", ",".join(_MACHINE)]
    machines = asking.ask("the machines", lambda: read_ads(argv[0], run_command(argv, most_s=_COMMAND_S)))
    why = ["condor_q", "-better-analyze", job.id]
    analysis = asking.ask("why no machine takes it", lambda: read_analysis(run_command(why, most_s=_ANALYSIS_S)))
    own = dict(facts.own)
    if machines is not None:
        own["pool"] = asdict(_pool_of(machines, job))
        facts = replace(facts, node_groups=_groups(machines))
    if analysis is not None:
        own["analysis"] = asdict(analysis)
    return replace(facts, own=own)


def asked_of(job: CondorJob) -> dict[str, float]:
    """Return what a job asks for, in bytes and counts, by the names of `PoolFit.most`."""
    return {name.casefold(): job.number(f"Request{name}") * _UNITS.get(name, 1) for name in _RESOURCES}


def _pool_of(machines: list[dict[str, Any]], job: CondorJob) -> PoolFit:
    asked = asked_of(job)
    sizes = [_size(machine, "TotalSlot") for machine in machines]
    enough = [
        machine
        for machine, size in zip(machines, sizes, strict=True)
        if _covers(size, asked) and _has_such_gpus(machine, job)
    ]
    free = sum(_is_usable(machine) and _covers(_size(machine, ""), asked) for machine in enough)
    return PoolFit(
        len(machines), len(enough), free, {name: max((size[name] for size in sizes), default=0) for name in asked}
    )


def _size(machine: dict[str, Any], prefix: str) -> dict[str, float]:
    values = CondorJob(machine)
    return {name.casefold(): values.number(f"{prefix}{name}") * _UNITS.get(name, 1) for name in _RESOURCES}


def _covers(size: dict[str, float], asked: dict[str, float]) -> bool:
    return all(size[name] >= value for name, value in asked.items())


def _has_such_gpus(machine: dict[str, Any], job: CondorJob) -> bool:
    """Return whether nothing says that the GPUs of a machine are too small or too old; where they differ, nothing does."""
    pairs = (("GPUs_GlobalMemoryMb", "GPUsMinMemory"), ("GPUs_Capability", "GPUsMinCapability"))
    if not job.number("RequestGPUs"):
        return True
    return all(name not in machine or CondorJob(machine).number(name) >= job.number(least) for name, least in pairs)


def _is_usable(machine: dict[str, Any]) -> bool:
    """Return whether a machine takes jobs now: one that is divided does by its rest, another as a whole."""
    return bool(machine.get("PartitionableSlot")) or machine.get("State") == "Unclaimed"


def _groups(machines: list[dict[str, Any]]) -> tuple[NodeGroup, ...]:
    """Return the machines as groups of alike ones, the largest groups first."""
    alike: Counter[NodeGroup] = Counter()
    for machine in machines:
        size = {name: int(value) for name, value in _size(machine, "TotalSlot").items()}
        state = str(machine.get("State", "")).casefold()
        alike[NodeGroup("", state, 1, "", size["cpus"], size["memory"], size["gpus"], disk_bytes=size["disk"])] += 1
    return tuple(replace(group, count=count) for group, count in alike.most_common(_MOST_GROUPS))


def read_analysis(text: str) -> PoolAnalysis:
    """Return what the text of `condor_q -better-analyze` says.

    A line is a condition (`[5]  0  TARGET.Memory >= RequestMemory`) or joins others (`[7]  0  [0] && [5]`).
    """
    lines = {
        int(number): _AnalysisLine(" ".join(what.split()), int(matched))
        for number, matched, what in re.findall(r"^\[(\d+)\]\s+(\d+)\s+(\S.*)$", text, re.MULTILINE)
    }
    parts = {at: [int(part) for part in re.findall(r"\[(\d+)\]", line.text)] for at, line in lines.items()}
    joined = {part for at, line in lines.items() if "||" in line.text and _joins(line) for part in parts[at]}

    def words(at: int) -> str:
        if at not in lines or not _joins(lines[at]):
            return lines[at].text if at in lines else f"[{at}]"
        return re.sub(r"\[(\d+)\]", lambda part: words(int(part.group(1))), lines[at].text)

    unmet = [
        at
        for at, line in lines.items()
        # One of two that are joined by "or" may be unmet; and where one of two that are joined by "and" is unmet, that is why.
        if line.matched == 0
        and at not in joined
        and not (
            _joins(line) and "&&" in line.text and any(lines[part].matched == 0 for part in parts[at] if part in lines)
        )
    ]
    refusing = re.search(r"^\s*(\d+) reject your job because of their own requirements", text, re.MULTILINE)
    return PoolAnalysis(tuple(words(at) for at in unmet), int(refusing.group(1)) if refusing else 0)


def _joins(line: _AnalysisLine) -> bool:
    return bool(re.match(r"!? ?\[\d+\]", line.text))
