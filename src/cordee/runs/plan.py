"""The part of plan.json that nodes read, as types: what it is in full says `cordee.plan`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional, Union

from cordee.errors import RunFolderError, WireError
from cordee.runs.folder import RunFolder
from cordee.wire.codec import FORMS, Form, Refused, each, or_none, record


class Scheduler(NamedTuple):
    """What only a scheduler understands."""

    exclusive: bool = False


class Request(NamedTuple):
    """What the step asks for."""

    nodes: int = 1
    spare_nodes: int = 0
    cpus_per_rank: Optional[int] = None
    scheduler: Scheduler = Scheduler()


class Tasks(NamedTuple):
    """What the step runs."""

    argv: tuple[str, ...]
    env: dict[str, str]
    launch: str = "fork"
    path_prepend: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    mpi: Optional[str] = None
    bind: str = "none"
    untold: tuple[str, ...] = ()


class Begin(NamedTuple):
    """The checkpoints, path to mtime in ns, of which the run was told to begin from the newest."""

    checkpoints: dict[str, int]


class Checkpoints(NamedTuple):
    """Where checkpoints lie, and how the script is told of one: arguments, or `self` where it finds it by itself."""

    path: str
    resume: Union[tuple[str, ...], str, None] = None
    every_s: Optional[float] = None
    begin: Optional[Begin] = None


class Segment(NamedTuple):
    """How the next segment is had: requeue, resubmit, or forbidden."""

    next: str = "requeue"


class EnvironmentPlan(NamedTuple):
    """What the ranks run in: an engine by name, and a canonical document."""

    engine: str
    document: dict[str, Any]


class Step(NamedTuple):
    """One step."""

    tasks: Tasks
    checkpoint: Checkpoints
    request: Request = Request()
    segment: Segment = Segment()
    environment: Optional[EnvironmentPlan] = None


class Timeouts(NamedTuple):
    """Patience of the control plane, in seconds."""

    connect_s: float
    heartbeat_s: float
    lost_s: float
    orphan_s: float
    kill_s: float
    lease_s: float


class Sampling(NamedTuple):
    """Seconds between two samples, what samples GPUs, and whether threads are looked at."""

    interval_s: float
    gpus: str = "auto"
    threads: Optional[bool] = None


class Metrics(NamedTuple):
    """What is recorded of a training beside its own `cordee.log`."""

    adapters: tuple[str, ...] = ()
    scrape: tuple[dict[str, Any], ...] = ()
    otlp: bool = False


class Plan(NamedTuple):
    """What nodes read of the plan; `backend_part` is where a back end of others lies, as `module:object`."""

    run: str
    backend: str
    job_folder: str
    workdir: str
    folder: str
    steps: tuple[Step, ...]
    timeouts: Timeouts
    sampling: Sampling
    metrics: Metrics = Metrics()
    backend_part: Optional[str] = None

    @property
    def step(self) -> Step:
        """The only step there is for now."""
        return self.steps[0]


def _resume(value: Any) -> Any:
    texts = FORMS["tuple[str, ...]"]
    if value is None or value == "self":
        return value
    if isinstance(value, str) or texts.read is None:
        raise Refused("a list of arguments, 'self' or null")
    return texts.read(value)


_FORMS = {
    **FORMS,
    "Union[tuple[str, ...], str, None]": Form(
        frozenset((list, str, type(None))), _resume, "a list of arguments, 'self' or null"
    ),
}
_FORMS["Scheduler"] = record(Scheduler, _FORMS, "`scheduler` in the plan")
_FORMS["Request"] = record(Request, _FORMS, "`request` in the plan")
_FORMS["Tasks"] = record(Tasks, _FORMS, "`tasks` in the plan")
_FORMS["Optional[Begin]"] = or_none(record(Begin, _FORMS, "`begin` in the plan"))
_FORMS["Checkpoints"] = record(Checkpoints, _FORMS, "`checkpoint` in the plan")
_FORMS["Segment"] = record(Segment, _FORMS, "`segment` in the plan")
_FORMS["Optional[EnvironmentPlan]"] = or_none(record(EnvironmentPlan, _FORMS, "`environment` in the plan"))
_FORMS["tuple[Step, ...]"] = each(record(Step, _FORMS, "a step of the plan"), "a list of steps")
_FORMS["Timeouts"] = record(Timeouts, _FORMS, "`timeouts` in the plan")
_FORMS["Sampling"] = record(Sampling, _FORMS, "`sampling` in the plan")
_FORMS["Metrics"] = record(Metrics, _FORMS, "`metrics` in the plan")
_PLAN = record(Plan, _FORMS, "the plan")


def plan_of(document: dict[str, Any]) -> Plan:
    """Return what a plan's document says to nodes.

    Raises:
        RunFolderError: it is no plan; says what is not right.
    """
    try:
        assert _PLAN.read is not None
        plan: Plan = _PLAN.read(document)
    except WireError as error:
        raise RunFolderError(
            error.text, given=error.given, allowed=error.allowed, next="use the Cordée that made the run"
        ) from None
    if not plan.steps:
        raise RunFolderError("the plan has no step")
    return plan


def read_plan(folder: RunFolder) -> Plan:
    """Return what plan.json of a run says to nodes.

    Raises:
        RunFolderError: it is no plan.
        OSError: it cannot be read.
    """
    return plan_of(json.loads(folder.plan.read_text()))
