"""What the plugin runs once for a step on a node, as the user: it becomes what keeps the step's container open.

Standard input and output are one socket to the plugin, in records that end with a NUL byte. The plugin asks by
`variable=NAME=VALUE` for each variable of the job, `document=WORD` (see `carried`), `bind=PATH:...` for what a site shows in
every container, `script=PATH` for a batch script, then `go=`. It is answered by `say=TEXT` for whoever waits, `entrypoint=WORD`
for each word of an entrypoint, and by what the namespace engine's `hold --plain` prints; an empty record is the last one, and
`error TEXT` stands for a container that cannot be had. What start-up commands leave comes by descriptor 3, a file in memory. The end of the socket, which is also what a killed slurmstepd
leaves, ends the container with everything in it.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
from dataclasses import replace
from typing import Iterable, NoReturn

from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineError
from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.hooks import is_on
from cordee.systems.environments.node.hooks.oci import oci_hooks
from cordee.systems.environments.node.ready import node_name, ready_here
from cordee.systems.environments.node.spank.carried import carried
from cordee.systems.environments.node.ssh_access import ssh_request

ENGINE = "namespace"
_SOCKET, _STARTUP = 0, 3
_READ_BYTES = 65536
_VARIABLE, _CARRIED = "variable", "SLURM_CORDEE_"
# An image may have been made from inside a job: where a task stands in its job is said by Slurm alone.
_SLURMS_OWN = ("SLURM", "PMI")


def read_request() -> tuple[dict[str, str], dict[str, str]]:
    """Return what the plugin asks for, and the variables of the job.

    Raises:
        EngineError: the plugin is gone.
    """
    data = b""
    while not data.endswith(b"\0go=\0"):
        more = os.read(_SOCKET, _READ_BYTES)
        if not more:
            raise EngineError("the plugin is gone")
        data += more
    records = [record.partition("=") for record in os.fsdecode(data).split("\0") if record]
    given = (value.partition("=") for key, _, value in records if key == _VARIABLE)
    variables = {name: value for name, _, value in given if not name.startswith(_CARRIED)}
    return {key: value for key, _, value in records if key != _VARIABLE}, variables


def asked_for(request: dict[str, str]) -> Environment:
    """Return the environment of a step: with what the site shows and a batch script's folder, less Slurm's own variables.

    Raises:
        EngineError: what the job carries is of another version.
    """
    try:
        environment = carried(request["document"])
    except (KeyError, ValueError) as error:
        raise EngineError(
            "what the job carries of its environment cannot be read here",
            given=str(error),
            next="submit again, with the same version of Cordée where you submit and on the nodes",
        ) from None
    kept = {name: value for name, value in environment.config.env.items() if not name.startswith(_SLURMS_OWN)}
    environment = replace(environment, config=replace(environment.config, env=kept))
    if environment.root is not None and environment.root.kind == "host":
        return environment
    given = {mount.target for mount in environment.mounts}
    shown = [path for path in request.get("bind", "").split(":") if os.path.exists(path) and path not in given]
    # The EDF's mounts may lie in a folder that the site shows, and the script's in one that the EDF mounts.
    mounts = (*(ContainerMount(path, path) for path in shown), *environment.mounts)
    if "script" in request:
        folder = os.path.dirname(request["script"])
        mounts = (*mounts, ContainerMount(folder, folder, ("ro",)))
    return replace(environment, mounts=mounts)


def require(environment: Environment) -> None:
    """Raise EngineError when this node cannot run an environment."""
    missing = find_engine(ENGINE).missing(environment)
    if missing:
        raise EngineError(
            "; ".join(each.text for each in missing), next="; ".join(dict.fromkeys(each.next for each in missing))
        )


def send(records: Iterable[str]) -> None:
    """Write records to the plugin."""
    data = b"".join(os.fsencode(record) + b"\0" for record in records)
    while data:
        data = data[os.write(_SOCKET, data) :]


def become_holder(environment: Environment, variables: dict[str, str]) -> NoReturn:
    """Execute the engine's holder; the document is handed over in memory, since command lines can be read by everyone."""
    from cordee.systems.environments.node.engines.namespace.boot import first_words

    descriptor = os.memfd_create("environment", 0)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape") as file:
        hooks = oci_hooks(environment, os.environ) if environment.image else []
        json.dump({**environment.document(), "oci_hooks": hooks}, file)
    tell = ["--tell", str(_ssh_beside(environment, variables))] if is_on(environment.annotations, "ssh") else []
    words = [
        *first_words(),
        "hold",
        "--plain",
        *tell,
        "--startup",
        str(_STARTUP),
        "--document",
        f"/proc/self/fd/{descriptor}",
    ]
    os.execve(words[0], words, {**os.environ, **variables})


def _ssh_beside(environment: Environment, variables: dict[str, str]) -> int:
    """Start what lets people in by ssh once the container is up; return the descriptor that is to be told of it."""
    from cordee.systems.environments.node import ssh_server

    reading, telling = os.pipe()
    parent = os.getpid()
    if os.fork():
        os.close(reading)
        os.set_inheritable(telling, True)
        return telling
    try:
        os.close(telling)
        silent = os.open("/dev/null", os.O_RDWR)
        for number in range(2):  # the socket's end is what the plugin waits for
            os.dup2(silent, number)
        kernel.die_with_parent(signal.SIGTERM)
        if os.getppid() == parent:
            with os.fdopen(reading, encoding="utf-8", errors="surrogateescape") as file:
                answer = json.loads(file.readline())  # others hold the other end
            left = [(each[0], each[1], each[2]) for each in answer["left"]]
            env = environment.variables({**os.environ, **variables}, left)
            workdir = environment.begins_in(variables.get("PWD", "/") if not environment.image else "/")
            asked = ssh_request(environment, answer["enter"], env, workdir, node_name(variables), loopback=False)
            os.dup2(os.memfd_create("asked", 0), 0)
            os.write(0, asked)
            os.lseek(0, 0, os.SEEK_SET)
            ssh_server.main()
    except ValueError:
        pass  # there is no container, and the holder has said so
    finally:
        os._exit(0)


def main() -> int:
    """Keep the container that the plugin asks for open until the socket ends."""
    try:
        request, variables = read_request()
        # Whose these are is said by the system: a job that takes no variables along has none of them.
        account = pwd.getpwuid(os.geteuid())
        variables = {"HOME": account.pw_dir, "USER": account.pw_name, **variables}
        warnings: list[str] = []
        environment = ready_here(asked_for(request), {**os.environ, **variables}, warnings.append)
        require(environment)
        send(f"say={warning}" for warning in warnings)
        send(f"entrypoint={word}" for word in environment.config.entrypoint if environment.entrypoint)
        become_holder(environment, variables)
    except EngineError as error:
        send([f"error {error}", ""])
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
