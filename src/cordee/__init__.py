"""Cordée takes a training job from a laptop to a supercomputer; this module is the API that a training script sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordee.client.joblib_ranks import joblib_backend
    from cordee.client.layout import layout
    from cordee.client.log import log
    from cordee.client.observe import observe
    from cordee.client.stopping import stopping
    from cordee.systems.checkpoints.node.save import checkpointer
    from cordee.systems.data.node.read.dataset import dataset
    from cordee.systems.scan.node.load import load
    from cordee.telemetry.store.reader import open_run

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "checkpointer",
    "dataset",
    "joblib_backend",
    "layout",
    "load",
    "log",
    "observe",
    "open_run",
    "stopping",
]

_HOMES = {
    "checkpointer": "cordee.systems.checkpoints.node.save",
    "dataset": "cordee.systems.data.node.read.dataset",
    "joblib_backend": "cordee.client.joblib_ranks",
    "layout": "cordee.client.layout",
    "load": "cordee.systems.scan.node.load",
    "log": "cordee.client.log",
    "observe": "cordee.client.observe",
    "open_run": "cordee.telemetry.store.reader",
    "stopping": "cordee.client.stopping",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cordee' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
