"""What checkpoints leave, for catalogues."""

from __future__ import annotations

from cordee.telemetry.shown.kept_data import KeptData


def data_sets() -> tuple[KeptData, ...]:
    """Return what a checkpoint holds."""
    from cordee.systems.checkpoints.node.manifest import complete

    return (
        KeptData(
            "checkpoints",
            "Checkpoints",
            "checkpoints/step-*/",
            "JSON, `cordee.checkpoint/1`, beside the files that it lists",
            "`cordee.checkpointer(...).restore()`; `/api/runs/RUN` (`checkpoints`)",
            "What a complete checkpoint holds.",
            "cordee.checkpointer",
            (complete,),
        ),
    )
