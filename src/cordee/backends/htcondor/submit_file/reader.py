"""Submit files of HTCondor, as `cordee init` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordee.backends.htcondor.submit_file.convert import ENDINGS, convert, read_text
from cordee.backends.htcondor.submit_file.description import is_submit_file
from cordee.backends.job_scripts.find import find_scripts
from cordee.backends.job_scripts.render import render_conversion
from cordee.job.conversion import Conversion, ScriptReader

_FOLDERS = (".", "htcondor", "condor", "submit", "jobs", "scripts")


class SubmitFileReader:
    """Implements `ScriptReader`."""

    def find(self, folder: Path) -> list[str]:
        return find_scripts(folder, _FOLDERS, ENDINGS, lambda text: is_submit_file(text) or None)

    def convert(self, path: Path) -> Conversion:
        return convert(read_text(path), path)

    def render(
        self, found: Conversion, *, source: str, name: str, run: str | Sequence[str], checkpoint: Sequence[str]
    ) -> str:
        return render_conversion(found, source=source, name=name, run=run, checkpoint=checkpoint)


READER: ScriptReader = SubmitFileReader()
