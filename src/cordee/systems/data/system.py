"""Data: data sets found, packed, measured, and read in an order that survives a restart."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="data",
    tables={"data": ""},
    examine="cordee.systems.data.examine:DataExamination",
    keep="cordee.systems.data.examine:keep_data",
    views="cordee.systems.data.views:DataView",
    report="cordee.systems.data.report:SECTIONS",
    routes="cordee.systems.data.routes:router",
    node_parts={
        "stager/data": "cordee.systems.data.node.stage.run_stager:RunStager",
        "companion/data": "cordee.systems.data.node.stage.companion:StagingCompanion",
    },
    pages=(Page("run/:run/data", "data.js", "Data", tab=True),),
)
