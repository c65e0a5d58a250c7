"""Inference: models that answer."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="inference",
    subcommands={
        "service load": ("cordee.systems.inference.cli.load", "Measure what an endpoint gives."),
        "service batch": ("cordee.systems.inference.cli.batch", "Ask a model about each sample of a data set."),
    },
    offers={"endpoint": "cordee.systems.inference.endpoint:MODELS"},
)
