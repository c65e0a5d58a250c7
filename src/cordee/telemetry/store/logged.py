"""Where the metrics of a run that ranks log come from: their sources, by name, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cordee.core.findings import Finding

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

DEFAULT_SOURCE = "cordee.log"
_MOST_SHOWN = 8


class LoggedFacts(NamedTuple):
    """What is known of a logged metric.

    Attributes:
        source: `cordee.log`, `wandb`, `tensorboard`, `mlflow` or `prometheus`; several, with commas, where ranks
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


def logged_findings(run: Run) -> list[Finding]:
    """Return what is wrong with metrics that are read or received: endpoints that cannot be read now, and remarks, over all nodes."""
    unread: dict[str, list[tuple[str, str]]] = {}
    remarks: dict[str, list[str]] = {}
    for node, of_node in sorted(run.facts("logged").items()):
        for endpoint, reason in of_node["missing"].items():
            unread.setdefault(reason, []).append((node, endpoint))
        for remark in of_node["remarks"]:
            remarks.setdefault(remark, []).append(node)
    found = [
        Finding(
            f"{_counted(len(places), 'endpoint')} on {_counted(len({node for node, _ in places}), 'node')}"
            f" cannot be read: {reason}",
            severity="warn",
            rule="endpoint-unread",
            given=places[0][1],
            next="see that the ranks answer there, or change [[metrics.scrape]]",
            evidence={"node": places[0][0], "endpoints": [endpoint for _, endpoint in places[:_MOST_SHOWN]]},
        )
        for reason, places in unread.items()
    ]
    found += [
        Finding(
            f"{remark} ({_counted(len(nodes), 'node')})",
            severity="warn",
            rule="metrics-remark",
            evidence={"node": nodes[0], "nodes": nodes[:_MOST_SHOWN]},
        )
        for remark, nodes in remarks.items()
    ]
    return found


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
