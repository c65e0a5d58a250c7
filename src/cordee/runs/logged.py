"""Where the metrics of a run that ranks log come from: their sources, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cordee.runs.reader import Run

DEFAULT_SOURCE = "cordee.log"


class LoggedFacts(NamedTuple):
    """What is known of a logged metric.

    Attributes:
        source: `cordee.log`, `wandb`, `tensorboard`, `mlflow`, `prometheus` or `otlp`; several, with commas, where ranks
            differ.
        also: libraries that were given values of the same name on a rank where another source keeps it; theirs are not
            recorded a second time.
        unit: as the source says it, empty when it does not.
    """

    source: str = DEFAULT_SOURCE
    also: tuple[str, ...] = ()
    unit: str = ""


def logged_facts(run: Run) -> dict[str, LoggedFacts]:
    """Return what is known of the metrics of which anything is; the source of all others is `cordee.log`."""
    sources: dict[str, set[str]] = {}
    also: dict[str, set[str]] = {}
    units: dict[str, str] = {}
    for of_node in run.facts("logged").values():
        for name, about in of_node["devices"].items():
            sources.setdefault(name, set()).update(map(str, about.get("sources", ())))
            also.setdefault(name, set()).update(map(str, about.get("also", ())))
            if about.get("unit"):
                units[name] = str(about["unit"])
    return {
        name: LoggedFacts(", ".join(sorted(of_name)) or DEFAULT_SOURCE, tuple(sorted(also[name])), units.get(name, ""))
        for name, of_name in sources.items()
    }


def unread_endpoints(run: Run) -> dict[str, dict[str, str]]:
    """Return why the values of an endpoint are missing, by node and endpoint; empty when all are read."""
    return {node: of_node["missing"] for node, of_node in run.facts("logged").items() if of_node["missing"]}
