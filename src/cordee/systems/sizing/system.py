"""Sizing: what a job takes of its GPUs' memory, known before the queue, and beside what was measured after it."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="sizing",
    tables={"plan": ""},
    always=True,
    examine="cordee.systems.sizing.examine:SizingExamination",
    views="cordee.systems.sizing.measured.views:PlanView",
    report="cordee.systems.sizing.measured.report:SECTIONS",
)
