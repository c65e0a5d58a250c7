"""Trials: many tasks in one allocation."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="trials",
    tables={"farm": "", "sweep": ""},
    examine="cordee.systems.trials.examine:TrialsExamination",
    keep="cordee.systems.trials.examine:keep_tasks",
    report="cordee.systems.trials.report:SECTIONS",
    data_sets="cordee.systems.trials.kept:data_sets",
    node_parts={
        "checkpoints": "cordee.systems.trials.node.progress:FarmProgress",
        "launch/tasks": "cordee.systems.trials.node.pool:TaskPool",
        "watcher/trials": "cordee.systems.trials.node.dispatcher:FarmDispatcher",
    },
)
