"""The segments of a run in words, as terminal and page show them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from cordee.core.hostlist import fold_nodes
from cordee.core.units import format_duration, utc_text
from cordee.runs.state import RunState, SegmentState
from cordee.telemetry.store.phases import SegmentTimes

_ENDS = {
    "time_limit": "its time limit was near",
    "preempted": "its nodes were wanted back",
    "requeued": "its job was put back into the queue",
    "node_lost": "too few nodes were left",
    "no_agents": "too few agents connected",
    "killed": "its batch script was killed",
    "lost": "it was lost without a word",
    "finished": "the run finished",
    "cancelled": "the run was cancelled",
    "refused": "the job was refused",
    "no_progress": "it saved nothing new",
    "not_home": "what it had made did not come home, and it was started again",
}
_NEXT = {
    "requeue": "the same job was queued again",
    "resubmit": "a new job was submitted",
    "scheduler": "the scheduler starts it again",
}


class SegmentWords(NamedTuple):
    """One segment as text: its number, job and partition, nodes, times, and how it ended."""

    number: int
    job: str
    nodes: str
    queued: str
    held: str
    trained: str
    ended: str

    @property
    def course(self) -> str:
        """Where it was and for how long, as a sentence's part."""
        parts = [f"waited {self.queued}"] if self.queued else []
        parts += [f"ran {self.held}, {self.trained} of it training"] if self.held else []
        where = " ".join(filter(None, (self.job, f"on {self.nodes}" if self.nodes else "")))
        return ", ".join([*parts, *([where] if where else [])]) or "nothing yet"


def worth_showing(state: RunState) -> bool:
    """Return whether segments say more than the run as a whole does: a scheduler placed it, or there are several."""
    return len(state.segment_states) > 1 or any(segment.job for segment in state.segment_states)


def began_from(state: RunState) -> tuple[str | None, str | None]:
    """Return the path of the checkpoint that the run began from, None at zero, and the run that made it, None: not known."""
    began = state.began_from or {}
    return began.get("path"), began.get("run")


def began_words(state: RunState) -> str:
    """Return the checkpoint that the run began from, and whose it is; empty where it began at zero."""
    began = state.began_from
    if began is None:
        return ""
    whose = f"of run {began['run']}" if began["run"] else "of an unknown run" if began["other"] else "its own"
    return f"{began['path']} ({whose})"


def segment_words(times: SegmentTimes) -> SegmentWords:
    """Return a segment's row."""
    segment = times.segment
    where = f" in {segment.partition}" if segment.partition else ""
    begun = segment.started_at is not None
    return SegmentWords(
        segment.number,
        f"job {segment.job}{where}" if segment.job else "",
        fold_nodes(sorted(segment.nodes, key=lambda name: (len(name), name))) if segment.nodes else "",
        format_duration(times.queue_s) if segment.queued_at is not None else "",
        format_duration(times.held_s) if begun else "",
        format_duration(times.train_s) if begun else "",
        end_words(segment),
    )


def segment_document(times: SegmentTimes) -> dict[str, Any]:
    """Return one segment's facts, moments as UTC text."""
    segment = asdict(times.segment)
    for name in ("queued_at", "started_at", "ended_at"):
        segment[name] = None if segment[name] is None else utc_text(segment[name])
    return {**segment, "queue_s": times.queue_s, "held_s": times.held_s, "train_s": times.train_s}


def end_words(segment: SegmentState) -> str:
    """Return why a segment ended, what it saved and what follows: `its time limit was near; step-80 saved; ...`."""
    if segment.ended_at is None:
        return "continues" if segment.started_at is not None else "waits for its nodes"
    parts = [_ENDS.get(segment.reason) or f"the run failed ({segment.reason.replace('_', ' ') or 'no reason given'})"]
    if segment.next:
        parts.append(f"{segment.checkpoint} saved" if segment.progress else "nothing new saved")
        parts.append(_NEXT.get(segment.next, segment.next))
    return "; ".join(parts)
