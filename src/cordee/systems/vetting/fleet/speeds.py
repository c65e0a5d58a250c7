"""What vetting offers other systems: the speeds that the fleet usually reaches (the port `node-speeds`)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.core.ports.speeds import NodeSpeeds
from cordee.systems.vetting.fleet.baseline import fleet_baseline
from cordee.systems.vetting.fleet.index import FleetIndex

_WINDOW_S = 28 * 86400
# Of what is offered, the check that measures it, and what its values are multiplied with. Pairs name a model where GPUs met.
_CHECKS = (
    ("flops", "gpu.gemm", 1e12),
    ("memory", "gpu.memory_bandwidth", 1.0),
    ("link", "gpu.allreduce", 1.0),
    ("network", "pair.bandwidth", 1.0),
)
_MODELS = "SELECT DISTINCT model FROM results WHERE at >= ? AND status = 'pass' AND model IS NOT NULL"


def node_speeds(history: str | None) -> dict[str, NodeSpeeds]:
    """Return the medians of the last four weeks by GPU model; a history behind a collector is not asked for.

    Args:
        history: its folder, as the cluster's profile says; CORDEE_HISTORY goes before it.
    """
    where = os.environ.get("CORDEE_HISTORY") or history
    folder = Path(os.path.expandvars(os.path.expanduser(where))) if where else None
    if folder is None or not folder.is_dir():
        return {}
    index, since = FleetIndex(folder), time.time() - _WINDOW_S
    try:
        index.refresh()
        models = [str(row["model"]) for row in index.rows(_MODELS, since)]
        return {model: found for model in models if (found := _speeds(index, since, model)) is not None}
    except CordeeError:
        return {}


def _speeds(index: FleetIndex, since: float, model: str) -> NodeSpeeds | None:
    values = fleet_baseline(index, since, model, named=True)[0]
    found = {name: float(values[check]["median"]) * scale for name, check, scale in _CHECKS if check in values}
    nodes = max((about["n"] for about in values.values()), default=0)
    return NodeSpeeds(nodes, **found) if found else None
