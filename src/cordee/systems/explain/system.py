"""Explain: who is slow, who hangs, where, and why."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="explain",
    report="cordee.systems.explain.report:SECTIONS",
    routes="cordee.systems.explain.topology.routes:router",
)
