"""What services have used, by service, day and user: GPU hours and energy of their runs, requests at the front door. Days add up to months and projects."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from cordee.core.clock import unix_s
from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.door.requests import read_requests
from cordee.systems.services.instance import ServiceFolder, deployed, services_folder
from cordee.systems.services.node.texts import read_state, state_path

Grouping = Literal["service", "project", "owner", "day", "user"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
_DAY_S = 86400.0
# A host says every ten seconds that it lives: what has been silent for longer counts until its last word.
_SILENT_S = 60.0
_CACHE, _REMOVED = "used.json", ".removed.jsonl"
_SCHEMA = 1


@dataclass
class ServiceUse:
    """What was used; sums of sums are right.

    Attributes:
        seconds: that allocations of services lasted.
        gpu_seconds: of the GPUs that they held.
        measured_gpu_seconds: those of them whose power was measured.
        energy_joules: of the GPUs, over these; None: of none.
        requests, errors, sent_bytes, received_bytes: at the front door.
    """

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    measured_gpu_seconds: float = 0.0
    energy_joules: float | None = None
    requests: int = 0
    errors: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def add(self, other: ServiceUse) -> None:
        """Add another use to this one."""
        for name, value in vars(other).items():
            if value is not None:
                setattr(self, name, (getattr(self, name) or 0) + value)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it, with the units of runs."""
        share = self.measured_gpu_seconds / self.gpu_seconds if self.gpu_seconds else None
        return {
            "hours": round(self.seconds / 3600, 6),
            "gpu_hours": round(self.gpu_seconds / 3600, 6),
            "energy_joules": self.energy_joules,
            "energy_measured_ratio": None if share is None else round(min(1.0, share), 4),
            "requests": self.requests,
            "errors": self.errors,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
        }


@dataclass(frozen=True)
class UsedDay:
    """What one service used on one day (UTC), on behalf of one user at the door; the run's own part has no user."""

    service: str
    day: str
    project: str
    owner: str
    user: str = ""
    use: ServiceUse = field(default_factory=ServiceUse)


def used_days(
    service: str | None = None, since: str = "", until: str = "", unread: dict[str, str] | None = None
) -> list[UsedDay]:
    """Return what services of this user have used, removed ones too, on days from `since` to `until` (YYYY-MM-DD, both in).

    Args:
        unread: takes the names of services that cannot be read, with the reason: what they have used is not in the list.
    """
    found = [*_of_removed()]
    for folder in deployed():
        try:
            found += of_service(folder) if service in (None, folder.name) else []
        except (CordeeError, LookupError) as error:
            if unread is not None:
                unread[folder.name] = error.text if isinstance(error, CordeeError) else f"its record has no {error}"
    found += _at_door(found)
    inside = [one for one in found if since <= one.day and (not until or one.day <= until)]
    return [one for one in inside if service in (None, one.service)]


def summed(days: Iterable[UsedDay], by: Grouping) -> dict[str, ServiceUse]:
    """Return the sums by one of the keys; by user only what was asked at the front door has a place."""
    sums: dict[str, ServiceUse] = defaultdict(ServiceUse)
    for one in days:
        if by != "user" or one.use.requests:
            sums[getattr(one, by)].add(one.use)
    return dict(sorted(sums.items()))


def of_service(folder: ServiceFolder) -> list[UsedDay]:
    """Return what the runs of a service have used; runs that have ended are read once, and count when they are gone, too.

    Raises:
        ServiceError, LookupError: its record cannot be read.
    """
    whose, cache = _projects(folder), _cached(folder.root / _CACHE)
    days: dict[tuple[str, str, str], ServiceUse] = defaultdict(ServiceUse)
    fresh = False
    used = dict(cache)
    for path in sorted(folder.runs.glob("*/plan.json")):
        run = RunFolder(path.parent)
        if run.id in cache:
            continue
        try:
            state = replay(read_journal(run.journal), run.id)
            used[run.id] = {day: asdict(use) for day, use in run_days(run, folder.name, state).items()}
        except (CordeeError, OSError, ValueError, LookupError):
            continue  # what cannot be read is not known
        if state.ended:
            cache[run.id], fresh = used[run.id], True
    for name, found in used.items():
        for day, use in found.items():
            days[(day, *whose(name))].add(ServiceUse(**use))
    if fresh:
        write_atomically(folder.root / _CACHE, json.dumps({"schema": _SCHEMA, "runs": cache}), durable=False)
    return [UsedDay(folder.name, day, project, owner, use=use) for (day, project, owner), use in days.items()]


def written_down(folder: ServiceFolder) -> set[str]:
    """Return the runs whose use stays known without them."""
    return set(_cached(folder.root / _CACHE))


def run_days(run: RunFolder, service: str, state: RunState) -> dict[str, ServiceUse]:
    """Return what one run of a service has used, by day.

    Raises:
        CordeeError, OSError, LookupError: its plan cannot be read.
    """
    request = read_json(run.plan, run.root)["steps"][0]["request"]
    gpus = int(request.get("gpus_per_node") or 0)
    days: dict[str, ServiceUse] = defaultdict(ServiceUse)
    began, ended = [], []
    for segment in state.segment_states:
        if segment.started_at is None:
            continue
        began.append(segment.started_at)
        ended.append(segment.ended_at or state.ended_at or _last_word(run, service, segment.started_at))
        nodes = len(segment.nodes) or int(request.get("nodes") or 1)
        for start, stop in _by_day(began[-1], ended[-1]):
            days[day_of(start)].add(ServiceUse(stop - start, (stop - start) * nodes * gpus))
    if gpus and began:
        for day, measured_s, joules in _energy(run, min(began), max(ended)):
            days[day].add(ServiceUse(measured_gpu_seconds=measured_s, energy_joules=joules))
    return dict(days)


def _last_word(run: RunFolder, service: str, began: float) -> float:
    """Return until when a run that has no end is known to have lived."""
    said = float(read_state(state_path(run.root, service)).get("at") or began)
    return unix_s() if unix_s() - said < _SILENT_S else max(said, began)


def _by_day(began: float, ended: float) -> Iterator[tuple[float, float]]:
    """Yield (start, stop) of the days of UTC in a stretch of time."""
    while began < ended:
        stop = min(ended, (began // _DAY_S + 1) * _DAY_S)
        yield began, stop
        began = stop


def day_of(at: float) -> str:
    """Return the day of UTC, YYYY-MM-DD, of a moment."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _energy(run: RunFolder, began: float, ended: float) -> Iterator[tuple[str, float, float]]:
    """Yield (day, GPU seconds whose power is known, joules) of a run's GPUs, as its samples have them."""
    import numpy as np

    from cordee.telemetry.store.reader import Run
    from cordee.telemetry.store.reduce import energy

    opened, names = Run(run), ["gpu_power_watts"]
    for group in opened.groups():  # by the cadence: gpu, gpu-10s
        if group.partition("-")[0] != "gpu" or names[0] not in opened.metrics(group):
            continue
        source = opened.source(group)
        # Means of a minute and how many samples are behind each: of months, a sixth to a sixtieth of the samples.
        every = 60 if 60 in source.levels else None
        for start, stop in _by_day(began, ended):
            watts = opened.grid(group, names, start, stop, every=every).values[0]
            seconds: Any = source.cadence
            if every is not None:
                counts = opened.grid(group, names, start, stop, every=every, statistic="count").values[0]
                seconds = np.nan_to_num(counts).astype(np.float64) * source.cadence
            joules, measured_s = energy(watts, seconds)
            if measured_s:
                yield day_of(start), measured_s, joules


def _projects(folder: ServiceFolder) -> Any:
    """Return a function of a run's id that says (project, owner): those of the revision that it was started from."""
    revisions: dict[str, int] = {}
    for line in _lines(folder.root / "history.jsonl"):
        if line.get("run"):
            revisions.setdefault(Path(line["run"]).name, line.get("revision") or 0)
    known: dict[int, tuple[str, str]] = {}

    def of(run: str) -> tuple[str, str]:
        number = revisions.get(run, 0)
        if number not in known:
            record = folder.record()
            known[number] = record["project"], record["owner"]
            try:
                blueprint = folder.blueprint(number or None).blueprint
                known[number] = blueprint.project, blueprint.owner or record["owner"]
            except CordeeError:
                pass
        return known[number]

    return of


def _cached(path: Path) -> dict[str, Any]:
    found = read_state(path)
    return dict(found["runs"]) if found.get("schema") == _SCHEMA else {}


def _at_door(known: list[UsedDay]) -> Iterator[UsedDay]:
    """Yield what was asked at the front door, on the account of whoever had the service on that day, or last before."""
    accounts: dict[str, list[UsedDay]] = defaultdict(list)
    for one in sorted(known, key=lambda one: one.day):
        accounts[one.service].append(one)
    for service, days in read_requests(DoorFolder().root / "requests.json")["days"].items():
        for day, users in days.items():
            of = [one for one in accounts[service] if one.day <= day] or accounts[service][:1]
            project, owner = (of[-1].project, of[-1].owner) if of else ("", "")
            for user, counts in users.items():
                told = {key: counts[key] for key in ("requests", "errors", "sent_bytes", "received_bytes")}
                yield UsedDay(service, day, project, owner, user, ServiceUse(**told))


# Services that were removed


def keep_use(folder: ServiceFolder) -> None:
    """Keep what a service has used, before its folder is removed.

    Raises:
        OSError: the disk refuses.
    """
    days = of_service(folder)
    with (services_folder() / _REMOVED).open("a") as file:
        file.writelines(json.dumps({"schema": _SCHEMA, **asdict(one)}) + "\n" for one in days)


def _of_removed() -> Iterator[UsedDay]:
    for line in _lines(services_folder() / _REMOVED):
        if line.pop("schema", None) == _SCHEMA:
            yield UsedDay(**{**line, "use": ServiceUse(**line["use"])})


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a file of JSON lines; none where there is no file."""
    try:
        texts = path.read_text().splitlines()
    except OSError:
        return
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line
