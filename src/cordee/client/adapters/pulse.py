"""torch: a rank that uses it shows its agent whether it goes on."""

from __future__ import annotations

from types import ModuleType

from cordee.client import pulse


def wrap(module: ModuleType) -> None:
    """Start the thread that shows it."""
    pulse.begin()
