"""What the system `services` asks of inference: models made ready, and the model of a running endpoint changed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import UsageError
from cordee.systems.inference.model import ModelError, prepare_model
from cordee.systems.inference.pool.served import read_pool, read_wanted, write_wanted

_SILENT_S = 20.0
_POLL_S = 0.2


class PoolModels:
    """The port `endpoint` (`cordee.core.ports.models.EndpointModels`)."""

    def prepare(self, source: str, runs: str | None, config: str | None, volume: Path) -> Path:
        """Return a new folder below `volume` with what a server loads.

        Raises:
            CordeeError: as `prepare_model`.
        """
        return prepare_model(source, runs, config, volume)

    def before(self, volume: Path, model: str) -> Path:
        """Return the model that was served before this one: all others are pruned.

        Raises:
            UsageError: there is none.
        """
        number = int(Path(model).name) if _is_made_here(volume, Path(model)) else 0
        known = sorted(int(one.name) for one in volume.iterdir() if _is_made_here(volume, one) and str(one) != model)
        if not known:
            raise UsageError("there is no model before this one", given=model, next="give --model")
        return volume / str(max((one for one in known if one < number), default=known[-1]))

    def prune(self, volume: Path, keep: Iterable[str]) -> None:
        """Remove what was made ready but these, and what a pool serves or may go back to."""
        kept, now = set(keep), read_wanted(volume)
        if now is not None and now.base in kept:  # else it is the pool of an earlier deployment
            kept |= {now.model, now.before}
        for folder in volume.iterdir():
            if _is_made_here(volume, folder) and str(folder) not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def roll(self, volume: Path, model: Path | None, wait_s: float, told: Callable[[str], None]) -> dict[str, Any]:
        """Have the running instances replaced one by one; return how the pool is then.

        Raises:
            UsageError: there is no model before this one.
            ModelError: no pool runs, or the new instances were not ready.
        """
        now, state = read_wanted(volume), read_pool(volume)
        if now is None or unix_s() - state.get("at", 0.0) > _SILENT_S:
            raise ModelError("its pool says nothing", given=str(volume), next="`cordee service status`")
        if model is None and not now.before:
            raise UsageError("there is no model before this one", given=now.model, next="give --model")
        wanted = now.changed(str(model or now.before))
        write_wanted(volume, wanted)
        until, said = monotonic() + wait_s, ""
        while monotonic() < until:
            state = read_pool(volume)
            if state.get("refused") == wanted.serial:
                raise ModelError(state["why"], given=wanted.model, next="mend the model; what was served goes on")
            if state.get("serial", 0) >= wanted.serial:
                self.prune(volume, {wanted.base})
                return state
            if state.get("why", "") != said:
                said = state["why"]
                told(said)
            time.sleep(_POLL_S)
        raise ModelError(
            f"the new model was not taken up within {wait_s:.0f} s: {said}",
            given=wanted.model,
            next="`cordee service logs` says more; it goes on",
        )


def _is_made_here(volume: Path, folder: Path) -> bool:
    return folder.parent == volume and folder.name.isdigit()


MODELS = PoolModels()
