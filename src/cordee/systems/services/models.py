"""The model of a service that serves one: made ready before it starts, and changed while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cordee.core.errors import CordeeError, UsageError
from cordee.core.ports.models import ENDPOINT, EndpointModels
from cordee.core.registry import offered
from cordee.systems.services.blueprint import LoadedBlueprint
from cordee.systems.services.deployment import ServiceStatus, changing, status_of
from cordee.systems.services.handover import upgrade
from cordee.systems.services.instance import ServiceError, ServiceFolder

PARAMETER, VOLUME = "model", "models"


def made_ready(folder: ServiceFolder, loaded: LoadedBlueprint, source: str, config: str | None) -> Path:
    """Return the folder with a model as the service's program loads it, in the service's volume, which keeps that of before, too.

    Args:
        folder: of the service, which may be new.
        loaded: its blueprint.
        source: a run, a checkpoint, or a folder as Hugging Face's libraries write it.
        config: the folder with config.json and the tokenizer; None: it is looked for.

    Raises:
        UsageError: the service serves no model.
        CordeeError: there is no such model, or it must not be loaded.
    """
    models, volume = _models(loaded), folder.volume(VOLUME)
    folder.make()
    before = folder.record()["parameters"].get(PARAMETER, "") if folder.exists() else ""
    made = models.prepare(source, None, config, volume)
    models.prune(volume, {str(made), before})
    return made


def require_free(folder: ServiceFolder) -> None:
    """Raise ServiceError where the service runs: what is made ready for a start would be its running program's."""
    if folder.exists() and not status_of(folder).over:
        what = f"`cordee service upgrade {folder.name} --model ...`, or another --name"
        raise ServiceError(f"{folder.name} runs already", given=folder.name, next=what)


def change(
    folder: ServiceFolder, source: str | None, config: str | None, wait_s: float, told: Callable[[str], None]
) -> ServiceStatus:
    """Have a running service serve another model; return how it is then. Another one takes the place of a server alone.

    Args:
        source: as `made_ready`; None: the model before this one.

    Raises:
        UsageError: the service serves no model, or there is none before this one.
        CordeeError: the new model was refused; the old one serves on.
    """
    loaded, record = folder.blueprint(), folder.record()
    models = _models(loaded)
    several = record["parameters"].get("replicas", "1") not in ("1", "1..1")
    volume, served = folder.volume(VOLUME), str(record["parameters"].get(PARAMETER))
    with changing(folder):
        made = models.prepare(source, None, config, volume) if source else None
        if several and status_of(folder).ready:
            models.roll(volume, made, wait_s, told)
            return status_of(folder)
    model = str(made or models.before(volume, served))
    try:
        now = upgrade(folder, loaded, {PARAMETER: model}, wait_s, lambda now: told(now.why))
    except CordeeError:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise
    models.prune(volume, {model, served})
    return now


def _models(loaded: LoadedBlueprint) -> EndpointModels:
    models: EndpointModels | None = offered(ENDPOINT)
    blueprint = loaded.blueprint
    if models is None or PARAMETER not in blueprint.parameters or VOLUME not in blueprint.volumes:
        raise UsageError(
            f"{blueprint.name} serves no model",
            allowed=f"a blueprint with [parameters.{PARAMETER}] and [volumes.{VOLUME}], as endpoint",
            next="leave --model out",
        )
    return models
