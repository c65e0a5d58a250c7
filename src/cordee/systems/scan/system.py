"""Scan: nothing poisoned or leaked goes into a run."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="scan",
    tables={"scan": ""},
    always=True,
    examine="cordee.systems.scan.examine:ScanExamination",
    keep="cordee.systems.scan.examine:keep_scan",
    node_parts={"look/scan": "cordee.systems.scan.node.staged:staged_findings"},
    offers={
        "bills": "cordee.systems.scan.images.bills:BILLS",
        "scanned-model": "cordee.systems.scan.models:model_findings",
    },
    arrivals="cordee.systems.scan.images.arrivals:image_findings",
)
