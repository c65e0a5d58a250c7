"""Checkpoints: saved whole, found again, each known to the run that made it."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="checkpoints",
    tables={"checkpoint": ""},
    always=True,
    examine="cordee.systems.checkpoints.examine:CheckpointExamination",
    keep="cordee.systems.checkpoints.examine:keep_checkpoints",
    views="cordee.systems.checkpoints.views:CheckpointView",
    report="cordee.systems.checkpoints.report:SECTIONS",
    data_sets="cordee.systems.checkpoints.views:data_sets",
    routes="cordee.systems.checkpoints.routes:router",
    pages=(Page("run/:run/storage", "storage.js", "Storage", tab=True),),
    offers={"weights": "cordee.systems.checkpoints.offered:exported_weights"},
    node_parts={
        "checkpoints": "cordee.systems.checkpoints.node.owner:RunCheckpoints",
        "companion/checkpoints": "cordee.systems.checkpoints.node.tiers.companion:CheckpointCompanion",
    },
)
