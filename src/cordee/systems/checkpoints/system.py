"""Checkpoints: saved whole, found again, each known to the run that made it."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="checkpoints",
    tables={"checkpoint": ""},
    always=True,
    examine="cordee.systems.checkpoints.examine:CheckpointExamination",
    keep="cordee.systems.checkpoints.examine:keep_checkpoints",
    node_parts={"checkpoints": "cordee.systems.checkpoints.node.owner:RunCheckpoints"},
)
