"""Trials: many tasks in one allocation."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="trials",
    tables={"farm": "", "sweep": ""},
    children="cordee.systems.trials.children:children",
    read="cordee.systems.trials.examine:read_sweep",
    examine="cordee.systems.trials.examine:TrialsExamination",
    keep="cordee.systems.trials.examine:keep_tasks",
    views="cordee.systems.trials.views:TasksView",
    report="cordee.systems.trials.report:SECTIONS",
    routes="cordee.systems.trials.routes:router",
    pages=(Page("run/:run/tasks", "tasks.js", "Tasks", tab=True, folder="tasks", overview=True),),
    data_sets="cordee.systems.trials.kept:data_sets",
    node_parts={
        "checkpoints": "cordee.systems.trials.node.progress:FarmProgress",
        "launch/tasks": "cordee.systems.trials.node.pool:TaskPool",
        "watcher/trials": "cordee.systems.trials.node.dispatcher:FarmDispatcher",
    },
    offers={
        "farm": "cordee.systems.trials.offered:run_farm",
        "task-secrets": "cordee.systems.trials.node.task_list:secrets_of_tasks",
    },
)
