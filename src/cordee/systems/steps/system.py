"""Tests before the job, and steps."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="steps",
    tables={"steps": "", "test": ""},
    children="cordee.systems.steps.children:children",
    views="cordee.systems.steps.views:ChildrenView",
    report="cordee.systems.steps.report:SECTIONS",
)
