"""The process that looks at files: `python -m`, its end of a socket as descriptor 0. Files come as open descriptors, verdicts go back as JSON."""

from __future__ import annotations

import array
import codecs
import gc
import json
import os
import socket
import sys
import time
from typing import Any

from cordee.systems.scan.node.confinement import confine, limit
from cordee.systems.scan.node.formats import decompressors
from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.inspection import Inspection
from cordee.systems.scan.node.source import FileSource
from cordee.systems.scan.node.verdict import MESSAGE_BYTES, ORDER, worst

MEMORY_BYTES = 2 << 30
_MOST_TEXT = 400
_SHARE = 0.7  # of the time after which it is killed: then it tells what it has seen
_CODECS = (
    "ascii", "latin1", "cp437", "raw_unicode_escape", "unicode_escape", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be",
)  # fmt: skip


def main() -> int:
    """Look at files until the other end closes the socket."""
    connection = socket.socket(fileno=0)
    known = PickleGlobals(json.loads(sys.argv[1]) if len(sys.argv) > 1 else ())
    import_all()
    limit(MEMORY_BYTES)
    confined = confine()
    gc.disable()  # it would look through all that a pickle makes, again and again; after each file it does so once
    gc.freeze()
    connection.send(json.dumps({"confined": confined}).encode())
    while True:
        order, ancillary, _, _ = connection.recvmsg(ORDER.size, socket.CMSG_SPACE(4))
        if not order:
            return 0
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        answer = _looked_at(descriptors[0], known, *ORDER.unpack(order)) if descriptors else {}
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(_bounded(answer))


def import_all() -> None:
    """Import what looking at a file may need: nothing can be imported once the process is confined."""
    for name in _CODECS:
        codecs.lookup(name)
    decompressors.load()


def _looked_at(descriptor: int, known: PickleGlobals, secrets: bool, patience_s: float) -> dict[str, Any]:
    began, source = time.monotonic(), FileSource(descriptor)
    inspection = Inspection(known, secrets, began + _SHARE * patience_s)
    inspection.look(source)
    gc.collect()
    sights = inspection.sights
    return {
        "verdict": worst(sight.severity for sight in sights),
        "kinds": list(inspection.kinds),
        "sights": [
            [sight.rule, sight.severity, sight.text[:_MOST_TEXT], sight.where[-_MOST_TEXT:]] for sight in sights
        ],
        "seconds": time.monotonic() - began,
    }


def _bounded(answer: dict[str, Any]) -> bytes:
    message = json.dumps(answer).encode()
    while len(message) > MESSAGE_BYTES and answer["sights"]:
        answer["sights"] = sorted(answer["sights"], key=lambda sight: sight[1] != "block")[: len(answer["sights"]) // 2]
        message = json.dumps(answer).encode()
    return message


if __name__ == "__main__":
    sys.exit(main())
