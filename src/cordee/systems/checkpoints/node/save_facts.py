"""What the run is told of checkpoints by a rank: how long a save took and what it wrote, and which ones are damaged."""

from __future__ import annotations

import os

from cordee.client import rank as _rank
from cordee.client.log import log
from cordee.client.reserved import CHECKPOINT_BLOCKING, CHECKPOINT_BYTES, CHECKPOINT_SECONDS, CHECKPOINT_SNAPSHOT
from cordee.systems.checkpoints.node.folder import MANIFEST
from cordee.wire.facts import CheckpointFact, FindingFact

_LONGEST_TEXT = 4000
_OF_ALL = (".metadata", MANIFEST)


def tell(step: int, seconds: float, written: int) -> None:
    """Record one save of this rank for which the training waited, and which ends now; never raises.

    Args:
        step: the checkpoint's.
        seconds: from its begin on this rank.
        written: bytes that this rank wrote.
    """
    log(step, **{CHECKPOINT_SECONDS: seconds, CHECKPOINT_BYTES: float(written), CHECKPOINT_BLOCKING: 1.0})
    tell_saved(step)


def tell_beside(step: int, seconds: float, written: int, stall_s: float) -> None:
    """Record one save of this rank beside the training, which is on the disk now; never raises.

    Args:
        stall_s: for how long the training waited until the copy was made.
    """
    told = {CHECKPOINT_SECONDS: seconds, CHECKPOINT_BYTES: float(written), CHECKPOINT_BLOCKING: 0.0}
    log(step, **told, **{CHECKPOINT_SNAPSHOT: stall_s})


def tell_saved(step: int) -> None:
    """Say that what was told of positions until now is what the checkpoint of this step holds; never raises."""
    _rank.tell_fact("cordee.checkpointer", CheckpointFact(int(step)))


def tell_finding(rule: str, text: str, what_next: str) -> None:
    """Have the run record a finding; never raises, and does nothing outside a run."""
    _rank.tell_fact("cordee.checkpointer", FindingFact(rule, text[:_LONGEST_TEXT], what_next))


def written_bytes(folder: str, rank: int) -> int:
    """Return the bytes of the files that a rank wrote into a checkpoint; rank 0 wrote those of all, too."""
    names = [f"__{rank}_0.distcp", f"rank-{rank}.pt", *(_OF_ALL if rank == 0 else ())]
    total = 0
    for name in names:
        try:
            total += os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue
    return total
