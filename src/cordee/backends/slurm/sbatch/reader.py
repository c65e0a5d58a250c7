"""sbatch scripts, as `cordee init` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordee.backends.slurm.sbatch.convert import convert, read_text
from cordee.backends.slurm.sbatch.find import find_scripts
from cordee.backends.slurm.sbatch.render import render_conversion
from cordee.job.conversion import Conversion, ScriptReader


class SbatchReader:
    """Implements `ScriptReader`."""

    def find(self, folder: Path) -> list[str]:
        return find_scripts(folder)

    def convert(self, path: Path) -> Conversion:
        return convert(read_text(path))

    def render(
        self, found: Conversion, *, source: str, name: str, run: str | Sequence[str], checkpoint: Sequence[str]
    ) -> str:
        return render_conversion(found, source=source, name=name, run=run, checkpoint=checkpoint)


READER: ScriptReader = SbatchReader()
