"""sbatch scripts, as `cordee init` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordee.backends.job_scripts.body import read_body
from cordee.backends.job_scripts.find import find_scripts
from cordee.backends.job_scripts.render import render_conversion
from cordee.backends.job_scripts.variables import Variables
from cordee.backends.slurm.sbatch.convert import ENDINGS, convert, read_text
from cordee.job.conversion import Conversion, ScriptReader

_FOLDERS = (".", "slurm", "scripts", "jobs", "sbatch")


def _starts(text: str) -> bool | None:
    is_script = any(line.startswith("#SBATCH") for line in text.splitlines())
    return bool(read_body(text, Variables(), 1).launches) if is_script else None


class SbatchReader:
    """Implements `ScriptReader`."""

    def find(self, folder: Path) -> list[str]:
        return find_scripts(folder, _FOLDERS, ENDINGS, _starts)

    def convert(self, path: Path) -> Conversion:
        return convert(read_text(path))

    def render(
        self, found: Conversion, *, source: str, name: str, run: str | Sequence[str], checkpoint: Sequence[str]
    ) -> str:
        return render_conversion(found, source=source, name=name, run=run, checkpoint=checkpoint)


READER: ScriptReader = SbatchReader()
