"""What the end of a run left to do, done by who reads it next: its supervisor was killed, or its allocation was given back.

`python -m cordee.faces.report.completion FOLDER` does it beside others that are waited for, and prints what came of it.
"""

from __future__ import annotations

import json
import os
import sys
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
_NICE = 10


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
    if not unfinished(folder, state) or not may_store(folder) or (not owner_is_gone and owner_s(state) > 0):
        return False
    parts = list_parts(folder.telemetry)
    from cordee.faces.report import render
    from cordee.telemetry.store.seal import drop_sealed_parts, seal
    from cordee.telemetry.store.sealed import read_commit

    with suppress(CordeeError, OSError):
        if parts:
            until, journal = seal(folder.root, final=True), client_journal(folder.journal)
            capped = read_commit(folder.telemetry).capped_values
            if capped and all(finding.rule != "metric-names-capped" for finding in state.findings):
                from cordee.control.supervisor.closing_findings import run_names_capped

                journal.append("finding", finding=run_names_capped(capped).document())
            if until is not None and until != state.sealed_until:
                journal.append("sealed", until=until)
            drop_sealed_parts(folder.root)
        if not reported(folder, state):
            render(folder.root)
    return True


def unfinished(folder: RunFolder, state: RunState) -> bool:
    """Return whether a run has ended that is not sealed and reported."""
    return state.ended and bool(list_parts(folder.telemetry) or not reported(folder, state))


def may_store(folder: RunFolder) -> bool:
    """Return whether this process may write into a run's folder: its owner alone, where the disk takes it."""
    return os.stat(folder.root).st_uid == os.geteuid() and os.access(folder.root, os.W_OK)


def owner_s(state: RunState) -> float:
    """Return for how long a run that has ended is still its supervisor's to complete, in seconds; 0 or less: no longer."""
    return (state.ended_at or 0.0) + _OWNER_S - time.time()


def completed(folder: RunFolder, state: RunState) -> str | None:
    """Complete a run as `complete` does, and return what is to be said of its report: where it is, or why there is none."""
    page, before = folder.report / "index.html", reported(folder, state)
    made = complete(folder, state) and not before
    if not state.ended or reported(folder, state):
        return f"{page}{' (made now)' if made else ''}" if page.is_file() else None
    if not may_store(folder):
        return f"still to be made, by the owner of the folder: `cordee report {folder.id}` shows it without storing it"
    if owner_s(state) > 0:
        return "still to be made: the run's supervisor does it now, or whoever asks in half a minute"
    return f"still to be made: `cordee report {folder.id}` says why it could not be"


def main(folder: str) -> None:
    """Complete a run once it is no longer its supervisor's to complete; prints what is to be said of its report."""
    from cordee.runs.journal_follower import JournalFollower

    os.nice(_NICE)
    run = RunFolder(folder)
    state = JournalFollower(run, keep=False).read()
    time.sleep(max(0.0, owner_s(state)))
    json.dump({"report": completed(run, state)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
