"""Engines by their name, imported when asked for."""

from __future__ import annotations

from importlib import import_module

from cordee.systems.environments.node.engines import entered
from cordee.systems.environments.node.engines._base import Engine, EngineError

ENGINES: dict[str, str] = {
    "namespace": "cordee.systems.environments.node.engines.namespace.engine:NamespaceEngine",
    "podman": "cordee.systems.environments.node.engines.podman.engine:PodmanEngine",
    "apptainer": "cordee.systems.environments.node.engines.apptainer.engine:ApptainerEngine",
}


def find_engine(name: str) -> Engine:
    """Return the engine of that name.

    Raises:
        EngineError: there is none.
    """
    if name == entered.NAME:  # nobody can ask for it
        return entered.EnteredEngine()
    if name not in ENGINES:
        raise EngineError("there is no such engine", given=name, allowed=sorted(ENGINES))
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    return engine
