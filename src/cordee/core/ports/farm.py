"""The port of farms: many tasks in one allocation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

FARM = "farm"
TASK_SECRETS = "task-secrets"


class FarmResult(NamedTuple):
    """What became of a farm: its run, the run's state, and `tasks, done, failed, seconds`."""

    run: str
    state: str
    document: dict[str, Any]


class RunFarm(Protocol):
    """Submits a job whose document has `[farm]`, and waits for its end.

    Raises:
        CordeeError: it cannot be planned or submitted, or nothing runs it any more.
    """

    def __call__(
        self, job: Path, cluster: str, settings: dict[str, Any], runs: Path | None, quiet: bool
    ) -> FarmResult: ...


class TaskSecrets(Protocol):
    """Returns what returns the secrets that a task of a run was given by its line, by the task's number."""

    def __call__(self, root: Path) -> Callable[[int], Collection[str]]: ...
