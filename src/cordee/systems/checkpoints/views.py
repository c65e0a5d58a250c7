"""What is said of a run's checkpoints wherever runs are told, and what they leave, for catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordee.core.findings import Finding
from cordee.telemetry.shown.kept_data import KeptData
from cordee.telemetry.shown.view import RunView

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


class CheckpointView(RunView):
    """How often the run saves, against what would lose least."""

    def findings_of_samples(self, run: Run) -> list[Finding]:
        from cordee.systems.checkpoints.storage import purge_finding

        found = [purge_finding(self.step.get("checkpoint") or {}), *self._how_often(run)]
        return [one for one in found if one is not None]

    def _how_often(self, run: Run) -> list[Finding | None]:
        from cordee.systems.checkpoints.pace.interval import beside_advice, failure_rate, interval_advice
        from cordee.systems.checkpoints.pace.view import storage_view

        view = storage_view(run)
        if len(view.saves) < 2:
            return []
        nodes = max(1, sum(node.role == "active" for node in self.state.nodes))
        advice = interval_advice(view, failure_rate(run.folder.root.parent), nodes)
        beside = None if (self.step.get("checkpoint") or {}).get("asynchronous") else beside_advice(view)
        return [advice, beside]


def data_sets() -> tuple[KeptData, ...]:
    """Return what a checkpoint holds."""
    return (
        KeptData(
            "checkpoints",
            "Checkpoints",
            "checkpoints/step-*/",
            "JSON, `cordee.checkpoint/1`, beside the files that it lists",
            "`cordee.checkpointer(...).restore()`; `/api/runs/RUN` (`checkpoints`)",
            "What a complete checkpoint holds.",
        ),
    )
