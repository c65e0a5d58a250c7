"""The part of plan.json that nodes read, its supervisor among them, as types: what it is in full says `cordee.plan`."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, Mapping, NamedTuple, Optional, Union

from cordee.core.errors import RunFolderError, WireError
from cordee.runs.folder import RunFolder
from cordee.wire.codec import FORMS, Form, MessageRefused, each, or_none, record


class RunScheduler(NamedTuple):
    """What only a scheduler understands."""

    exclusive: bool = False


class RunRequest(NamedTuple):
    """What the step asks for."""

    nodes: int = 1
    spare_nodes: int = 0
    cpus_per_rank: Optional[int] = None
    scheduler: RunScheduler = RunScheduler()
    min_nodes: int = 1
    ranks_per_node: int = 1


class RunTasks(NamedTuple):
    """What the step runs."""

    argv: tuple[str, ...]
    env: dict[str, str]
    launch: str = "fork"
    path_prepend: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    mpi: Optional[str] = None
    bind: str = "none"
    untold: tuple[str, ...] = ()


class RunVet(NamedTuple):
    """What is looked at on every node before the ranks; `protocol` is a resolved one (`cordee.protocol/1`)."""

    commands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    min_memory_bytes: int = 0
    min_disk_bytes: int = 0
    max_load_ratio: Optional[float] = None
    deadline_s: float = 60.0
    protocol: Optional[dict[str, Any]] = None


class RunRestart(NamedTuple):
    """Restarts without progress, the pause between them, and how long ranks must run for that to be progress."""

    retries: int = 0
    backoff_s: float = 0.0
    forget_s: Optional[float] = None


class RunBegin(NamedTuple):
    """The checkpoints, path to mtime in ns, of which the run was told to begin from the newest."""

    checkpoints: dict[str, int]


class Checkpoints(NamedTuple):
    """Where checkpoints lie, which of them are the run's, and how the script is told of one: see `cordee.plan`.

    `resume` is arguments, or `self` where the script finds the newest one by itself.
    """

    path: str
    resume: Union[tuple[str, ...], str, None] = None
    every_s: Optional[float] = None
    begin: Optional[RunBegin] = None
    pattern: str = "*"
    ignore: Mapping[str, int] = MappingProxyType({})
    own_folder: bool = False
    signal: Optional[str] = None
    grace_s: float = 0.0
    asynchronous: bool = False
    pace: str = "auto"
    keep: int = 3
    milestones: Optional[int] = None
    tiers: tuple[str, ...] = ("shared",)
    node_places: tuple[str, ...] = ()


class RunSegment(NamedTuple):
    """How long one may take, how many there may be, and how the next one is had: requeue, resubmit, or forbidden."""

    next: str = "requeue"
    limit_s: Optional[float] = None
    grace_s: float = 0.0
    max_segments: int = 1


# The site starts agents in the environment by itself, by an option of srun: no engine of ours has anything to do.
STEP_ENGINE = "step"


class RunEnvironment(NamedTuple):
    """What the ranks run in: an engine by name, and a canonical document."""

    engine: str
    document: dict[str, Any]
    option: Optional[str] = None

    @property
    def startup_s(self) -> float:
        """How long its start-up commands may take; 0: it has none."""
        return float(self.document.get("startup_s", 0.0)) if self.document.get("startup") else 0.0


class RunStep(NamedTuple):
    """One step; `systems` are the parts of systems that have no field of their own here, by their names; `data` as in the plan."""

    tasks: RunTasks
    checkpoint: Checkpoints
    request: RunRequest = RunRequest()
    segment: RunSegment = RunSegment()
    environment: Optional[RunEnvironment] = None
    systems: dict[str, Any] = {}  # noqa: RUF012
    vet: RunVet = RunVet()
    data: tuple[dict[str, Any], ...] = ()
    restart: RunRestart = RunRestart()

    @property
    def stages(self) -> bool:
        """Whether systems make nodes what ranks need there, such as data, before ranks start."""
        parts = [part for part in self.systems.values() if isinstance(part, dict)]
        return any(one.get("stage") for one in self.data) or any(part.get("before_ranks") for part in parts)


class RunTimeouts(NamedTuple):
    """Patience of the control plane, in seconds."""

    connect_s: float
    heartbeat_s: float
    lost_s: float
    orphan_s: float
    kill_s: float
    lease_s: float


class RunSampling(NamedTuple):
    """Seconds between two samples, what samples GPUs, whether threads are looked at, whether faults of the hardware are, and for
    how long samples are kept.
    """

    interval_s: float
    gpus: str = "auto"
    threads: Optional[bool] = None
    hardware: bool = True
    keep_s: Optional[float] = None


class RunMetrics(NamedTuple):
    """What is recorded of a training beside its own `cordee.log`."""

    adapters: tuple[str, ...] = ()
    scrape: tuple[dict[str, Any], ...] = ()


class RunPlan(NamedTuple):
    """What nodes read of the plan; `node_parts` are the parts of systems, `module:object` by the name of their port, and
    `backend_part` is where a back end of others lies. `parent` is the folder of the run that this one is a child of.
    """

    run: str
    backend: str
    job_folder: str
    workdir: str
    folder: str
    steps: tuple[RunStep, ...]
    timeouts: RunTimeouts
    sampling: RunSampling
    metrics: RunMetrics = RunMetrics()
    node_parts: dict[str, str] = {}  # noqa: RUF012
    cluster: str = ""
    network_interface: Optional[str] = None
    backend_part: Optional[str] = None
    parent: Optional[str] = None
    logs_keep_bytes: Optional[int] = None

    @property
    def step(self) -> RunStep:
        """The only step there is for now."""
        return self.steps[0]


def part_in(chosen: Mapping[str, str], port: str) -> str:
    """Return the `module:object` that was chosen for a port when the run was planned.

    Args:
        chosen: `node_parts` of the plan.

    Raises:
        RunFolderError: nothing was.
    """
    if port not in chosen:
        text = f"the plan names no part for {port}"
        raise RunFolderError(text, given=sorted(chosen), next="use the Cordée that made the run")
    return chosen[port]


def _resume(value: Any) -> Any:
    texts = FORMS["tuple[str, ...]"]
    if value is None or value == "self":
        return value
    if isinstance(value, str) or texts.read is None:
        raise MessageRefused("a list of arguments, 'self' or null")
    return texts.read(value)


_FORMS = {
    **FORMS,
    "Union[tuple[str, ...], str, None]": Form(
        frozenset((list, str, type(None))), _resume, "a list of arguments, 'self' or null"
    ),
}
_FORMS["Optional[dict[str, Any]]"] = or_none(FORMS["dict[str, Any]"])
_FORMS["Mapping[str, int]"] = FORMS["dict[str, int]"]
_FORMS["RunVet"] = record(RunVet, _FORMS, "`vet` in the plan")
_FORMS["RunRestart"] = record(RunRestart, _FORMS, "`restart` in the plan")
_FORMS["RunScheduler"] = record(RunScheduler, _FORMS, "`scheduler` in the plan")
_FORMS["RunRequest"] = record(RunRequest, _FORMS, "`request` in the plan")
_FORMS["RunTasks"] = record(RunTasks, _FORMS, "`tasks` in the plan")
_FORMS["Optional[RunBegin]"] = or_none(record(RunBegin, _FORMS, "`begin` in the plan"))
_FORMS["Checkpoints"] = record(Checkpoints, _FORMS, "`checkpoint` in the plan")
_FORMS["RunSegment"] = record(RunSegment, _FORMS, "`segment` in the plan")
_FORMS["Optional[RunEnvironment]"] = or_none(record(RunEnvironment, _FORMS, "`environment` in the plan"))
_FORMS["tuple[RunStep, ...]"] = each(record(RunStep, _FORMS, "a step of the plan"), "a list of steps")
_FORMS["RunTimeouts"] = record(RunTimeouts, _FORMS, "`timeouts` in the plan")
_FORMS["RunSampling"] = record(RunSampling, _FORMS, "`sampling` in the plan")
_FORMS["RunMetrics"] = record(RunMetrics, _FORMS, "`metrics` in the plan")
_PLAN = record(RunPlan, _FORMS, "the plan")


def plan_of(document: dict[str, Any]) -> RunPlan:
    """Return what a plan's document says to nodes.

    Raises:
        RunFolderError: it is no plan; says what is not right.
    """
    try:
        assert _PLAN.read is not None
        plan: RunPlan = _PLAN.read(document)
    except WireError as error:
        raise RunFolderError(
            error.text, given=error.given, allowed=error.allowed, next="use the Cordée that made the run"
        ) from None
    if not plan.steps:
        raise RunFolderError("the plan has no step")
    return plan


def read_plan(folder: RunFolder) -> RunPlan:
    """Return what plan.json of a run says to nodes.

    Raises:
        RunFolderError: it is no plan.
        OSError: it cannot be read.
    """
    return plan_of(json.loads(folder.plan.read_text()))
