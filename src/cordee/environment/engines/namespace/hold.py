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
import time

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.boot import first_words
from cordee.environment.engines.namespace.execute import ENGINE
from cordee.environment.engines.namespace.isolation import leave_host
from cordee.environment.engines.namespace.kernel import Refused
from cordee.environment.engines.namespace.request import Request, request_of
from cordee.environment.engines.namespace.root import Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "cordee.container/1"


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
        watch = _start_watch()
        root = Root(request, leave_host())
        servers = root.servers
        root.prepare()
        root.assemble(own_processes=False)
        if request.workdir is not None and not os.path.isdir(request.workdir):
            raise Refused(
                f"the container has no folder {request.workdir} to begin in",
                given=request.workdir,
                next="set workdir to a folder of the image, or mount one there",
            )
        _be_watched(watch)
    except (Refused, OSError) as error:
        refused = error if isinstance(error, Refused) else Refused(f"the container could not be made: {error}")
        _say_refused(refused, plain)
        kernel.end(servers)
        return ENGINE
    _say_open(root, request, document, plain)
    while os.read(0, 4096):
        pass
    # What runs inside ends before what serves its files: nothing is to crash on the way.
    _empty(os.readlink("/proc/self/ns/mnt"), {os.getpid(), *servers})
    kernel.end(servers)
    return 0


def _start_watch() -> tuple[int, int]:
    """Start the process that ends what is inside when this one has ended; return where to tell it and where it answers."""
    reading, told = os.pipe()
    heard, answering = os.pipe()
    holder = os.getpid()
    # A host whose mounts are gone from sight must not be looked at from inside: it starts before anything is left.
    if os.fork():
        os.close(reading)
        os.close(answering)
        return told, heard
    try:
        os.close(told)
        os.close(heard)
        os.setsid()
        silent = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        os.chdir("/")
        kernel.block_signals()
        if os.read(reading, 1):
            # Kept open, the namespace keeps its number: a later one that got it would be taken for it.
            os.open(f"/proc/{holder}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            namespace = os.readlink(f"/proc/{holder}/ns/mnt")
            os.write(answering, b"1")
            os.read(reading, 1)
            _empty(namespace, set())
    finally:
        os._exit(0)


def _be_watched(watch: tuple[int, int]) -> None:
    """Have the watch look at the namespace that this process is in now.

    Raises:
        Refused: the watch has ended.
    """
    told, heard = watch
    os.write(told, b"1")
    if not os.read(heard, 1):
        raise Refused("the process that ends the container with its holder could not be kept", next="start it again")
    os.close(heard)


def _empty(namespace: str, spared: set[int]) -> None:
    """Kill what runs in a mount namespace, except for some, until there is nothing more."""
    while True:
        inside = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_in(pid, namespace)]
        if not set(inside) - spared:
            return
        for pid in set(inside) - spared:
            try:
                os.kill(pid, kernel.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _is_in(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == namespace
    except OSError:
        return False


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    if document.get("schema") != "cordee.environment/1":
        raise Refused("the document is of another schema", given=str(document.get("schema")))
    if not document["root"]:
        raise Refused("the image of the environment has not been looked up", given=document["image"])
    return document


def _request_of_document(document: dict[str, Any]) -> Request:
    request = Request(document["root"]["kind"], document["root"]["path"], document["writable"])
    request.mounts = [(each["source"], each["target"], tuple(each["flags"])) for each in document["mounts"]]
    request.devices = list(document["devices"])
    request.workdir = document["workdir"]
    if request.kind != "host":
        request.workdir = request.workdir or document["config"]["workdir"] or "/"
    return request


def _say_refused(refused: Refused, plain: bool) -> None:
    if plain:
        _print(f"error {refused.words()}\0\0")
        return
    error = {"kind": "environment", "text": refused.text, "given": refused.given, "next": refused.next}
    _print(json.dumps({"schema": SCHEMA, "error": {**error, "file": None, "line": None, "allowed": None}}) + "\n")


def _say_open(root: Root, request: Request, document: dict[str, Any], plain: bool) -> None:
    pid = os.getpid()
    if plain:
        records = [f"pid={pid}", f"user={int(root.user)}", f"workdir={request.workdir or ''}"]
        records += _variables(document)
        records += [f"default {name}={value}" for name, value in root.variables]
        records += [f"append {name}={value}" for name, value in root.appended]
        _print("".join(f"{record}\0" for record in records) + "\0")
        return
    enter = [*first_words(), "enter", str(pid), _started(pid), str(int(root.user))]
    enter += [word for name, value in root.variables for word in ("--variable", name, value)]
    enter += [word for name, value in root.appended for word in ("--append", name, value)]
    _print(json.dumps({"schema": SCHEMA, "enter": enter, "pid": pid, "user": root.user}) + "\n")


def _variables(document: dict[str, Any]) -> list[str]:
    if not document:
        return []
    merged = {**document["config"]["env"], **document["env"]}
    unset = [name for name, value in document["env"].items() if value == ""]
    return [f"env {name}={value}" for name, value in merged.items() if name not in unset] + [
        f"unset {name}" for name in unset
    ]


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks: with its id, that names it for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def _print(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]
