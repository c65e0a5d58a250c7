"""What the plugin runs once for a step on a node, as the user: it becomes what keeps the step's container open.

Standard input and output are one socket to the plugin, in records that end with a NUL byte. The plugin asks by
`document=WORD` (see `carried`), `bind=PATH:...` for what a site shows in every container, `script=PATH` for a batch
script, then `go=`. It is answered by `entrypoint=WORD` for
each word of an entrypoint, and by what the namespace engine's `hold --plain` prints; an empty record is the last one, and
`error TEXT` stands for a container that cannot be had. The end of the socket, which is also what a killed slurmstepd
leaves, ends the container with everything in it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Iterable, NoReturn

from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineError
from cordee.systems.environments.node.spank.carried import carried

ENGINE = "namespace"
_SOCKET = 0
_READ_BYTES = 65536
# An image may have been made from inside a job: where a task stands in its job is said by Slurm alone.
_SLURMS_OWN = ("SLURM", "PMI")


def read_request() -> dict[str, str]:
    """Return what the plugin asks for.

    Raises:
        EngineError: the plugin is gone.
    """
    data = b""
    while not data.endswith(b"\0go=\0"):
        more = os.read(_SOCKET, _READ_BYTES)
        if not more:
            raise EngineError("the plugin is gone")
        data += more
    records = (record.partition("=") for record in os.fsdecode(data).split("\0") if record)
    return {key: value for key, _, value in records}


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


def become_holder(environment: Environment) -> NoReturn:
    """Execute the engine's holder; the document is handed over in memory, since command lines can be read by everyone."""
    from cordee.systems.environments.node.engines.namespace.boot import first_words

    descriptor = os.memfd_create("environment", 0)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(environment.document(), file)
    words = [*first_words(), "hold", "--plain", "--document", f"/proc/self/fd/{descriptor}"]
    os.execv(words[0], words)


def main() -> int:
    """Keep the container that the plugin asks for open until the socket ends."""
    try:
        environment = asked_for(read_request())
        require(environment)
        send(f"entrypoint={word}" for word in environment.config.entrypoint if environment.entrypoint)
        become_holder(environment)
    except EngineError as error:
        send([f"error {error}", ""])
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
