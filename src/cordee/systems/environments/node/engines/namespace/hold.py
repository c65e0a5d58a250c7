r"""One container, kept open for the commands of a node.

The process that holds it sits inside, prints how to get in, and waits for the end of its standard input. A second one, the
watch, sits outside: when the holder has ended, by whatever, it kills what is still inside.

`--plain` prints, for programs without JSON, records that each end with a NUL, an empty one last:
`pid=PID`, `user=0|1` (whether /proc/PID/ns/user is to be joined before /proc/PID/ns/mnt), `workdir=PATH`, perhaps `say=TEXT`
for whoever waits, then for the variables, to be done in their order, `env NAME=VALUE`, `unset NAME`, `default NAME=VALUE`
(where it is not set), `append NAME=VALUE` and `prepend NAME=VALUE` (to a list with colons). Or one, `error TEXT`.
With `--document FILE` the container is that of a `cordee.environment/1` document in place of the words; only then are
there variables of the EDF and the image among the records, and start-up commands are run once they are written, in the
environment in which this process is started with the document's own over it. `startup=` among the records says that there are
such; what they leave goes, as further records, perhaps `error TEXT`, to the file in memory that `--startup NUMBER` names, which is
sealed then. With `--tell NUMBER` a descriptor gets, when all that is done, the JSON line that is printed without `--plain`, with
`left`, the changes of the start-up.
"""

from __future__ import annotations

import fcntl
import json
import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.answer import say_open, say_refused, write
from cordee.systems.environments.node.engines.namespace.boot import first_words
from cordee.systems.environments.node.engines.namespace.execute import ENGINE, add_variables
from cordee.systems.environments.node.engines.namespace.isolation import leave_host
from cordee.systems.environments.node.engines.namespace.join import enter_words, started
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.request import ContainerRequest, request_of
from cordee.systems.environments.node.engines.namespace.root.mounted_root import MountedRoot
from cordee.systems.environments.node.engines.namespace.startup import run_startup
from cordee.systems.environments.node.engines.namespace.watch import be_watched, empty, start_watch
from cordee.systems.environments.node.patches import APPEND, SET, UNSET, patched, patches_between

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def hold(words: list[str]) -> int:
    """Open the container of the words, say how to enter it, and keep it until standard input ends; return the exit code."""
    plain, tell, left_to = words[:1] == ["--plain"], 0, 0
    words = words[1:] if plain else words
    if words[:1] == ["--tell"]:
        tell, words = int(words[1]), words[2:]
    if words[:1] == ["--startup"]:
        left_to, words = int(words[1]), words[2:]
        os.set_inheritable(left_to, False)
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
    code, left = 0, None
    try:
        left = _start_up(root, request, document, left_to)
    except (EngineRefused, OSError) as error:
        # It stays until it is told to end, as for a start-up that went well: whoever waits is not to take it for killed.
        code = ENGINE
        _leave(left_to, [f"error {error.words() if isinstance(error, EngineRefused) else error}"])
    if tell:
        if left is not None:
            answer = {"enter": _enter(root), "left": left}
            os.write(tell, json.dumps(answer).encode("utf-8", "surrogateescape") + b"\n")
        os.close(tell)
    while os.read(0, 4096):
        pass
    # What runs inside ends before what serves its files: nothing is to crash on the way.
    empty(os.readlink("/proc/self/ns/mnt"), {os.getpid(), *servers})
    kernel.end(servers)
    return code


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
    request.overlay, request.accounts = document.get("overlay", ""), list(document.get("accounts") or ())
    request.hooks = [json.dumps(hook) for hook in document.get("oci_hooks") or ()]
    request.annotations = [f"{name}={value}" for name, value in document["annotations"].items()]
    # They are run here, but what runs them has to be loaded while it is in sight.
    request.startup = list(document.get("startup") or ())
    request.workdir = document["workdir"]
    if request.kind != "host":
        request.workdir = request.workdir or document["config"]["workdir"] or "/"
    return request


def _start_up(
    root: MountedRoot, request: ContainerRequest, document: dict[str, Any], left_to: int
) -> list[tuple[str, str, str]]:
    """Run the start-up commands of a document; return what they have changed, as `node.patches` has it.

    Raises:
        EngineRefused: one failed, or standard input ended.
    """
    lines = request.startup if left_to else []
    if not lines:
        return []
    own = [(kind, name, value) for kind, name, value in _variables(document) if kind != "default"]
    before = patched({os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()}, own)
    env = {os.fsencode(name): os.fsencode(value) for name, value in before.items()}
    add_variables(env, root.variables, root.appended)
    begun = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    after, told = run_startup(lines, float(document["startup_s"]), env, request.workdir or "/", set(), unless_ended=0)
    left = patches_between(begun, {os.fsdecode(name): os.fsdecode(value) for name, value in after.items()})
    _leave(left_to, [f"say={told}", *map(_record, left)])
    return left


def _leave(left_to: int, records: list[str]) -> None:
    """Write records into a file in memory, and let it be seen that these are all."""
    with open(left_to, "wb", closefd=False) as file:
        file.write(b"".join(os.fsencode(record) + b"\0" for record in records))
    fcntl.fcntl(left_to, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def _record(change: tuple[str, str, str]) -> str:
    kind, name, value = change
    return f"unset {name}" if kind == UNSET else f"{'env' if kind == SET else kind} {name}={value}"


def _enter(root: MountedRoot) -> list[str]:
    pid = os.getpid()
    return [
        *first_words(),
        "enter",
        str(pid),
        started(pid),
        str(int(root.user)),
        *enter_words(root.variables, root.appended),
    ]


def _say_open(root: MountedRoot, request: ContainerRequest, document: dict[str, Any], plain: bool) -> None:
    pid = os.getpid()
    if not plain:
        say_open(_enter(root), pid, root.user)
        return
    records = [f"pid={pid}", f"user={int(root.user)}", f"workdir={request.workdir or ''}"]
    records += ["startup="] if request.startup else []
    changes = [*_variables(document), *(("default", name, value) for name, value in root.variables)]
    changes += [(APPEND, name, value) for name, value in root.appended]
    write("".join(f"{record}\0" for record in [*records, *map(_record, changes)]) + "\0")


def _variables(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return what the image, views and the EDF do to variables, in this order."""
    if not document:
        return []
    own = document["env"]
    found = [(SET, name, value) for name, value in document["config"]["env"].items() if name not in own]
    found += [(each[0], each[1], each[2]) for each in document.get("patches") or () if each[1] not in own]
    return found + [(SET if value else UNSET, name, value) for name, value in own.items()]
