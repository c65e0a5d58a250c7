"""What the run is told of checkpoints by a rank: how long a save took and what it wrote, and which ones are damaged."""

from __future__ import annotations

import os

from cordee.client import rank as _rank
from cordee.client.log import log
from cordee.client.reserved import CHECKPOINT_BLOCKING, CHECKPOINT_BYTES, CHECKPOINT_SECONDS
from cordee.systems.checkpoints.node.folder import MANIFEST
from cordee.wire.facts import CheckpointFact, DamageFact

_LONGEST_TEXT = 4000
_OF_ALL = (".metadata", MANIFEST)


def tell(step: int, seconds: float, written: int, *, blocking: bool = True) -> None:
    """Record one save of this rank, which ends now; never raises, and does nothing outside a run.

    Args:
        step: the checkpoint's.
        seconds: from its begin on this rank.
        written: bytes that this rank wrote.
        blocking: whether the training waited for it.
    """
    told = {CHECKPOINT_SECONDS: seconds, CHECKPOINT_BYTES: float(written), CHECKPOINT_BLOCKING: float(blocking)}
    log(step, **told)
    _rank.tell_fact("cordee.checkpointer", CheckpointFact(int(step)))


def tell_damaged(text: str) -> None:
    """Have the run record, as a finding, that a checkpoint was not used; never raises, and does nothing outside a run."""
    _rank.tell_fact("cordee.checkpointer", DamageFact(text[:_LONGEST_TEXT]))


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
