"""From a blueprint to the run that it is: a job document, and what its program is started from."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cordee.core.backends import backend
from cordee.core.documents.faults import document_error
from cordee.core.documents.toml_lines import find_line
from cordee.core.documents.toml_text import value_text
from cordee.core.errors import DocumentError, UsageError
from cordee.core.findings import Finding
from cordee.core.web import token_guard
from cordee.job.cluster import load_cluster
from cordee.job.command import interpreter_path
from cordee.job.profile import ClusterProfile
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.services.blueprint import (
    ALLOCATION,
    KUBERNETES,
    PODMAN,
    Blueprint,
    ClosedProbe,
    LoadedBlueprint,
    ServiceProbe,
    Target,
    parameter_values,
)
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.instance import ServiceFolder
from cordee.systems.services.kubernetes.names import LONGEST_PORT, wrong_names
from cordee.systems.services.node.container import REMOVAL_S, PodmanMachine
from cordee.systems.services.node.location import GUARD, is_free
from cordee.systems.services.node.texts import read_state, references, state_path

# Keys of the job's [need], and those of a blueprint that they come from.
_NEEDS = {"gpus_per_node": "gpus", "cpus_per_rank": "cpus", "memory": "memory", "time": "time"}


@dataclass(frozen=True)
class Wish:
    """What a person asks for besides the blueprint.

    Attributes:
        target: what it runs on.
        cluster: where; `local` for processes here.
        parameters: by name, as they were given.
        ports: numbers that endpoints must have, by their names.
        bind: `loopback`, or `network`: then other nodes reach it.
        idle_s: over the blueprint's; None: the blueprint's.
        time_s: of one allocation; None: the blueprint's.
        settings: keys of the job document that are set besides: account, partition.
        door: the port of the front door that leads to it; None: none does.
    """

    target: Target
    cluster: str
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    bind: str = "loopback"
    idle_s: float | None = None
    time_s: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    door: int | None = None


_Command = Callable[[Sequence[str]], list[str]]
Refusal = tuple[tuple[str, ...], str, str]


def refusals(loaded: LoadedBlueprint, target: Target, bind: str = "loopback") -> list[Finding]:
    """Return what a target cannot honour of a blueprint, each by name."""
    blueprint = loaded.blueprint
    own = _not_on_kubernetes(blueprint) if target == KUBERNETES else _not_as_a_run(loaded, target, bind)
    return [
        loaded.finding(keys, f"{target} cannot honour it: {text}", "target-refuses", what, given=target)
        for keys, text, what in (*_without_program(blueprint, target), *own)
    ]


def _without_program(blueprint: Blueprint, target: Target) -> Iterator[Refusal]:
    """Yield (keys, text, what to do) where a target has nothing to start."""
    if target in ("process", ALLOCATION) and blueprint.argv is None:
        yield ("image",), f"{blueprint.name} is only an image", "choose podman or kubernetes, or add argv"
    if target in ("podman", KUBERNETES) and blueprint.image is None:
        yield ("name",), f"{blueprint.name} has no image", "choose process or slurm, or add image"
    if target == "podman" and blueprint.environment:
        what = "the reference by digest that `cordee env push` prints"
        yield ("image",), f"the image is that of an EDF, {blueprint.environment}", what
    if target == "podman" and shutil.which("podman") is None:
        yield ("image",), "there is no podman on this machine", "install podman, or choose another target"
    if target == PODMAN and blueprint.guard == "token" and blueprint.image and blueprint.image_argv is None:
        text = 'guard = "token" starts the program of the image, and only the image says which'
        yield ("guard",), text, "add image_argv, the whole program with its arguments"


def _not_as_a_run(loaded: LoadedBlueprint, target: Target, bind: str) -> Iterator[Refusal]:
    blueprint = loaded.blueprint
    if blueprint.replicas > 1:
        text = f"replicas = {blueprint.replicas}: one run is one program"
        yield ("replicas",), text, "choose kubernetes, or replicas = 1"
    for name, secret in blueprint.secrets.items():
        if secret.source.startswith("store:"):
            text = f"the secret {name} is in a store of Kubernetes"
            yield ("secrets", name, "from"), text, 'from = "generated" or "file:PATH"'
    for name, volume in blueprint.volumes.items():
        if volume.storage_class:
            text = f"the volume {name} asks for a StorageClass"
            yield ("volumes", name, "class"), text, "leave class out, or choose kubernetes"
    held = blueprint.guard == "token" and blueprint.argv and target != PODMAN
    if held and blueprint.argv and _is_no_python(loaded.command(blueprint.argv)):
        text = f'guard = "token" holds the web servers of Python programs alone, and {blueprint.argv[0]} is none'
        what = 'name the Python script, ["python", "./serve.py", ...]; or guard = "own" where the program asks for a password'
        yield ("guard",), text, what
    if bind == "network" and blueprint.guard == "none":
        text = "it would be open to the whole network without credentials"
        yield ("guard",), text, "bind it to loopback, or set guard"


def _is_no_python(argv: list[str]) -> bool:
    """Return whether a program is on this machine and no Python runs it."""
    try:
        return not argv[0].startswith("-") and token_guard.python_words(argv) is None
    except FileNotFoundError:
        return False


def _not_on_kubernetes(blueprint: Blueprint) -> Iterator[Refusal]:
    if blueprint.idle:
        yield ("idle",), "nothing stops a Deployment that nobody uses", "leave idle out for kubernetes"
    for table, probe in (("ready", blueprint.ready), ("live", blueprint.live)):
        if probe is not None and probe.status is not None:
            text = f"[{table}] status = {probe.status}: probes take any answer from 200 to 399"
            yield (table, "status"), text, "leave status out"
    if blueprint.guard == "token" and blueprint.image is not None:
        what = 'guard = "own" for a program that asks for credentials itself'
        yield ("guard",), "Cordée's guard is in no image", what
    if blueprint.replicas > 1:
        for name in blueprint.volumes:
            text = f"replicas = {blueprint.replicas} would write the volume {name} at once"
            yield ("replicas",), text, "replicas = 1, or a service without volumes"
    yield from _secrets_not_on_kubernetes(blueprint)
    for table, names, longest in (("ports", blueprint.ports, LONGEST_PORT), ("volumes", blueprint.volumes, 20)):
        for name, why in wrong_names(names, longest):
            yield (table, name), f"[{table}.{name}]: {why}", "give it another name"


def _secrets_not_on_kubernetes(blueprint: Blueprint) -> Iterator[Refusal]:
    for name, secret in blueprint.secrets.items():
        if secret.source.startswith("file:"):
            text = f"the secret {name} is a file of this machine"
            yield ("secrets", name, "from"), text, 'from = "store:NAME/KEY" or "generated"'
    for name, text in blueprint.files.items():
        for kind, value in references(text):
            if kind == "value" and blueprint.secrets[value].source.startswith("store:"):
                why = f"the file {name} holds the value of {value}, which only the cluster's store has"
                what = f"{{secret.{value}}}, its file, or {{value.{value}}} in [env]"
                yield ("files", name), why, what


def require_target(loaded: LoadedBlueprint, target: Target, bind: str = "loopback") -> None:
    """Raise DocumentError where a target cannot honour a blueprint."""
    found = refusals(loaded, target, bind)
    if found:
        raise document_error(found)


def require_machine(loaded: LoadedBlueprint, folder: ServiceFolder, target: Target) -> None:
    """Raise DocumentError where this machine lacks what a target needs: before a run is made, and before one that runs is ended."""
    if target != PODMAN:
        return
    lack = PodmanMachine().lacks(_container(loaded.blueprint, folder))
    if lack is not None:
        raise document_error(
            [loaded.finding(("image",), f"podman cannot run it here: {lack.text}", "target-refuses", lack.next)]
        )


def require_free(wish: Wish) -> None:
    """Raise UsageError where a port that is asked for is taken on this machine, if that is where the service will be."""
    if wish.target == ALLOCATION or wish.bind != "loopback":
        return
    for name, number in wish.ports.items():
        if not is_free("127.0.0.1", number):
            raise UsageError(
                f"the port {number} is taken",
                given=f"--port {name}={number}",
                next="another number, or none: a free one is found",
            )


def host_document(loaded: LoadedBlueprint, folder: ServiceFolder, number: int, wish: Wish) -> dict[str, Any]:
    """Return what the program of a revision is started from; no secret's value is in it.

    Raises:
        UsageError: a parameter or port is unknown or wrong.
        DocumentError: the target cannot honour the blueprint.
    """
    require_target(loaded, wish.target, wish.bind)
    blueprint = loaded.blueprint
    for name in wish.ports:
        if name not in blueprint.ports:
            raise UsageError(
                f"{blueprint.name} has no port {name}", given=name, allowed=list(blueprint.ports) or "none"
            )
    inside = wish.target == PODMAN
    argv = _image_program(blueprint) if inside else _program(loaded)
    command: _Command = list if inside else loaded.command
    document: dict[str, Any] = {
        "schema": 1,
        "service": folder.name,
        "revision": number,
        "argv": argv,
        "setup": [] if inside else [_set_up(loaded, words) for words in blueprint.setup],
        "env": dict(blueprint.env),
        "files": dict(blueprint.files),
        "client": dict(blueprint.client),
        "parameters": parameter_values(blueprint, wish.parameters),
        "ports": {
            name: {"protocol": port.protocol, "number": wish.ports.get(name), "inside": port.port}
            for name, port in blueprint.ports.items()
        },
        "ready": _probe(blueprint.ready, blueprint, command),
        "live": _probe(blueprint.live, blueprint, command) if blueprint.live else None,
        "closed": _closed(blueprint.closed, blueprint, command) if blueprint.closed else None,
        "volumes": {
            name: {"path": str(folder.volume(name)), "inside": volume.path}
            for name, volume in blueprint.volumes.items()
        },
        "secrets": {
            name: {"path": str(folder.secret(name)), "env": secret.env, "env_file": secret.env_file}
            for name, secret in blueprint.secrets.items()
        },
        "token_file": next(
            (str(folder.secret(name)) for name in ("token", "password") if name in blueprint.secrets), None
        ),
        "guard": blueprint.guard,
        "door": _door_urls(blueprint, wish),
        "restored": {"argv": command(blueprint.backup.after), "marker": str(folder.root / "restored")}
        if blueprint.backup.after
        else None,
        "bind": wish.bind,
        "idle_s": blueprint.idle if wish.idle_s is None else wish.idle_s,
        "stop_s": blueprint.stop,
        "stop_signal": blueprint.stop_signal,
        "lock": str(folder.lock) if blueprint.has_one_writer else None,
        "path": [] if inside else [*blueprint.look_in, str(Path(sys.executable).parent)],
        "put_first": interpreter_path(os.environ),
        "install": "" if inside else "; ".join(blueprint.install),
    }
    if inside:
        document["container"] = _container(blueprint, folder)
    return document


def _container(blueprint: Blueprint, folder: ServiceFolder) -> dict[str, Any]:
    """Return how podman runs it."""
    guarded = blueprint.guard == "token"
    return {
        # Where runs of it may overlap, each has a name of its own.
        "name": container_prefix(folder) + ("" if blueprint.has_one_writer else "-{run}"),
        "guard": token_guard.__file__ if guarded else None,
        "entrypoint": "python3" if guarded else None,
        "image": blueprint.image,
        "user": blueprint.image_user,
        "userns": f"keep-id:uid={blueprint.image_user},gid={blueprint.image_user}",
        "writable": list(blueprint.writable),
        "gpus": blueprint.need.gpus,
        "cpus": blueprint.need.cpus,
        "memory": blueprint.need.memory,
    }


def container_prefix(folder: ServiceFolder) -> str:
    """Return how the names of a service's containers begin; a service of this name in another folder is another."""
    return f"cordee-{folder.name}-{hashlib.sha256(os.fsencode(folder.root)).hexdigest()[:8]}"


def _image_program(blueprint: Blueprint) -> list[str]:
    """Return the program in an image, behind the guard where that asks for the token: in place of the image's entrypoint."""
    guard = [GUARD, "{secret.token}"] if blueprint.guard == "token" else []
    return [*guard, *(blueprint.image_argv or ())]


def _door_urls(blueprint: Blueprint, wish: Wish) -> dict[str, str]:
    """Return the address of the front door under the name of the port that it leads to.

    Raises:
        UsageError: it is not the web that is spoken there.
    """
    if wish.door is None:
        return {}
    name = next((name for name, port in blueprint.ports.items() if port.protocol == "http"), None)
    if name is None:
        raise UsageError(
            f"the front door leads to web servers, and {blueprint.name} is none",
            given=blueprint.name,
            allowed='a port with protocol = "http"',
            next="deploy it without --door",
        )
    return {name: DoorFolder().url(wish.door)}


def _program(loaded: LoadedBlueprint) -> list[str]:
    """Return the program on a host, behind the guard where that asks for the token."""
    argv = loaded.command(loaded.blueprint.argv or ())
    if loaded.blueprint.guard != "token":
        return argv
    return [sys.executable, token_guard.__file__, "{secret.token}", *argv]


def _set_up(loaded: LoadedBlueprint, words: Sequence[str]) -> list[str]:
    """Return a command of `setup`: `python` has the packages of the program, while PATH may lead to another one first."""
    command, argv = loaded.command(words), loaded.command(loaded.blueprint.argv or ())
    if command[0] != "python" or argv[0].startswith("-"):
        return command
    return [sys.executable, token_guard.__file__, token_guard.PYTHON_OF, argv[0], *command[1:]]


def _probe(probe: ServiceProbe, blueprint: Blueprint, command: _Command) -> dict[str, Any]:
    return {
        "port": probe.port or blueprint.main_port,
        "path": probe.path,
        "status": probe.status,
        "command": command(probe.command) if probe.command else None,
        "every_s": probe.every,
        "timeout_s": probe.timeout,
        "within_s": probe.within,
        "failures": probe.failures,
    }


def _closed(closed: ClosedProbe, blueprint: Blueprint, command: _Command) -> dict[str, Any]:
    return {
        "port": closed.port or blueprint.main_port,
        "path": closed.path,
        "command": command(closed.command) if closed.command else None,
        "timeout_s": 5.0,
    }


def job_text(blueprint: Blueprint, folder: ServiceFolder, spec: Path, wish: Wish) -> str:
    """Return the job document of a service: one rank that starts its program and watches it."""
    need: dict[str, Any] = {"ranks_per_node": 1, "gpus_per_node": blueprint.need.gpus}
    if wish.target == ALLOCATION:
        need.update(cpus_per_rank=blueprint.need.cpus, memory=blueprint.need.memory)
    time_s = wish.time_s or blueprint.need.time
    if time_s:
        need["time"] = f"{time_s:.0f}s"
    tables: dict[str, dict[str, Any]] = {
        "need": need,
        # It runs for months: what went wrong weeks ago does not count, and samples are few, or go after a week where more are asked for.
        "restart": {"retries": 20, "backoff": "1s", "forget": "5min"},
        "sampling": {"interval": "60s", "hardware": False, "keep": "7d"},
        "logs": {"keep": "256MB"},
        # A program may take longer to end than ranks have from SIGTERM to SIGKILL; in the next allocation it has its volumes.
        "checkpoint": {"signal": "SIGTERM", "resume": "self"},
        "hang": {"enabled": False},
        "observe": {"stragglers": False},
        "timeouts": {
            "kill": f"{blueprint.stop + (REMOVAL_S if wish.target == PODMAN else 5):.0f}s",
            "lost": f"{max(20.0, 2.5 * (blueprint.stop + 3)):.0f}s",
        },
    }
    lines = [
        f"# Made by `cordee service deploy {folder.name}`: its blueprint is {folder.root}",
        f"name = {value_text(folder.name)}",
        f"run = {value_text(module_argv('cordee.systems.services.node.host', str(spec)))}",
    ]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {value_text(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def write_revision(
    loaded: LoadedBlueprint, folder: ServiceFolder, wish: Wish, lock_wait_s: float | None = None
) -> tuple[int, Path]:
    """Keep a blueprint as a revision of a service, with its job; return its number and the job's folder.

    Args:
        lock_wait_s: how long its program waits for the data of a run before it; None: as long as one that ends may take.

    Raises:
        UsageError, DocumentError: as `host_document`.
        ServiceError: a secret cannot be had, or a volume is gone.
    """
    folder.make()
    host_document(loaded, folder, 0, wish)  # before anything is kept
    require_machine(loaded, folder, wish.target)
    folder.make_volumes(loaded.blueprint)
    number = folder.keep_revision(loaded)
    folder.keep_secrets(loaded.blueprint)
    document = host_document(loaded, folder, number, wish)
    document["ports_before"] = _ports_before(folder)
    if lock_wait_s is not None:
        document["lock_wait_s"] = lock_wait_s
    document["network_interface"] = load_cluster(wish.cluster).network_interface
    spec, job = host_path(folder, document), folder.revision(number) / "job"
    job.mkdir(0o700, exist_ok=True)
    write_atomically(spec, json.dumps(document, indent=1))
    write_atomically(job / "cordee.toml", job_text(loaded.blueprint, folder, spec, wish))
    return number, job


def _ports_before(folder: ServiceFolder) -> dict[str, int]:
    """Return the ports of the newest run that had any: clients know them."""
    for run in sorted(folder.runs.glob("[!.]*"), reverse=True):  # their names begin alike and go on with the time
        endpoints = read_state(state_path(run, folder.name)).get("endpoints")
        if endpoints:
            return {one["name"]: one["port"] for one in endpoints}
    return {}


def host_path(folder: ServiceFolder, document: dict[str, Any]) -> Path:
    """Return the file that a service's host is started from; runs of one revision with other parameters each have their own."""
    digest = hashlib.sha256(json.dumps(document).encode()).hexdigest()[:12]
    return folder.revision(document["revision"]) / f"host-{digest}.json"


def start_run(job: Path, loaded: LoadedBlueprint, folder: ServiceFolder, wish: Wish) -> RunFolder:
    """Submit the job of a service of this blueprint, and return its run.

    Raises:
        DocumentError: the job that it becomes cannot be planned.
        CordeeError: it cannot be submitted.
    """
    from cordee.job.submit import plan_of, submitter_of
    from cordee.job.submit.prepare import create_run, prepare

    try:
        prepared = prepare(str(job), wish.cluster, dict(wish.settings), folder.runs)
        prepared.require_valid()
    except DocumentError as error:
        raise document_error([_of_blueprint(one, job / "cordee.toml", loaded) for one in error.findings]) from None
    run = create_run(prepared)
    submitter_of(run).submit(run, plan_of(run))
    return run


def _of_blueprint(fault: Finding, job: Path, loaded: LoadedBlueprint) -> Finding:
    """Return a fault of the job that a service becomes as one of what the person has written: nobody edits that job."""
    if fault.file != str(job):
        return replace(fault, next="change what --job gives") if "[on." in (fault.next or "") else fault
    key = job.read_text().splitlines()[fault.line - 1].partition(" = ")[0] if fault.line else ""
    need = _NEEDS.get(key)
    if need is None:
        return replace(fault, file=None, line=None, next="set the key of the job that it becomes: --job KEY=VALUE")
    line = find_line(loaded.text, ("need", need))
    what = f"change [need] {need} of the blueprint, or give --job need.{key}=VALUE"
    return replace(fault, file=str(loaded.source), line=line, next=what)


def owner_of(blueprint: Blueprint) -> str:
    """Return who answers for a service."""
    return blueprint.owner or getpass.getuser()


def default_target(cluster: ClusterProfile, given: Target | None, blueprint: Blueprint) -> Target:
    """Return the target of a deployment: the one that is asked for, else what fits the cluster.

    Raises:
        UsageError: the cluster has no such target.
    """
    here = not backend(cluster.scheduler).abilities.queues
    if given is None:
        return "podman" if here and blueprint.argv is None else "process" if here else ALLOCATION
    if (given == ALLOCATION) == here:
        raise UsageError(
            f"the target {given} is not one of the cluster {cluster.name}",
            given=given,
            allowed=["process", "podman"] if here else ALLOCATION,
            next="choose another --on",
        )
    return given
