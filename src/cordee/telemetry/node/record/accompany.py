"""Staying with the command until it ends: for a document about it, and where the wrapper is the first process of a container."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, Optional

from cordee.core.errors import CordeeError
from cordee.runs.folder import say
from cordee.telemetry.node.record.options import EXIT_OURS
from cordee.telemetry.node.record.start import RecordStart
from cordee.telemetry.node.recording import Recorder, read_recorders

SCHEMA = "cordee.record/1"
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
_CLOSED_AFTER_S = 2.0
_ASK_EVERY_S = 0.01


def accompany(start: RecordStart, *, output_to_stderr: bool) -> dict[str, Any]:
    """Run the command as a child, hand it the signals that come here, and return a document about it once it has ended.

    A terminal's signals reach the command by themselves, since it stays in the same group.

    Args:
        output_to_stderr: what it prints goes to standard error, so that standard output is the document's.
    """
    started = time.time()
    child = os.fork()
    if child == 0:
        _become(start, output_to_stderr)
    for name in ("SIGINT", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in _FORWARDED:
        signal.signal(getattr(signal, name), lambda number, _: _hand_on(child, number))
    status = _waited(child)
    code, number = (None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else (os.WEXITSTATUS(status), None)
    recorder = _closed(start, child)
    return {
        "schema": SCHEMA,
        "recording": str(start.folder.root) if start.folder else None,
        "command": list(start.options.argv),
        "rank": start.place.rank,
        "node": start.place.node,
        "exit_code": 128 + number if number is not None else code,
        "signal": number,
        "started_at": started,
        "ended_at": time.time(),
        "closed": bool(recorder and recorder.ended_at),
        "sources": recorder.sources if recorder else [],
        "refused": recorder.refused if recorder else {},
        "remarks": recorder.remarks if recorder else [],
    }


def _become(start: RecordStart, output_to_stderr: bool) -> None:
    code = EXIT_OURS
    try:
        if output_to_stderr:
            os.dup2(2, 1)
        start.go()
    except CordeeError as error:
        code = error.exit_code
        say(f"cordee: {error}")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _hand_on(child: int, number: int) -> None:
    try:
        os.kill(child, number)
    except ProcessLookupError:
        return


def _waited(child: int) -> int:
    """Return the command's wait status; the first process of a container also waits for everybody's orphans."""
    while True:
        pid, status = os.waitpid(-1 if os.getpid() == 1 else child, 0)
        if pid == child:
            return status


def _closed(start: RecordStart, pid: int) -> Optional[Recorder]:
    """Return the sampler's document, closed where nobody else can keep it open for long."""
    if start.folder is None:
        return None
    deadline = time.monotonic() + _CLOSED_AFTER_S
    while True:
        recorders = read_recorders(start.folder)[0]
        mine = next((one for one in recorders if any(rank.pid == pid for rank in one.ranks)), None)
        closed = mine is not None and mine.ended_at is not None
        if closed or start.place.together or time.monotonic() > deadline:
            return mine
        time.sleep(_ASK_EVERY_S)
