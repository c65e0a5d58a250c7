"""What the fleet usually reaches: the reference that a slow allocation cannot bend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.stats import median, quantile
from cordee.systems.vetting.fleet.index import FleetIndex

LEAST_NODES = 4
_QUERY = """
SELECT results.chk, results.model, results.node, results.value, results.unit FROM results JOIN vettings
ON vettings.id = results.vetting WHERE results.at >= ? AND results.status = 'pass' AND results.low AND results.value > 0
"""


def fleet_baseline(
    index: FleetIndex, since: float, model: str | None = None, cluster: str | None = None, *, named: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return each speed check's fleet value, as a protocol's `baseline` takes it, and what was left out, in words.

    Every node counts once, with the median of its results that passed; `value` is the nodes' 75th percentile, `median`
    their median, `n` how many they are. Checks of which fewer than four nodes are known are left out, and so are those
    with results of several GPU models, unless one is chosen: a slower model is not a slow node.

    Args:
        index: refreshed.
        since: UTC epoch seconds.
        model: of the GPUs, as the results name it.
        cluster: whose vettings count; None: all.
        named: results that name no model are left out.

    Raises:
        UsageError: no result is of this model.
    """
    rows = index.rows(_QUERY + (" AND vettings.cluster = ?" if cluster else ""), since, *([cluster] if cluster else []))
    models = sorted({row["model"] for row in rows if row["model"]})
    if model is not None and model not in models:
        raise UsageError("no result is of this GPU model", given=model, allowed=models or "the history names no model")
    by_check: dict[str, list[Any]] = {}
    for row in rows:
        if model is None or row["model"] == model or (row["model"] is None and not named):
            by_check.setdefault(row["chk"], []).append(row)
    found, left_out = {}, []
    for check, results in sorted(by_check.items()):
        kinds = sorted({row["model"] for row in results if row["model"]})
        nodes = {row["node"] for row in results}
        if len(kinds) > 1:
            left_out.append(f"{check}: results of {', '.join(kinds)}; choose one with --model")
        elif len(nodes) < LEAST_NODES:
            left_out.append(f"{check}: {len(nodes)} of at least {LEAST_NODES} nodes")
        else:
            found[check] = _value(results, kinds)
    return found, left_out


def _value(results: Sequence[Any], models: list[str]) -> dict[str, Any]:
    by_node: dict[str, list[float]] = {}
    for row in results:
        by_node.setdefault(row["node"], []).append(row["value"])
    values = [median(values) for values in by_node.values()]
    entry: dict[str, Any] = {"value": quantile(values, 0.75), "n": len(values), "median": median(values)}
    entry["unit"] = results[-1]["unit"]
    if models:
        entry["model"] = models[0]
    return entry
