"""The list of a run's tasks: JSON lines in the run's folder, written once when the run is made; tasks that are added later have files of their own."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional

from cordee.core.errors import RunFolderError
from cordee.core.secrets import secret_values
from cordee.machine.foreign_files import parse_json, read_regular
from cordee.machine.slots import SlotRequest

SCHEMA = "cordee.tasks/1"
FOLDER = "tasks"
JOURNAL = "journal"
FIRST = "tasks-0.jsonl"
MOST_BYTES = 256 << 20


class FarmTask(NamedTuple):
    """One task.

    Attributes:
        id: its number, from 0.
        values: what `{name}` in the job's command stands for.
        asks: what it needs of a node.
        time_s: how long it may take; None: as long as it wants.
        line: of the file that it was read from; 0: of none.
        nodes, ranks: on how many nodes it runs, and how many ranks it has on each; it asks each of them for what it asks.
    """

    id: int
    values: Mapping[str, str]
    asks: SlotRequest = SlotRequest()
    time_s: Optional[float] = None
    line: int = 0
    nodes: int = 1
    ranks: int = 1

    @property
    def has_world(self) -> bool:
        """Whether it is several ranks, which are placed together or not at all."""
        return self.nodes * self.ranks > 1

    def document(self) -> dict[str, Any]:
        """Return it as it is written."""
        document: dict[str, Any] = {"id": self.id, "values": dict(self.values), "cores": self.asks.cores}
        asks = self.asks
        more = {"gpus": asks.gpus, "memory_bytes": asks.memory_bytes, "time_s": self.time_s, "line": self.line}
        document.update({name: value for name, value in more.items() if value})
        if self.has_world:
            document.update(nodes=self.nodes, ranks=self.ranks)
        return document


def task_of(document: Mapping[str, Any]) -> FarmTask:
    """Return the task of a document.

    Raises:
        ValueError: it is none.
    """
    try:
        asks = SlotRequest(int(document["cores"]), float(document.get("gpus", 0)), int(document.get("memory_bytes", 0)))
        time_s = document.get("time_s")
        values = {str(name): str(value) for name, value in document["values"].items()}
        time_s = None if time_s is None else float(time_s)
        more = [int(document.get(name, least)) for name, least in (("line", 0), ("nodes", 1), ("ranks", 1))]
        return FarmTask(int(document["id"]), values, asks, time_s, *more)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"is no task: {error!r}") from None


def lines_of(tasks: Iterable[FarmTask]) -> str:
    """Return the text of a file of tasks."""
    head = json.dumps({"schema": SCHEMA})
    return "\n".join([head, *(json.dumps(task.document(), separators=(",", ":")) for task in tasks)]) + "\n"


def read_tasks(root: Path, names: Optional[Iterable[str]] = None) -> list[FarmTask]:
    """Return the tasks of a run by their numbers.

    Args:
        root: the run's folder.
        names: of the files to read; None: all.

    Raises:
        RunFolderError: a file is not there, or is no list of tasks.
    """
    folder = root / FOLDER
    found: list[FarmTask] = []
    for name in sorted(path.name for path in folder.glob("tasks-*.jsonl")) if names is None else names:
        try:
            lines = read_regular(folder / name, root, MOST_BYTES).splitlines()
            if not lines or parse_json(lines[0]).get("schema") != SCHEMA:
                raise ValueError(f"is no list of tasks of the kind {SCHEMA}")
            found += [task_of(parse_json(line)) for line in lines[1:]]
        except (OSError, ValueError, AttributeError) as error:
            raise RunFolderError(f"the tasks of this run cannot be read: {error}", given=str(folder / name)) from error
    return sorted(found, key=lambda task: task.id)


def secrets_of_tasks(root: Path) -> Callable[[int], frozenset[str]]:
    """Return what returns the secrets that a task of a run was given, by its number (the port `task-secrets`)."""
    tasks: dict[int, FarmTask] = {}

    def secrets(number: int) -> frozenset[str]:
        if number not in tasks:  # not read yet, or added since
            with suppress(RunFolderError):
                tasks.update((task.id, task) for task in read_tasks(root))
        values = tasks[number].values if number in tasks else {}
        return secret_values(values, list(values.values()))

    return secrets
