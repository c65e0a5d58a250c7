"""What registers it."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="window",
    package="cordee_window",
    tables={"window": "cordee_window.document:Window"},
    examine="cordee_window.examine:WindowExamination",
    node_parts={"companion/window": "cordee_window.node.told:Told"},
    commands={"window": "cordee_window.cli:command"},
    views="cordee_window.views:WindowView",
    data_sets="cordee_window.views:data_sets",
    report="cordee_window.report:SECTIONS",
    routes="cordee_window.routes:router",
    pages=(Page("run/:run/window", "window.js", "Window", True),),
)
