"""Checkpoints: saved whole, found again, each known to the run that made it."""

from __future__ import annotations

from cordee.registry import System

SYSTEM = System(
    name="checkpoints",
    tables={"checkpoint": ""},
    always=True,
    examine="cordee.checkpoint.examine:CheckpointExamination",
    keep="cordee.checkpoint.examine:keep_checkpoints",
    node_parts={"checkpoints": "cordee.checkpoint.owner:RunCheckpoints"},
)
