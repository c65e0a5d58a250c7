"""Ports about models: their weights, whether they may be loaded, how they are served."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cordee.core.findings import Finding

WEIGHTS = "weights"
MODEL_SCAN = "scanned-model"
ENDPOINT = "endpoint"


class ExportedWeights(NamedTuple):
    """The weights of a checkpoint, as safetensors in a folder.

    Attributes:
        folder: that was written.
        checkpoint: they are of.
        look_in: folders that may say more of the model: the checkpoint's, its run's code, the run's job.
        left_out: names of what is no tensor of the model.
    """

    folder: Path
    checkpoint: str
    look_in: tuple[Path, ...]
    left_out: tuple[str, ...]


class WeightsExport(Protocol):
    """Writes the weights of a run's or folder's newest whole checkpoint into a new folder.

    Raises:
        CordeeError: there is none, it is damaged, or it cannot be written.
    """

    def __call__(self, source: str, runs: str | None, folder: Path) -> ExportedWeights: ...


class ModelScan(Protocol):
    """Returns what is to be said of the files of a model: an error where one must not be loaded, or nobody can say."""

    def __call__(self, folder: Path) -> list[Finding]: ...


class EndpointModels(Protocol):
    """Makes models ready for an endpoint, and changes the one that is served."""

    def prepare(self, source: str, runs: str | None, config: str | None, volume: Path) -> Path:
        """Return a new folder below `volume` with what a server loads, exported and scanned.

        Args:
            source: a run, a checkpoint, a folder of them, or a folder as Hugging Face's libraries write it.
            runs: where runs lie; None: as usual.
            config: the folder with config.json and the tokenizer; None: it is looked for.
            volume: of the service.

        Raises:
            CordeeError: there is no such model, it lacks something, or it must not be loaded.
        """

    def before(self, volume: Path, model: str) -> Path:
        """Return the model that was served before this one.

        Raises:
            UsageError: there is none.
        """

    def prune(self, volume: Path, keep: Iterable[str]) -> None:
        """Remove what was made ready but these, and what several servers have or may go back to."""

    def roll(self, volume: Path, model: Path | None, wait_s: float, told: Callable[[str], None]) -> dict[str, Any]:
        """Have the running instances replaced one by one by ones of another model; return their state.

        Args:
            volume: of the service.
            model: None: the one before.
            wait_s: for how long.
            told: told what happens, in words.

        Raises:
            CordeeError: nothing runs, or the new ones were not ready; then the old ones serve on.
        """
