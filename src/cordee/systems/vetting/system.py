"""Vetting: nodes looked at before they are used, from what each says of itself to a verdict on all of them."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="vetting",
    tables={"vet": ""},
    always=True,
    read="cordee.systems.vetting.protocol.of_job:read_protocol",
    examine="cordee.systems.vetting.examine:VettingExamination",
    keep="cordee.systems.vetting.examine:keep_protocol",
    report="cordee.systems.vetting.report:SECTIONS",
    data_sets="cordee.systems.vetting.views:data_sets",
    offers={"node-speeds": "cordee.systems.vetting.fleet.speeds:node_speeds"},
    node_parts={
        "preparation": "cordee.systems.vetting.node.preparation:NodeVetting",
        "checks": "cordee.systems.vetting.node.checks",
    },
)
