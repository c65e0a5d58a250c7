"""Checkpoints and what they cost, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.units import format_duration, format_size
from cordee.systems.checkpoints.pace.dents import Dent
from cordee.systems.checkpoints.pace.saves import Save

_SOURCES = {
    "told": "",
    "written": " (from write rates; the script does not tell)",
    "seen": " (seen when it was complete)",
}


def save_text(save: Save, dent: Dent) -> str:
    """Return one checkpoint and what it cost in a sentence."""
    parts = [save.name or f"step {save.step}"]
    if save.bytes is not None:
        by = f" by {save.ranks} ranks" if save.ranks > 1 else ""
        parts.append(f"{format_size(int(save.bytes))}{by}")
    if save.seconds is not None:
        parts.append(f"written in {save.seconds:.3g} s")
    if save.snapshot_s is not None:
        parts.append(f"beside the training, which waited {save.snapshot_s:.3g} s for the copy")
    return ", ".join(parts) + _SOURCES[save.source] + ": " + _cost(dent)


def summary_text(found: Sequence[Save], costs: Sequence[Dent], training_s: float) -> str:
    """Return what all checkpoints cost in a sentence."""
    if not found:
        return "No checkpoint was seen."
    count = "1 checkpoint was" if len(found) == 1 else f"{len(found)} checkpoints were"
    known = [dent for dent in costs if dent.lost_s is not None]
    if not known:
        reasons = sorted({dent.reason for dent in costs})
        return f"{count} written; what they cost is not known: {'; '.join(reasons)}."
    seen = [dent for dent in known if dent.visible]
    of = "" if len(known) == len(found) else f" of the {len(known)} that can be judged"
    if not seen:
        return f"{count} written; no dent in the throughput stands out{of or ' at any'}."
    lost = sum(dent.lost_s or 0.0 for dent in seen)
    share = f", {100 * lost / training_s:.2g} % of the time between logged steps" if training_s > 0 else ""
    return f"{count} written; {len(seen)}{of} dented the throughput and cost {format_duration(lost)} together{share}."


def _cost(dent: Dent) -> str:
    if dent.lost_s is None or dent.share is None:
        return f"what it cost is not known: {dent.reason}"
    if not dent.visible:
        return "no dent in the throughput stands out"
    return f"training lost {dent.lost_s:.3g} s, {100 * dent.share:.0f} % of its throughput meanwhile"
