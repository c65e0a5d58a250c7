"""Services: what surrounds a training."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(name="services")
