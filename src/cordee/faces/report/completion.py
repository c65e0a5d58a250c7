"""What the end of a run left to do, done by who reads it next: its supervisor was killed, or its allocation was given back."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal
from cordee.runs.state import RunState
from cordee.telemetry.node.blocklog import list_parts

# Supervisors close their runs themselves, in a few seconds; on one machine nobody waits for them to leave.
_OWNER_S = 30.0
_CLOCKS_S = 2.0


def reported(folder: RunFolder, state: RunState) -> bool:
    """Return whether the report was rendered after the end, as far as two machines' clocks agree."""
    try:
        rendered = (folder.report / "index.html").stat().st_mtime
    except OSError:
        return False
    return rendered > (state.ended_at or 0.0) - _CLOCKS_S


def complete(folder: RunFolder, state: RunState, *, owner_is_gone: bool = False) -> bool:
    """Seal and render a run that has ended, where that was not done; return whether there was anything to do.

    One reader seals, as always; a run of another user, or on a disk that refuses, is left as it is.

    Args:
        owner_is_gone: whether it is known that no supervisor does it any more; else that is taken for granted after a while.
    """
    if not state.ended or os.stat(folder.root).st_uid != os.geteuid():
        return False
    if not owner_is_gone and time.time() - (state.ended_at or 0.0) < _OWNER_S:
        return False
    parts = list_parts(folder.telemetry)
    if not parts and reported(folder, state):
        return False
    from cordee.faces.report import render
    from cordee.telemetry.store.seal import drop_sealed_parts, seal

    with suppress(CordeeError, OSError):
        if parts:
            until = seal(folder.root, final=True)
            if until is not None and until != state.sealed_until:
                client_journal(folder.journal).append("sealed", until=until)
            drop_sealed_parts(folder.root)
        if not reported(folder, state):
            render(folder.root)
    return True
