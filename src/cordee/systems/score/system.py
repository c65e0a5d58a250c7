"""Score: how well a run used its GPUs, why not better, and what would help."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="score",
    report="cordee.systems.score.report.section:SECTIONS",
    data_sets="cordee.systems.score.views:data_sets",
    routes="cordee.systems.score.routes:router",
    pages=(Page("run/:run/score", "score.js", "Score", tab=True),),
)
