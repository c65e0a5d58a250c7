"""What is done with deployed services: deploy, ask, stop, upgrade, roll back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError, UsageError
from cordee.core.secrets import OutputMask
from cordee.job.submit import Standing, submitter_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.log_tails import plain
from cordee.runs.logtail import LogTail
from cordee.runs.state import RunState, replay
from cordee.systems.services.blueprint import LoadedBlueprint
from cordee.systems.services.instance import (
    ServiceError,
    ServiceFailing,
    ServiceFolder,
    deployed,
    services_folder,
)
from cordee.systems.services.node.texts import read_state, state_path
from cordee.systems.services.start import Wish, owner_of, start_run, write_revision

_POLL_S = 0.1
_SILENT_S = 45.0


@dataclass(frozen=True)
class ServiceStatus:
    """How a deployed service is, and why.

    Attributes:
        name, target, cluster, revision, owner, project: what is deployed.
        state: queued, starting, ready, unready, failed, stopped or unknown.
        endpoints: `name`, `url`, `token_file` of each, while it is not stopped.
        why: one sentence: what readiness asked and got, or why it waits or ended.
        run: the run's folder; None where it has none.
        node: where it runs.
        client_file: what a shell reads to become its client.
    """

    name: str
    target: str
    cluster: str
    revision: int
    owner: str
    project: str
    state: str
    endpoints: list[dict[str, Any]]
    why: str
    run: str | None = None
    node: str | None = None
    client_file: str | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be used."""
        return self.state == "ready"

    @property
    def over(self) -> bool:
        """Whether it does not run and will not by itself."""
        return self.state in ("failed", "stopped")

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**self.__dict__, "ready": self.ready}


def status_of(folder: ServiceFolder) -> ServiceStatus:
    """Return how a service is."""
    record = folder.record()
    about = {key: record[key] for key in ("target", "cluster", "revision", "owner", "project")}
    run = folder.run()
    if run is None:
        return ServiceStatus(folder.name, **about, state="stopped", endpoints=[], why="it has not been started yet")
    told = read_state(state_path(run.root, folder.name))
    state, why = _stand(run, told)
    gone = state in ("stopped", "failed", "queued")
    return ServiceStatus(
        folder.name,
        **about,
        state=state,
        endpoints=[] if gone else told.get("endpoints", []),
        why=why,
        run=str(run.root),
        node=told.get("node"),
        client_file=None if gone else told.get("client_file"),
    )


def _stand(run: RunFolder, told: dict[str, Any]) -> tuple[str, str]:
    """Return the state of a service by its run, and why."""
    state: RunState = replay(read_journal(run.journal), run.id)
    why = str(told.get("why") or "")
    if state.ended:
        if state.state == "failed":
            return "failed", why or state.text
        return "stopped", why if told.get("state") == "stopped" else state.text
    standing: Standing = submitter_of(run).standing(run)
    if standing.state == "waiting":
        return "queued", f"the scheduler has it wait: {standing.reason or 'no reason is given'}"
    if standing.state == "gone":
        return "failed", f"nothing runs it any more: {standing.reason or 'its processes are gone'}"
    if not told:
        waits = f": {standing.reason}" if standing.state == "unknown" and standing.reason else ""
        return "starting", f"its node is made ready{waits}"
    silent_s = unix_s() - float(told.get("at", 0.0))
    if told["state"] in ("ready", "unready", "starting") and silent_s > _SILENT_S:
        return "unknown", f"its node has said nothing for {silent_s:.0f} s; last: {why}"
    if told["state"] == "failed":
        return "starting", f"it is started again: {why}"
    return str(told["state"]), why


def all_status() -> list[ServiceStatus]:
    """Return how all services of this user are."""
    return [status_of(folder) for folder in deployed()]


def deploy(
    loaded: LoadedBlueprint, name: str, wish: Wish, wait_s: float, told: Callable[[ServiceStatus], None]
) -> ServiceStatus:
    """Start a service and wait until it is ready.

    Args:
        loaded: its blueprint.
        name: of the service.
        wish: where and how.
        wait_s: for how long; 0: not at all.
        told: told what it waits for, whenever that changes.

    Raises:
        UsageError, DocumentError: it cannot be deployed so.
        ServiceError: it runs already.
        ServiceFailing: it has not become ready.
    """
    folder = ServiceFolder(services_folder() / name)
    for before in loaded.blueprint.after:
        _require_ready(before, name)
    folder.make()
    with folder.changing():
        if folder.exists():
            now = status_of(folder)
            if not now.over:
                raise ServiceError(
                    f"{name} runs already",
                    given=f"{name} is {now.state}",
                    allowed="a name that is free",
                    next=f"`cordee service upgrade {name}`, `cordee service stop {name}`, or another --name",
                )
        _start(folder, loaded, wish, "deployed")
    return waited(folder, wait_s, told)


def _require_ready(before: str, name: str) -> None:
    there = {one.name: one for one in deployed()}
    if before not in there or not status_of(there[before]).ready:
        raise UsageError(
            f"{name} comes after {before}, which is not ready",
            given=before,
            next=f"`cordee service deploy {before}` first",
        )


def _start(folder: ServiceFolder, loaded: LoadedBlueprint, wish: Wish, event: str) -> None:
    number, job = write_revision(loaded, folder, wish)
    run = start_run(job, folder, wish)
    folder.write(
        {
            "name": folder.name,
            "blueprint": loaded.blueprint.name,
            "target": wish.target,
            "cluster": wish.cluster,
            "parameters": wish.parameters,
            "ports": wish.ports,
            "bind": wish.bind,
            "idle_s": wish.idle_s,
            "time_s": wish.time_s,
            "settings": wish.settings,
            "revision": number,
            "owner": owner_of(loaded.blueprint),
            "project": loaded.blueprint.project,
            "run": str(run.root),
        },
        event,
    )


def wish_of(record: dict[str, Any]) -> Wish:
    """Return what was asked for when a service was deployed."""
    return Wish(
        record["target"],
        record["cluster"],
        record["parameters"],
        record["ports"],
        record["bind"],
        record["idle_s"],
        record["time_s"],
        record["settings"],
    )


def waited(folder: ServiceFolder, wait_s: float, told: Callable[[ServiceStatus], None]) -> ServiceStatus:
    """Wait until a service is ready.

    Raises:
        ServiceFailing: it has ended, or is not ready in time.
    """
    until, said = monotonic() + wait_s, ""
    while True:
        now = status_of(folder)
        if now.ready or not wait_s:
            return now
        if now.over:
            raise ServiceFailing(
                f"{folder.name} {now.state}: {now.why}", given=now.run, next=f"`cordee service logs {folder.name}`"
            )
        if monotonic() > until:
            raise ServiceFailing(
                f"{folder.name} is not ready after {wait_s:.0f} s: {now.why}",
                given=now.run,
                next=f"`cordee service status {folder.name}`, `cordee service logs {folder.name}`; it goes on",
            )
        if now.state != said:
            said = now.state
            told(now)
        time.sleep(_POLL_S)


def stop(folder: ServiceFolder, wait_s: float = 60.0) -> ServiceStatus:
    """End a service; its data, secrets and runs stay.

    Raises:
        ServiceFailing: it has not ended in time.
    """
    run = folder.run()
    if run is None or replay(read_journal(run.journal), run.id).ended:
        return status_of(folder)
    place = submitter_of(run)
    from cordee.job.terminal.requests import leave_request

    client_journal(run.journal).append("cancel_requested", by="cordee service stop")
    leave_request(run, {"request": "cancel", "by": "cordee service stop", "now": False})
    until = monotonic() + wait_s
    while monotonic() < until:
        if replay(read_journal(run.journal), run.id).ended:
            folder.write({key: value for key, value in folder.record().items() if key != "schema"}, "stopped")
            return status_of(folder)
        standing = place.standing(run, age_s=0.0)
        if standing.state in ("waiting", "gone"):
            place.cancel(run)
            client_journal(run.journal).append(
                "ended", state="cancelled", exit_code=1, reason="cancelled", text="it was asked to end"
            )
        time.sleep(_POLL_S)
    raise ServiceFailing(
        f"{folder.name} has not ended within {wait_s:.0f} s",
        given=str(run.root),
        next=f"`cordee cancel --now {run.root}`",
    )


def upgrade(
    folder: ServiceFolder,
    loaded: LoadedBlueprint,
    parameters: dict[str, str],
    wait_s: float,
    told: Callable[[ServiceStatus], None],
    event: str = "upgraded",
) -> ServiceStatus:
    """Start another revision in place of the one that runs; where that does not become ready, the one before comes back.

    Raises:
        UsageError, DocumentError: the new one cannot be deployed here; the old one runs on untouched.
        ServiceFailing: the new one was not ready; the old one is back.
    """
    from dataclasses import replace

    from cordee.systems.services.start import host_document

    with folder.changing():
        record = folder.record()
        before, old = folder.blueprint(), wish_of(record)
        known = {
            name: value
            for name, value in {**old.parameters, **parameters}.items()
            if name in loaded.blueprint.parameters or name in parameters
        }
        ports = {name: number for name, number in old.ports.items() if name in loaded.blueprint.ports}
        wish = replace(old, parameters=known, ports=ports)
        host_document(loaded, folder, 0, wish)
        ran = not status_of(folder).over
        stop(folder)
        try:
            _start(folder, loaded, wish, event)
            return waited(folder, wait_s, told)
        except CordeeError as error:
            if not ran:
                raise
            stop(folder)
            _start(folder, before, old, "rolled back")
            back = waited(folder, wait_s, told)
            raise ServiceFailing(
                f"the new revision was not ready, so revision {back.revision} is back: {error.text}",
                given=error.given,
                next="mend the blueprint, then upgrade again",
            ) from error


def earlier(folder: ServiceFolder, number: int | None) -> LoadedBlueprint:
    """Return the blueprint of an earlier revision: the one before, or that of a number.

    Raises:
        UsageError: there is none.
    """
    now: int = folder.record()["revision"]
    known = [one for one in folder.revisions() if one != now]
    wanted = number if number is not None else max((one for one in known if one < now), default=None)
    if wanted not in known:
        raise UsageError(
            f"{folder.name} has no {'earlier revision' if number is None else f'other revision {number}'}",
            given=now,
            allowed=known or "none: it was never upgraded",
        )
    return folder.blueprint(wanted)


def printed(folder: ServiceFolder, most: int | None = None) -> list[str]:
    """Return the lines that a service's run has printed, without its secrets.

    Args:
        most: only so many of the last ones.

    Raises:
        UsageError: it has no run.
    """
    run = folder.run()
    if run is None:
        raise UsageError(
            f"{folder.name} has not been started yet", given=folder.name, next=f"`cordee service deploy {folder.name}`"
        )
    known = [path.read_text().strip() for path in (folder.root / "secrets").iterdir()]
    mask = OutputMask([value for value in known if value])
    data = b"".join(frame.data for frame in LogTail(run.logs).read())
    lines = [plain(mask.line(line).decode(errors="replace")) for line in data.splitlines()]
    return lines if most is None else lines[len(lines) - min(most, len(lines)) :]
