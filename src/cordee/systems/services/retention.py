"""What a service that lives for months may leave behind: its newest runs stay, older ones go once what they used is written down."""

from __future__ import annotations

import shutil

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.services.accounts import of_service, written_down
from cordee.systems.services.instance import ServiceFolder

# Each has its own copy of the node side (10 MB), and a service that is woken each morning has hundreds of runs in a year.
KEPT_RUNS = 10


def prune_runs(folder: ServiceFolder) -> list[str]:
    """Remove the runs of a service but its newest ten, those that go on, and those that its record names; return their ids.

    What cannot be removed is said, and tried again with the next start.
    """
    gone: list[str] = []
    try:
        runs = [RunFolder(path.parent) for path in folder.runs.glob("*/plan.json")]
        named = {str(value) for value in folder.record().values()}
        old = sorted(runs, key=lambda run: run.plan.stat().st_mtime)[:-KEPT_RUNS]
        if old:
            of_service(folder)
        safe = written_down(folder) if old else set()
        for run in old:
            if run.id in safe and str(run.root) not in named and _ended(run):
                shutil.rmtree(run.root)
                gone.append(run.id)
    except (CordeeError, OSError, LookupError) as error:
        say(f"cordee: old runs of {folder.name} stay: {error}")
    return gone


def _ended(run: RunFolder) -> bool:
    try:
        return replay(read_journal(run.journal), run.id).ended
    except CordeeError:
        return False
