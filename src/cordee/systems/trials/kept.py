"""What farms leave behind, for the catalogue of data sets."""

from __future__ import annotations

from cordee.systems.trials.node.task_list import FarmTask
from cordee.systems.trials.node.task_states import TaskEnd
from cordee.telemetry.shown.kept_data import KeptData


def data_sets() -> tuple[KeptData, ...]:
    """Return them."""
    return (
        KeptData(
            "tasks",
            "Tasks of a farm",
            "tasks/tasks-*.jsonl",
            "JSON lines, `cordee.tasks/1`, one a task; files after the first hold tasks that were added",
            "`cordee farm show RUN --json` (`list`)",
            "What each task runs, and what it asks for.",
            {"": FarmTask},
        ),
        KeptData(
            "tasks/journal",
            "What became of a farm's tasks",
            "tasks/journal/*.jsonl",
            "JSON lines as the run's journal: `tasks_given`, `tasks_ended` (a row for each try), `tasks_retried`, `tasks_added`; of sweeps `trials_made`, `trials_wanted`, `trials_reached`",
            "`cordee farm show RUN --json` (`list`)",
            "Which tries of tasks began on which node, and how they ended: the truth about a farm.",
            {"ended[].": TaskEnd},
        ),
    )
