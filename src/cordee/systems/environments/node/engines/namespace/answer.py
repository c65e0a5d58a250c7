"""What the process that holds a container says on standard output: one document, and then nothing."""

from __future__ import annotations

import json
import os

from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

SCHEMA = "cordee.container/1"


def say_open(enter: list[str], pid: int, user: bool) -> None:
    """Say how commands get in, which process makes the container, and whether its user namespace is joined."""
    write(json.dumps({"schema": SCHEMA, "enter": enter, "pid": pid, "user": user}) + "\n")


def say_refused(refused: EngineRefused) -> None:
    """Say why there is no container."""
    error = {"kind": "environment", "text": refused.text, "given": refused.given, "next": refused.next}
    write(json.dumps({"schema": SCHEMA, "error": {**error, "file": None, "line": None, "allowed": None}}) + "\n")


def write(text: str) -> None:
    """Write all of a text on standard output."""
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]
