"""One container, kept open for the commands of a node.

This process holds the end of the pipe that the container's first process waits for. A second one, the watch, sits outside:
when the holder has ended, by whatever, it kills what is still inside.
"""

from __future__ import annotations

import json
import os

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.execute import ENGINE
from cordee.environment.engines.namespace.kernel import Refused
from cordee.environment.engines.podman.boot import first_words
from cordee.environment.engines.podman.container import Container
from cordee.environment.engines.podman.enter import check_workdir, started
from cordee.environment.engines.podman.watch import start_watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cordee.environment.engines.podman.asked import Asked

SCHEMA = "cordee.container/1"


def hold(asked: Asked) -> int:
    """Open the container, say how to enter it, and keep it until standard input ends; return the exit code."""
    for number in (2, 15):
        kernel.default_signal(number)
    container = Container(asked, host_processes=True)
    try:
        told = start_watch()
        container.open(set())
        os.write(told, str(container.pid).encode())
        check_workdir(container.pid, asked.request.workdir or "/")
        container.become_oneself()
    except (Refused, OSError) as error:
        refused = error if isinstance(error, Refused) else Refused(f"the container could not be opened: {error}")
        _print({"error": _error(refused)})
        kernel.end(container.servers)
        return ENGINE
    _print({"enter": _enter(container), "pid": container.pid, "user": container.user})
    while os.read(0, 4096):
        pass
    kernel.end(container.servers)
    return 0


def _enter(container: Container) -> list[str]:
    """Return the words that enter: the container's first process, and for a user the holder, who is called by name again."""
    words = [*first_words(), "enter", str(container.pid), started(container.pid)]
    words += [str(os.getpid()), started(os.getpid())] if container.user else ["0", "0"]
    words += [word for name, value in container.variables for word in ("--variable", name, value)]
    return words + [word for name, value in container.appended for word in ("--append", name, value)]


def _error(refused: Refused) -> dict[str, Any]:
    said = {"kind": "environment", "text": refused.text, "given": refused.given, "next": refused.next}
    return {**said, "file": None, "line": None, "allowed": None}


def _print(content: dict[str, Any]) -> None:
    data = (json.dumps({"schema": SCHEMA, **content}) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]
