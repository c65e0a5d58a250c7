"""What is told of tests and steps wherever a run is told."""

from __future__ import annotations

from typing import Any

from cordee.core.units import format_duration, format_size
from cordee.telemetry.shown.view import RunView


class ChildrenView(RunView):
    """What a test has shown, in a line or two."""

    def facts(self) -> list[tuple[str, str]]:
        """Return what was learned by the test of the job."""
        for entry in self.state.children:
            outcome = entry.get("outcome") or {}
            if outcome.get("learned"):
                return [("tested", text) for text in learned_words(outcome["learned"], outcome.get("predicted") or {})]
        return []


def learned_words(learned: dict[str, Any], predicted: dict[str, Any]) -> list[str]:
    """Return what a test has shown, and what follows from that for the job, in words."""
    parts = []
    if learned.get("step_s") is not None:
        parts.append(f"{learned['step_s']:.3g} s a step")
    if learned.get("memory_bytes") is not None:
        parts.append(f"{format_size(learned['memory_bytes'])} of memory on a node")
    if learned.get("gpu_memory_bytes") is not None:
        parts.append(f"{format_size(learned['gpu_memory_bytes'])} on a GPU")
    if learned.get("checkpoint_bytes") is not None:
        took = f", saved in {learned['save_s']:.3g} s" if learned.get("save_s") is not None else ""
        parts.append(f"checkpoints of {format_size(learned['checkpoint_bytes'])}{took}")
    lines = ["; ".join(parts)] if parts else []
    if predicted.get("total_s") is not None:
        segments = predicted.get("segments") or 1
        several = f" in {segments} segments" if segments > 1 else ""
        total = format_duration(round(predicted["total_s"]))
        lines.append(f"the job should take {total}{several} for {predicted['steps']} steps")
    return lines
