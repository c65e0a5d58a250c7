"""What egress leaves behind, for the catalogue of data sets."""

from __future__ import annotations

from cordee.telemetry.shown.kept_data import KeptData


def data_sets() -> tuple[KeptData, ...]:
    """Return them."""
    return (
        KeptData(
            "facts/egress",
            "Destinations of a run",
            "telemetry/",
            "by node: `devices` by address, `node` for what holds for all of them",
            '`run.facts("egress")`; `/api/runs/RUN/devices?group=egress`',
            "What went to each address and came from it since the run began on a node, and how it was counted.",
        ),
    )
