"""Scan: nothing poisoned, confused or leaked goes in or out."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(name="scan")
