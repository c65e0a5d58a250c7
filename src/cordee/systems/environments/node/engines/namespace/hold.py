r"""One container, kept open for the commands of a node.

The process that holds it sits inside, prints how to get in, and waits for the end of its standard input. A second one, the
watch, sits outside: when the holder has ended, by whatever, it kills what is still inside.

`--plain` prints, for programs without JSON, records that each end with a NUL, an empty one last:
`pid=PID`, `user=0|1` (whether /proc/PID/ns/user is to be joined before /proc/PID/ns/mnt), `workdir=PATH`, then for the
variables `env NAME=VALUE`, `unset NAME`, `default NAME=VALUE` (where it is not set) and
`append NAME=VALUE` (to a list with colons). Or one, `error TEXT`.
With `--document FILE` the container is that of a `cordee.environment/1` document in place of the words; only then are
there variables of the EDF and the image among the records.
"""

from __future__ import annotations

import json
import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.answer import say_open, say_refused, write
from cordee.systems.environments.node.engines.namespace.boot import first_words
from cordee.systems.environments.node.engines.namespace.execute import ENGINE
from cordee.systems.environments.node.engines.namespace.isolation import leave_host
from cordee.systems.environments.node.engines.namespace.join import enter_words, started
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.request import ContainerRequest, request_of
from cordee.systems.environments.node.engines.namespace.root.mounted_root import MountedRoot
from cordee.systems.environments.node.engines.namespace.watch import be_watched, empty, start_watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def hold(words: list[str]) -> int:
    """Open the container of the words, say how to enter it, and keep it until standard input ends; return the exit code."""
    plain = words[:1] == ["--plain"]
    words = words[1:] if plain else words
    document: dict[str, Any] = {}
    for number in (2, 15):
        kernel.default_signal(number)
    servers: list[int] = []
    try:
        if words[:1] == ["--document"]:
            document = _read(words[1])
            request = _request_of_document(document)
        else:
            request = request_of(words)
        watch = start_watch()
        root = MountedRoot(request, leave_host())
        servers = root.servers
        root.prepare()
        root.assemble(own_processes=False)
        if request.workdir is not None and not os.path.isdir(request.workdir):
            raise EngineRefused(
                f"the container has no folder {request.workdir} to begin in",
                given=request.workdir,
                next="set workdir to a folder of the image, or mount one there",
            )
        be_watched(watch, os.getpid())
    except (EngineRefused, OSError) as error:
        refused = (
            error if isinstance(error, EngineRefused) else EngineRefused(f"the container could not be made: {error}")
        )
        if plain:
            write(f"error {refused.words()}\0\0")
        else:
            say_refused(refused)
        kernel.end(servers)
        return ENGINE
    _say_open(root, request, document, plain)
    while os.read(0, 4096):
        pass
    # What runs inside ends before what serves its files: nothing is to crash on the way.
    empty(os.readlink("/proc/self/ns/mnt"), {os.getpid(), *servers})
    kernel.end(servers)
    return 0


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    if document.get("schema") != "cordee.environment/1":
        raise EngineRefused("the document is of another schema", given=str(document.get("schema")))
    if not document["root"]:
        raise EngineRefused("the image of the environment has not been looked up", given=document["image"])
    return document


def _request_of_document(document: dict[str, Any]) -> ContainerRequest:
    request = ContainerRequest(document["root"]["kind"], document["root"]["path"], document["writable"])
    request.mounts = [(each["source"], each["target"], tuple(each["flags"])) for each in document["mounts"]]
    request.devices = list(document["devices"])
    request.workdir = document["workdir"]
    if request.kind != "host":
        request.workdir = request.workdir or document["config"]["workdir"] or "/"
    return request


def _say_open(root: MountedRoot, request: ContainerRequest, document: dict[str, Any], plain: bool) -> None:
    pid = os.getpid()
    if plain:
        records = [f"pid={pid}", f"user={int(root.user)}", f"workdir={request.workdir or ''}"]
        records += _variables(document)
        records += [f"default {name}={value}" for name, value in root.variables]
        records += [f"append {name}={value}" for name, value in root.appended]
        write("".join(f"{record}\0" for record in records) + "\0")
        return
    enter = [*first_words(), "enter", str(pid), started(pid), str(int(root.user))]
    say_open([*enter, *enter_words(root.variables, root.appended)], pid, root.user)


def _variables(document: dict[str, Any]) -> list[str]:
    if not document:
        return []
    merged = {**document["config"]["env"], **document["env"]}
    unset = [name for name, value in document["env"].items() if value == ""]
    return [f"env {name}={value}" for name, value in merged.items() if name not in unset] + [
        f"unset {name}" for name in unset
    ]
