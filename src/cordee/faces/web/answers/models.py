"""The shapes of JSON answers; they are the documentation in /openapi.json, and tests hold answers against them.

Times are UTC epoch seconds unless a field says otherwise; ratios are 0-1; what is not known is null.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cordee.core.web.models import Answer, FindingLine, Missing, Moment


class ErrorFacts(Answer):
    """What is wrong, and what to do."""

    kind: str = Field(description="A stable word: `usage`, `run_not_found`, `not_allowed`, ...")
    text: str = Field(description="What is wrong, one sentence.")
    given: Any = Field(None, description="What was given.")
    allowed: Any = Field(None, description="What would have been accepted.")
    next: str | None = Field(None, description="What to do now.")


class ErrorAnswer(Answer):
    """Every error has this shape."""

    error: ErrorFacts


class About(Answer):
    """The server."""

    version: str
    now: float = Field(description="The server's clock.")
    folders: list[str] = Field(description="The folders of runs that are shown.")
    poll_s: float = Field(description="How often the folder of a run that somebody follows is looked at, in seconds.")


class PageLine(Answer):
    """A page that a system brings."""

    pattern: str = Field(description="Its address: what begins with a colon is handed to the page.")
    file: str = Field(description="Its JavaScript module, as seen from those of the pages that are always there.")
    title: str
    tab: bool = Field(description="Whether it is among the tabs of a run.")
    folder: str = Field(
        description="Of a run's folder: only runs that have it (see `folders`) have the tab; empty: all."
    )
    overview: bool = Field(description="Whether its file has an `Overview` for the first page of runs with the folder.")


class PageList(Answer):
    """The pages that systems bring."""

    pages: list[PageLine]


class RunLine(Answer):
    """A run or recording in a list."""

    id: str
    name: str
    kind: str = Field(description="`run`, or `recording` for what `cordee record` left.")
    state: str = Field(
        description="queued, running, finished, failed, cancelled; of a recording also `unknown`; `unreadable`: see `reason`."
    )
    submitted_at: Moment
    started_at: Moment
    ended_at: Moment
    nodes: int
    ranks: int
    step: int | None
    total: int | None
    restarts: int
    exit_code: int | None
    reason: str
    findings: dict[str, int] | None = Field(description="How many there are, by severity.")
    job: str | None = Field(description="The scheduler's job.")
    folder: str
    score: float | None = Field(None, description="0-100, where it was computed already.")


class RunList(Answer):
    """The runs and recordings that are shown."""

    runs: list[RunLine] = Field(description="The newest first.")
    total: int = Field(description="How many there are without `limit`.")
    now: float


class RunPage(Answer):
    """All of a run that its overview shows."""

    run: str
    kind: str
    state: str
    now: float
    nodes: list[dict[str, Any]]
    phases: list[dict[str, Any]] = Field(description="`name`, `start`, `end` (null: continues), `segment`.")
    attempts: list[dict[str, Any]]
    segment_list: list[dict[str, Any]]
    began_from: str | None = Field(None, description="The checkpoint that the run began from; null: at zero.")
    began_from_run: str | None = Field(None, description="The run that made it, where known.")
    checkpoints: list[dict[str, Any]] = Field(description="`step`, `name`, `time`, and where known `seconds`, `bytes`.")
    vetting: dict[str, Any] | None
    rank_counts: dict[str, int] = Field(description="Ranks of the newest attempt by status.")
    findings: list[FindingLine]
    heard_at: Moment = Field(description="When anything was written into the folder last.")
    progress: dict[str, Any] | None = Field(description="`step`, `total`, `ratio`, `steps_per_s`, `remaining_s`, `at`.")
    missing: list[Missing]
    folders: list[str] = Field(description="Those of the run's folder that pages of systems ask for.")


class MetricLine(Answer):
    """A metric of a group."""

    name: str
    unit: str
    source: str = Field(description="What measured it.")
    meaning: str


class GroupModel(Answer):
    """A group of samples: one kind of device at one cadence."""

    name: str
    cadence: float = Field(description="Seconds between samples.")
    first: Moment
    last: Moment
    devices: int
    metrics: list[MetricLine]


class Groups(Answer):
    """The groups of a run."""

    groups: list[GroupModel]


class DeviceLine(Answer):
    """A device that was sampled."""

    name: Any = Field(description="As in heat maps: a GPU's UUID, a node's name, a rank's number.")
    node: str | None = None
    ranks: list[int] = Field(default_factory=list)
    model: str | None = None
    place: dict[str, int] | None = Field(None, description="Coordinates by dimension: dp, tp, pp, ...")
    sizes: dict[str, int] | None = Field(None, description="Sizes by dimension.")


class Devices(Answer):
    """The devices of a group."""

    group: str
    devices: list[DeviceLine] = Field(description="In the order of a heat map's rows.")


class HeatView(Answer):
    """In a frame or in Arrow `times` and `values` are arrays; NaN is missing there, null here."""

    times: list[float] = Field(description="When each column begins.")
    values: list[list[float | None]] = Field(description="[row][column].")
    devices: list[Any] = Field(description="Each row's device, or the first of those that share it.")
    counts: list[int] = Field(description="How many devices share each row.")
    low: float | None = Field(description="Least finite value.")
    high: float | None = Field(description="Greatest finite value.")
    unit: str
    source: str
    cadence: float = Field(description="Seconds of a column.")
    statistic: str


class BandsView(Answer):
    """A metric over time, as quantiles over all devices."""

    times: list[float]
    count: list[float | None] = Field(description="Devices that were measured.")
    mean: list[float | None]
    min: list[float | None]
    p5: list[float | None]
    p25: list[float | None]
    p50: list[float | None]
    p75: list[float | None]
    p95: list[float | None]
    max: list[float | None]
    unit: str
    source: str
    cadence: float


class LinesView(Answer):
    """A metric over time, for each of some devices."""

    times: list[float]
    devices: list[Any]
    mean: list[list[float | None]] = Field(description="[device][point].")
    low: list[list[float | None]]
    high: list[list[float | None]]
    unit: str
    source: str
    cadence: float


class LoggedLine(Answer):
    """A name under which ranks logged numbers."""

    name: str
    ranks: int | None = Field(description="How many ranks logged it.")
    steps: int | None = Field(description="How many steps it was logged at; without steps, calls.")
    last: float | None = Field(description="The newest value, mean over ranks.")
    at: Moment = Field(description="When that was logged.")
    source: str = Field(description="What logged it: cordee.log, wandb, tensorboard, mlflow, prometheus.")
    unit: str
    rank0_only: bool | None = Field(description="Whether rank 0 alone logged it.")


class LoggedModel(Answer):
    """All that ranks logged, by name."""

    metrics: list[LoggedLine]
    capped: int = Field(0, description="Names that are left out, because there are too many.")


class LoggedView(Answer):
    """What ranks logged under one name, over steps or time."""

    x: list[float] = Field(description="Steps, or times with by=time.")
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    ranks: list[float | None] = Field(description="How many ranks logged it there.")
    name: str
    by: str


class LogLineModel(Answer):
    """A line that a rank printed."""

    time: float = Field(description="When the line was finished.")
    node: str
    rank: int = Field(description="-1: set-up lines of the node.")
    stream: str = Field(description="out, err, or own for Cordée's own words.")
    attempt: int
    text: str
    cut: bool = Field(False, description="Whether the line is longer than what is here, or may have begun before it.")


class LogPage(Answer):
    """Lines that ranks printed."""

    lines: list[LogLineModel] = Field(description="The oldest first.")
    before: float | None = Field(description="Give it back as `before` for older lines; null: there are none.")


class NodePage(Answer):
    """One node of a run."""

    node: str
    verdict: str
    role: str
    ranks: list[int]
    results: list[dict[str, Any]] = Field(description="What its vetting found, one for each check.")
    gpus: list[dict[str, Any]]
    attempts: list[int] = Field(description="Attempts that it took part in.")


class RankPage(Answer):
    """One rank of a run."""

    rank: int
    node: str | None
    status: str
    place: dict[str, int] | None
    sizes: dict[str, int] | None
    gpus: list[Any]
    attempts: list[dict[str, Any]] = Field(description="Where it ran in each attempt and how that ended.")
    step: int | None


class Findings(Answer):
    """The findings of a run."""

    findings: list[FindingLine]


class CurveModel(Answer):
    """What one run logged, in a comparison."""

    id: str
    name: str
    state: str
    x: list[float]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


class RunComparison(Answer):
    """Several runs side by side."""

    metric: str
    by: str
    runs: list[CurveModel]
    settings: dict[str, dict[str, Any]] = Field(description="Settings that differ: by key, each run's value.")
    missing: list[Missing]


class FleetNode(Answer):
    """A node of the site, with what ran on it."""

    node: str
    state: str = Field(description="What the scheduler says of it, else `in use` or `seen`.")
    runs: list[dict[str, Any]] = Field(description="What ran on it: `id`, `state`, `start`, `end`; the newest first.")
    partition: str | None = None
    verdicts: dict[str, int] = Field(description="Vettings of the last 30 days by verdict.")


class Fleet(Answer):
    """The site: its nodes and what they do."""

    nodes: list[FleetNode]
    runs: list[dict[str, Any]] = Field(description="Active runs.")
    jobs: list[dict[str, Any]] = Field(description="What else the scheduler runs.")
    again: list[dict[str, Any]] = Field(description="Nodes, switches and jobs in the findings of several runs.")
    missing: list[Missing]
    now: float


class Catalogue(Answer):
    """The data sets that Cordée leaves."""

    datasets: list[dict[str, Any]]
