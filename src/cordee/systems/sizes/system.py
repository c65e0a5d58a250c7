"""Sizes: what `auto` in a request stands for."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(name="sizes", auto="cordee.systems.sizes.auto:auto_need")
