"""The folder that reports are written to, in the folder of a run or a recording where others may write too."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import open_folder


def report_folder(root: Path) -> Path:
    """Return `report/` in a folder, made where it is missing.

    Raises:
        RunFolderError: it cannot be made, or something else has its name, as a link.
    """
    place = root / "report"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        os.close(open_folder(place, root))
    except OSError as error:
        raise RunFolderError(
            f"cannot make the folder of reports: {error.strerror}",
            given=str(place),
            allowed="a folder on a disk with space that you may write",
            next="copy the folder of the run or recording to where you may write, and try again there",
        ) from error
    return place
