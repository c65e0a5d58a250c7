"""What is done with deployed services: deploy, ask, stop, upgrade, roll back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cordee.control.supervisor.decisions.chain import TIME_LIMIT
from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError, UsageError
from cordee.core.secrets import OutputMask
from cordee.job.submit import Standing, submitter_of
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.journal_follower import FollowedStates
from cordee.runs.log_tails import plain
from cordee.runs.logtail import LogTail
from cordee.runs.state import RunState, replay
from cordee.systems.services.blueprint import PODMAN, LoadedBlueprint
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.instance import (
    DOOR_TOKEN,
    ServiceError,
    ServiceFailing,
    ServiceFolder,
    deployed,
    services_folder,
)
from cordee.systems.services.node.container import remove_containers
from cordee.systems.services.node.texts import PULLING, drain_path, read_state, remove_temp, state_path
from cordee.systems.services.retention import prune_runs
from cordee.systems.services.start import Wish, container_prefix, owner_of, require_free, start_run, write_revision
from cordee.wire.ports import pick_port

_POLL_S = 0.1
_END_S = 60.0
_SILENT_S = 45.0
_LINE = 400
_TIME_OVER = "the time of its allocation was over: `cordee service deploy {name}` starts it again with its data; behind the front door (--door) it goes on in the next one"
_STATES = FollowedStates()


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
        asleep: it was stopped because nobody used it: a request at the front door wakes it.
        unused_s: for how long nobody was connected, while it is ready.
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
    asleep: bool = False
    unused_s: float | None = None

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
    state, why = run_status(run, folder.name)
    gone = state in ("stopped", "failed", "queued")
    return ServiceStatus(
        folder.name,
        **about,
        state=state,
        endpoints=[] if gone else _endpoints(folder, record, told),
        why=why,
        run=str(run.root),
        node=told.get("node"),
        client_file=None if gone else told.get("client_file"),
        unused_s=_unused_s(told) if state == "ready" else None,
        asleep=state == "stopped" and bool(told.get("idle")) and record.get("stopped") != record["run"],
    )


def _unused_s(told: dict[str, Any]) -> float | None:
    """Return for how long nobody was connected, as of what its host told last."""
    since = told.get("used_at") or told.get("ready_at")
    return None if since is None else max(0.0, told["at"] - since)


def _endpoints(folder: ServiceFolder, record: dict[str, Any], told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return where a service is asked: its first web address is the front door's, where it has one."""
    found = [dict(one) for one in told.get("endpoints", [])]
    first = next((one for one in found if one["url"].startswith("http")), None)
    if record.get("door") and first is not None:
        first["url"], first["behind"] = DoorFolder().url(record["door"]), first["url"]
        token = folder.secret(DOOR_TOKEN)
        first["token_file"] = first["token_file"] or (str(token) if token.exists() else None)
    return found


def run_status(run: RunFolder, name: str) -> tuple[str, str]:
    """Return the state of a service by one of its runs, and why."""
    told = read_state(state_path(run.root, name))
    state = _STATES.of(run)
    why = str(told.get("why") or "")
    if state.ended:
        if state.reason == TIME_LIMIT and told.get("state") != "failed":
            return "stopped", _TIME_OVER.format(name=name)
        if state.state == "failed":
            return "failed", why if told.get("state") == "failed" and why else state.text
        return "stopped", why if told.get("state") == "stopped" else state.text
    standing: Standing = submitter_of(run).standing(run)
    if standing.queued and not _seen_since(standing.at, state, told):
        return "queued", f"the scheduler has it wait: {_reason(standing.reason)}"
    if standing.state == "gone":
        if standing.reason.startswith("TIMEOUT"):
            return "stopped", _TIME_OVER.format(name=name)
        return "failed", f"nothing runs it any more: {standing.reason or 'its processes are gone'}"
    if not told:
        waits = f": {standing.reason}" if standing.state == "unknown" and standing.reason else ""
        return "starting", f"its node is made ready{waits}"
    silent_s = unix_s() - float(told.get("at", 0.0))
    if told["state"] in ("ready", "unready", "starting") and silent_s > _SILENT_S:
        return "unknown", f"its node {told.get('node')} has said nothing for {silent_s:.0f} s; last: {why}"
    if told["state"] == "failed":
        return "starting", f"it is started again: {why}"
    return str(told["state"]), why


def _seen_since(at: float | None, state: RunState, told: dict[str, Any]) -> bool:
    """Return whether a run showed itself after its scheduler, which is asked twice a minute at most, said that it waits."""
    began = state.phases[-1].start if state.state == "running" and state.phases else 0.0
    return at is not None and max(float(told.get("at", 0.0)), began) > at


def _reason(text: str) -> str:
    return text if text and text != "None" else "it has not looked at it yet"


def all_status() -> list[ServiceStatus]:
    """Return how all services of this user are; of one that cannot be read, why."""
    found = []
    for folder in deployed():
        try:
            found.append(status_of(folder))
        except (CordeeError, KeyError) as error:
            text = error.text if isinstance(error, CordeeError) else f"its record has no {error}"
            found.append(ServiceStatus(folder.name, "", "", 0, "", "", "unknown", [], text))
    return found


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
        UsageError, DocumentError: it cannot be deployed so; a service that was not there leaves nothing.
        ServiceError: it runs already.
        ServiceFailing: it has not become ready.
    """
    folder = ServiceFolder(services_folder() / name)
    for before in loaded.blueprint.after:
        _require_ready(before, name)
    new = not folder.root.exists()
    folder.make()
    with changing(folder):
        if folder.exists():
            _require_same_blueprint(folder, loaded)
            now = status_of(folder)
            if not now.over:
                raise ServiceError(
                    f"{name} runs already",
                    given=f"{name} is {now.state}",
                    allowed="a name that is free",
                    next=f"`cordee service upgrade {name}`, `cordee service stop {name}`, or another --name",
                )
        try:
            require_free(wish)
            start(folder, loaded, wish, "deployed")
        except CordeeError:
            if new and not any(folder.runs.glob("[!.]*")):
                folder.remove()
            raise
    return waited(folder, wait_s, told)


def _require_same_blueprint(folder: ServiceFolder, loaded: LoadedBlueprint) -> None:
    """Raise ServiceError where a service of this name has the data of another program."""
    was, name = folder.record()["blueprint"], folder.name
    if was != loaded.blueprint.name:
        raise ServiceError(
            f"{name} is a service of the blueprint {was}, and has its data",
            given=loaded.blueprint.name,
            allowed="a name that is free",
            next=f"another --name, or first `cordee service stop {name} --remove`; `cordee service upgrade {name} --to` changes the blueprint",
        )


@contextmanager
def changing(folder: ServiceFolder) -> Iterator[None]:
    """Hold a service, and end what is left of a hand-over whose command was killed.

    Raises:
        ServiceError: somebody else changes it.
    """
    with folder.changing():
        if folder.exists():
            _settle(folder)
        yield


def hand_over_is_open(record: dict[str, Any]) -> bool:
    """Return whether a hand-over has begun and not come to its end."""
    return bool(record.get("next") or record.get("before") or record.get("holding"))


def _settle(folder: ServiceFolder) -> None:
    record, by = folder.record(), "a hand-over that broke off"
    if not hand_over_is_open(record):
        return
    old, wanted, before = folder.run(), record.get("next"), record.get("before")
    over = {"next": None, "before": None, "holding": False}
    if before:  # the next run has its place already
        end_run(RunFolder(before), _END_S, by)
    elif wanted and old is not None and (status_of(folder).over or drain_path(old.root, folder.name).exists()):
        end_run(old, _END_S, by)
        record.update(wanted)
    elif wanted:
        end_run(RunFolder(wanted["run"]), _END_S, by)
    folder.write({**record, **over}, by)


def door_port(name: str) -> int:
    """Return the port of the front door for a service: the one that it had, else a free one.

    Raises:
        UsageError: no door is open.
    """
    door = DoorFolder()
    if not door.keeper():
        raise UsageError("no front door is open", given="--door", next="`cordee service door start` first")
    known = {one.name: one.record().get("door") for one in deployed()}
    kept: int | None = known.get(name)
    if kept:
        return kept
    while True:
        port = pick_port(door.settings()["address"])
        if port not in known.values():
            return port


def _require_ready(before: str, name: str) -> None:
    there = {one.name: one for one in deployed()}
    if before not in there or not status_of(there[before]).ready:
        raise UsageError(
            f"{name} comes after {before}, which is not ready",
            given=before,
            next=f"`cordee service deploy {before}` first",
        )


def start(folder: ServiceFolder, loaded: LoadedBlueprint, wish: Wish, event: str, run: bool = True) -> None:
    """Start a revision of a service, and write that down; who calls it holds the service.

    Args:
        event: what is done, for its history.
        run: False: it is kept, and not started.

    Raises:
        CordeeError: it cannot be.
    """
    before = folder.record() if folder.exists() else {}
    number, job = write_revision(loaded, folder, wish)
    if before:
        _clear(folder, before)
    if before.get("target") == PODMAN != wish.target:
        folder.take_back()
    started = start_run(job, loaded, folder, wish) if run else None
    folder.write(record_of(folder, loaded, wish, number, started), event)
    prune_runs(folder)


def record_of(
    folder: ServiceFolder, loaded: LoadedBlueprint, wish: Wish, number: int, run: RunFolder | None
) -> dict[str, Any]:
    """Return what is written down of a revision that was started."""
    return {
        "name": folder.name,
        "blueprint": loaded.blueprint.name,
        **vars(wish),
        "revision": number,
        "owner": owner_of(loaded.blueprint),
        "project": loaded.blueprint.project,
        "run": str(run.root) if run is not None else None,
    }


def wish_of(record: dict[str, Any]) -> Wish:
    """Return what was asked for when a service was deployed."""
    asked: dict[str, Any] = {one.name: record.get(one.name) for one in fields(Wish)}
    return Wish(**asked)


def waited(folder: ServiceFolder, wait_s: float, told: Callable[[ServiceStatus], None]) -> ServiceStatus:
    """Wait until a service is ready.

    Raises:
        ServiceFailing: it has ended, or is not ready in time.
    """
    until, said = monotonic() + wait_s, ""
    while True:
        now = status_of(folder)
        if (now.ready and _is_reached(folder)) or not wait_s:
            return now
        if now.over:
            raise ServiceFailing(
                f"{folder.name} {now.state}: {now.why}{_last_words(folder)}",
                given=now.run,
                next=f"`cordee service logs {folder.name}`",
            )
        if monotonic() > until:
            raise ServiceFailing(
                f"{folder.name} is not ready after {wait_s:.0f} s: {now.why}",
                given=now.run,
                next=f"`cordee service status {folder.name}`, `cordee service logs {folder.name}`; it goes on",
            )
        about = now.why if now.why.startswith(PULLING) else now.state
        if about != said:
            said = about
            told(now)
        time.sleep(_POLL_S)


def _last_words(folder: ServiceFolder) -> str:
    """Return the last line that the program of a service printed, in words that follow why it ended; empty: none."""
    ours = (f"cordee service {folder.name}: ", "  given:", "  allowed:", "  next:")
    line = next((line for line in reversed(printed(folder)) if line.strip() and not line.startswith(ours)), "").strip()
    return f"; it printed: {line[:_LINE]}" if line else ""


def _is_reached(folder: ServiceFolder) -> bool:
    """Return whether the front door leads to a service that is ready; where none is open, it is reached without."""
    keeper, record = DoorFolder().keeper(), folder.record()
    if not keeper or not record.get("door") or record.get("holding"):
        return True
    run, route = folder.run(), keeper["routes"].get(folder.name)
    told = read_state(state_path(run.root, folder.name)) if run is not None else {}
    return route is not None and route["target"] == web_target(told)


def web_target(told: dict[str, Any]) -> str:
    """Return address and port of a service's first web endpoint, by what its state's file says; empty: it has none."""
    first = next((one for one in told.get("endpoints", ()) if one["url"].startswith("http")), None)
    return f"{told['address']}:{first['port']}" if first is not None else ""


def stop(folder: ServiceFolder, wait_s: float = _END_S, holds: bool = False) -> ServiceStatus:
    """End a service; its data, secrets and runs stay.

    Args:
        holds: it is started again at once: requests wait at its door until then.

    Raises:
        ServiceFailing: it has not ended in time.
    """
    run, record = folder.run(), folder.record()
    if holds and record.get("door"):
        folder.write({**record, "holding": True}, "requests wait")
    if run is not None:
        wait_s = max(wait_s, folder.blueprint().blueprint.stop + 30.0)
        ended_now = end_run(run, wait_s, "cordee service stop")
        _clear(folder, record)
        record = folder.record()
        if ended_now or record.get("stopped") != record["run"]:
            folder.write({**record, "stopped": record["run"]}, "stopped")
    return status_of(folder)


def _clear(folder: ServiceFolder, record: dict[str, Any]) -> None:
    """Remove what a run that was killed may have left on this machine: its container, its temporary folder.

    Raises:
        ServiceError: its container stays.
    """
    if record.get("run"):
        remove_temp(read_state(state_path(Path(record["run"]), folder.name)))
    if record["target"] != PODMAN:
        return
    name = container_prefix(folder)
    try:
        remove_containers(name, folder.blueprint(record["revision"]).blueprint.stop)
    except FileNotFoundError:
        pass  # no podman any more, nor any container of it
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(
            f"a container of {folder.name} may be left: {error}", next=f"podman rm --force {name}"
        ) from error


def end_run(run: RunFolder, wait_s: float, by: str) -> bool:
    """End a run of a service; return whether it had not ended before.

    Raises:
        ServiceFailing: it has not ended in time.
    """
    if replay(read_journal(run.journal), run.id).ended:
        return False
    place = submitter_of(run)
    from cordee.job.terminal.requests import leave_request

    client_journal(run.journal).append("cancel_requested", by=by)
    leave_request(run, {"request": "cancel", "by": by, "now": False})
    until = monotonic() + wait_s
    while monotonic() < until:
        if replay(read_journal(run.journal), run.id).ended:
            return True
        standing = place.standing(run, age_s=0.0)
        if standing.queued or standing.state == "gone":
            place.cancel(run)
            client_journal(run.journal).append(
                "ended", state="cancelled", exit_code=1, reason="cancelled", text="it was asked to end"
            )
        time.sleep(_POLL_S)
    raise ServiceFailing(
        f"the run has not ended within {wait_s:.0f} s", given=str(run.root), next=f"`cordee cancel --now {run.root}`"
    )


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
