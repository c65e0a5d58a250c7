"""What is scored: the job of a run, from its journal and plan, or of a recording, from its samplers' documents."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from cordee.backends.reconcile import known_until
from cordee.core.errors import CordeeError
from cordee.core.secrets import masked_words
from cordee.core.units import natural
from cordee.systems.score.trace.model import ScoredJob
from cordee.telemetry.node.recording import recording_state
from cordee.telemetry.store.phases import lost_time

if TYPE_CHECKING:
    from cordee.runs.state import RunState
    from cordee.telemetry.node.recording import Recorder
    from cordee.telemetry.store.reader import Run


def job_of_run(run: Run) -> ScoredJob:
    """Return the job of a run's folder; what its plan or journal does not say is not known."""
    state = run.state
    step = _step(run)
    request = step.get("request") or {}
    argv = (step.get("tasks") or {}).get("argv") or []
    nodes = [node for segment in state.segment_states for node in segment.nodes]
    active = [node.node for node in state.nodes if node.ranks or node.role == "active"]
    per_node = request.get("gpus_per_node") or 0
    began = state.attempts[0]["started_at"] if state.attempts else state.started_at
    return ScoredJob(
        name=run.id,
        command=shlex.join(masked_words(map(str, argv))),
        job=str(state.job or ""),
        state=state.state,
        exit_code=state.exit_code,
        started_at=began,
        ended_at=state.ended_at,
        world_size=state.world_size,
        nodes=tuple(dict.fromkeys(active or nodes)),
        allocated=int(per_node) * int(request.get("nodes") or 0) or None,
        productive_ratio=_productive_ratio(run, state),
    )


def gpus_of_site(run: Run) -> dict[str, dict[str, Any]]:
    """Return what the profile that a run was planned with says of GPUs, by its names; empty where it says nothing."""
    try:
        told = run.plan.get("gpu_models") or {}
    except (CordeeError, AttributeError):
        return {}
    return {name: {key: value for key, value in about.items() if value is not None} for name, about in told.items()}


def job_of_recording(run: Run, recorders: list[Recorder], devices: int) -> ScoredJob:
    """Return the job of a recording.

    Args:
        devices: how many were sampled; those of ranks that no sampler saw are added to it.
    """
    ranks = [rank for recorder in recorders for rank in recorder.ranks]
    ended = [rank.ended_at for rank in ranks if rank.ended_at is not None]
    state = recording_state(run.folder, recorders)
    world_size = state.world_size
    ours: set[str] = {uuid for rank in ranks for uuid in rank.devices or ()}
    seen = len({rank.rank for rank in ranks})
    allocated = max(devices, len(ours)) or None
    if allocated is not None and seen and world_size > seen:
        allocated = round(allocated * world_size / seen)
    return ScoredJob(
        name=run.id,
        command=shlex.join(masked_words(ranks[0].argv)) if ranks else "",
        job=state.job or "",
        state=state.state,
        exit_code=state.exit_code,
        started_at=state.started_at,
        ended_at=max(ended) if ranks and len(ended) == len(ranks) else None,
        world_size=world_size,
        nodes=tuple(sorted({recorder.node for recorder in recorders}, key=natural)),
        allocated=allocated,
    )


def _step(run: Run) -> dict[str, Any]:
    try:
        steps = run.plan.get("steps")
    except (CordeeError, AttributeError):
        return {}
    first = steps[0] if isinstance(steps, list) and steps else {}
    return first if isinstance(first, dict) else {}


def _productive_ratio(run: Run, state: RunState) -> float | None:
    """Return the share of the time since the first attempt that was not lost; None while that cannot be said."""
    if not state.attempts:
        return None
    now = known_until(run.folder, state) if state.ended_at is None else state.ended_at
    seconds = now - state.attempts[0]["started_at"]
    if seconds <= 0:
        return None
    steps: dict[int, dict[tuple[int, float], None]] = {}
    for events in run.events().values():
        logged = events[events["step"] >= 0]
        for attempt, step, moment in zip(
            logged["attempt"].tolist(), logged["step"].tolist(), logged["time"].tolist(), strict=True
        ):
            steps.setdefault(attempt, {})[step, moment] = None
    lost = lost_time(state, {attempt: list(of_attempt) for attempt, of_attempt in steps.items()}, now)
    if lost.repeated_s is None:
        return None
    kept: float = 1.0 - (lost.between_s + lost.queue_s + lost.repeated_s) / seconds
    return max(0.0, min(1.0, kept))
