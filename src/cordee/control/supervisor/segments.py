"""The segments of a run in its journal: closed by whoever comes next when nobody could say how they ended."""

from __future__ import annotations

from typing import Any, Optional

from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.decisions.chain import BY_SCHEDULER
from cordee.control.supervisor.decisions.outcomes import SegmentOver
from cordee.core.errors import RunFolderError
from cordee.core.units import utc_text
from cordee.runs.checkpoint import Checkpoint, CheckpointFinder
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.signs import last_sign
from cordee.runs.state import RunState


def state_at_start(
    journal: JournalWriter, folder: RunFolder, place: Allocation, checkpoints: CheckpointFinder
) -> RunState:
    """Return the run's state; a segment of another allocation that has no end in the journal gets one first.

    Raises:
        RunFolderError: the journal cannot be read, or not be written where it must be.
    """
    state = JournalFollower(folder, keep=False).read()
    checkpoints.pass_over([doubt.checkpoint for doubt in state.doubts])
    if ended_from_outside(state):
        journal.append("resume_requested", by="the scheduler")
        state = _read_again(journal, folder)
    if state.state == "running" and place.allocation and state.allocation not in (None, place.allocation):
        newest = checkpoints.newest()
        progressed = newest is not None and newest.name != state.segment_checkpoint
        seen = place.lost_at() or last_sign(folder, place.identity().get("began"))
        write_end(journal, state.segments, "lost", newest, progressed, BY_SCHEDULER, seen=seen and utc_text(seen))
        state = _read_again(journal, folder)
    return state


def _read_again(journal: JournalWriter, folder: RunFolder) -> RunState:
    if not journal.flush():
        raise RunFolderError(
            "cannot write the journal", given=str(folder.journal), next="make room or restore the folder"
        ) from journal.last_error
    return JournalFollower(folder, keep=False).read()


def ended_from_outside(state: RunState) -> bool:
    """Return whether a command took the run for over because its job was gone; a job that comes back goes on with it."""
    return state.ended and state.reason.startswith("job_")


def left_over(before: RunState, place: Allocation) -> Optional[SegmentOver]:
    """Return the end of this very allocation's segment, written by a supervisor that was killed before the run went on."""
    here = place.allocation
    if before.state != "queued" or not before.chain or not here or before.allocation != here:
        return None
    return SegmentOver(before.chain[-1]["reason"])


def write_end(
    journal: JournalWriter,
    segment: int,
    reason: str,
    newest: Optional[Checkpoint],
    progressed: bool,
    how: str,
    **more: Any,
) -> None:
    """Write that a segment has ended and who has the next one start.

    Args:
        more: `seen`, its last sign of life, when it ended without anybody left to write this at once.
    """
    name = newest.name if newest else None
    journal.append(
        "segment_ended", segment=segment, reason=reason, checkpoint=name, progress=progressed, next=how, **more
    )
