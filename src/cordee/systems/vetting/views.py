"""What vettings leave and have said, for catalogues and pages."""

from __future__ import annotations

import os
import time

from cordee.telemetry.shown.kept_data import KeptData

_DAYS = 30


def recent_verdicts() -> dict[str, dict[str, int]]:
    """Return by node how often vettings of the last 30 days said what.

    Raises:
        CordeeError: the site keeps no history, or it cannot be read.
    """
    from cordee.systems.vetting.fleet.history_location import history_place
    from cordee.systems.vetting.fleet.index import FleetIndex
    from cordee.systems.vetting.protocol.site import vetting_profile

    place = history_place(None, vetting_profile(os.environ.get("CORDEE_ON")))
    index = FleetIndex(place.refresh())
    index.refresh()
    since = time.time() - _DAYS * 86400.0
    found: dict[str, dict[str, int]] = {}
    for row in index.rows(
        "SELECT node, verdict, COUNT(*) AS times FROM nodes WHERE at >= ? GROUP BY node, verdict", since
    ):
        found.setdefault(row["node"], {})[row["verdict"]] = row["times"]
    return found


def data_sets() -> tuple[KeptData, ...]:
    """Return what vettings leave."""
    from cordee.systems.vetting.node.checks._base import Result

    return (
        KeptData(
            "vetting",
            "Vetting results",
            "journal/ (`node_verdict`, `vetting_verdict`)",
            "JSON, `cordee.vetting/1`",
            "`run.state.vetting`, `run.state.nodes`; `cordee vet --json`; `/api/runs/RUN`",
            "What was found on the nodes before the ranks started.",
            {"nodes[].results[].": Result},
        ),
        KeptData(
            "history",
            "The history of nodes",
            "the site's history folder: <day>/<time>-<job>-<id>.jsonl",
            "JSON lines, `cordee.history/1`: a header, then a line for each node",
            "`cordee nodes history NODE --json`; `/api/fleet`",
            "Every vetting of a site, for as long as its policy keeps them.",
        ),
    )
