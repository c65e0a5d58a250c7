"""The names of what is started in a run's own copy of the node side: a run made by an earlier version has that version's."""

from __future__ import annotations

import zipfile

from cordee.runs.folder import RunFolder

_EARLIER = {
    "cordee.control.keeper": "cordee.supervise.keeper",
    "cordee.control.supervisor.supervisor": "cordee.supervise.supervisor",
    "cordee.control.agent.agent": "cordee.node.agent",
}


def module_of(folder: RunFolder, module: str) -> str:
    """Return the name that a module has in the run's node.zip; its name of today where that cannot be read."""
    earlier = _EARLIER[module]
    try:
        with zipfile.ZipFile(folder.node_zip) as archive:
            names = set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return module
    return earlier if f"{earlier.replace('.', '/')}.py" in names else module
