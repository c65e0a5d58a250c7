"""What other systems may ask of checkpoints: the weights of one."""

from __future__ import annotations

from pathlib import Path

from cordee.core.errors import RunNotFound
from cordee.core.ports.models import ExportedWeights
from cordee.job.terminal.run_args import found
from cordee.runs.folder import RunFolder
from cordee.systems.checkpoints.library import library_of, newest_on
from cordee.systems.checkpoints.safetensors import export

_FILE_BYTES = 5_000_000_000
_WORKERS = 2


def exported_weights(source: str, runs: str | None, folder: Path) -> ExportedWeights:
    """Write the weights of a run's or folder's newest whole checkpoint into a new folder (the port `weights`).

    Raises:
        CordeeError: there is none, it is damaged, or it cannot be written.
    """
    library = library_of(source, runs)
    chosen = newest_on(library)
    done = export(chosen.path, str(folder), None, _FILE_BYTES, _WORKERS)
    around = [Path(chosen.path), Path(library.path)]
    try:
        run = found(source, runs)
        around += [run.code, Path(library.path).parent]
    except RunNotFound:  # it is a path: what lies beside it is all that is known, and the code of the run that it is in
        around += [Path(library.path).parent, RunFolder(Path(library.path).parent).code]
    return ExportedWeights(folder, chosen.path, tuple(around), tuple(done["left_out"]))
