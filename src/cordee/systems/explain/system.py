"""Explain: who is slow, who hangs, where, and why."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="explain",
    tables={"hang": "", "observe": ""},
    always=True,
    examine="cordee.systems.explain.examine:ExplainExamination",
    node_parts={
        "companion/explain": "cordee.systems.explain.node.companion:StandWatch",
        "companion/explain-hardware": "cordee.systems.explain.node.hardware.watch:HardwareWatch",
        "watcher/explain": "cordee.systems.explain.node.hang.watch:HangWatch",
        "watcher/explain-slow": "cordee.systems.explain.node.slow.watch:SlowWatch",
        "watcher/explain-profile": "cordee.systems.explain.node.profile.watch:ProfileWatch",
    },
    report="cordee.systems.explain.report:SECTIONS",
    routes="cordee.systems.explain.routes:router",
    pages=(
        Page("run/:run/topology", "topology.js", "Topology", tab=True),
        Page("run/:run/correlation", "correlation.js", "Correlation", tab=True),
        Page("run/:run/hangs", "hangs.js", "Hangs", tab=True, folder="hangs"),
        Page("run/:run/communication", "communication.js", "Communication", tab=True, folder="flight"),
        Page("run/:run/traces", "traces.js", "Traces", tab=True, folder="profiles"),
    ),
)
