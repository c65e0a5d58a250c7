"""Misuse: signs that a job mines or cracks instead of what the machine is for; told to people, and never acted on."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="misuse",
    always=True,
    examine="cordee.systems.misuse.examine:MisuseExamination",
    node_parts={"companion/misuse": "cordee.systems.misuse.node.companion:MisuseWatch"},
)
