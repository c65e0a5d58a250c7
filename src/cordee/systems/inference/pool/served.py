"""Which model a pool is to serve, and how it is: two files of the service's volume, so that any node and any command reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from cordee.runs.folder import write_atomically

_WANTED, _STATE = "served.json", "pool.json"


class ServedModel(NamedTuple):
    """What a pool is to serve.

    Attributes:
        serial: counts changes; a pool that sees a higher one replaces its instances.
        model: the folder.
        before: the model before it; empty: none.
        base: the model that the service was deployed with: a new deployment has another.
    """

    serial: int
    model: str
    before: str
    base: str

    def changed(self, model: str) -> ServedModel:
        """Return what is served after this one."""
        return ServedModel(self.serial + 1, model, self.model, self.base)


def read_wanted(volume: Path) -> ServedModel | None:
    """Return what is to be served; None: nothing was written yet."""
    document = _read(volume / _WANTED)
    try:
        models = (str(volume / document[key]) if document[key] else "" for key in ("model", "before", "base"))
        return ServedModel(int(document["serial"]), *models)
    except (KeyError, TypeError, ValueError):
        return None


def write_wanted(volume: Path, wanted: ServedModel) -> None:
    """Write what is to be served.

    Raises:
        RunFolderError: the disk refuses.
    """
    # Models in the volume by their place in it: a backup of it may be restored elsewhere.
    kept = {
        key: value.removeprefix(f"{volume}/") if isinstance(value, str) else value
        for key, value in wanted._asdict().items()
    }
    write_atomically(volume / _WANTED, json.dumps(kept))


def read_pool(volume: Path) -> dict[str, Any]:
    """Return how the pool of a service is; empty: it has not said."""
    return _read(volume / _STATE)


def write_pool(volume: Path, state: dict[str, Any]) -> None:
    """Write how the pool is.

    Raises:
        RunFolderError: the disk refuses.
    """
    write_atomically(volume / _STATE, json.dumps(state), durable=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
