"""Egress: what a run sends where, summed over its nodes, and over the runs of a site."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="egress",
    tables={"egress": ""},
    always=True,
    examine="cordee.systems.egress.examine:EgressExamination",
    node_parts={
        "companion/egress": "cordee.systems.egress.node.companion:EgressWatch",
        "watcher/egress": "cordee.systems.egress.node.watch:EgressJudge",
    },
    data_sets="cordee.systems.egress.kept:data_sets",
    report="cordee.systems.egress.report:SECTIONS",
    routes="cordee.systems.egress.routes:router",
    pages=(Page("run/:run/egress", "egress.js", "Egress", tab=True),),
)
