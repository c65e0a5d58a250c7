"""What ranks of another run logged on this node and no agent has told: kept for a run that goes on, else its loss is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Optional

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.machine.gpus.affinity import range_list
from cordee.machine.node_folder import RUN
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.wire.channel import RING_BYTES, ChannelReader

# The next segment of a chain may wait for nodes for hours, and begin on this one; memory is not held for longer.
_LONGEST_KEPT_S = 86400.0


class UnreadChannel(NamedTuple):
    """What is left in a rank's channel: so many events, the first and last step of them, None where they have none."""

    attempt: int
    rank: int
    events: int
    first_step: Optional[int]
    last_step: Optional[int]


def may_go(folder: Path, unused_s: float) -> bool:
    """Return whether the folder of a run on this node may be removed: nothing unread is in it, or its run does not come back.

    Where what ranks logged is lost with it, a finding in the journal of their run says so.

    Args:
        folder: `RUN/NODE`, which no agent holds.
        unused_s: for how long none has.
    """
    left = unread_channels(folder)
    try:
        run = RunFolder(os.readlink(folder / RUN))
        if not left or run.id != folder.parent.name or os.stat(run.root).st_uid != os.geteuid():
            return True
        if unused_s < _LONGEST_KEPT_S and not JournalFollower(run, keep=False).read().ended:
            return False
        journal = client_journal(run.journal, folder.name)
        journal.append("finding", finding=lost(folder.name, left).document())
    except FileNotFoundError:  # the run's folder is gone, or where it lies is not mounted
        link = folder / RUN
        return unused_s >= _LONGEST_KEPT_S or not link.is_symlink() or link.readlink().parent.is_dir()
    except (OSError, CordeeError):  # it cannot be read, perhaps for now
        return unused_s >= _LONGEST_KEPT_S
    return journal.flush()


def unread_channels(folder: Path) -> list[UnreadChannel]:
    """Return what the channels of a folder hold that no supervisor has stored, by attempt and rank."""
    found = []
    for path in folder.glob("*-*.channel"):
        attempt, _, rank = path.stem.partition("-")
        try:
            key = int(attempt), int(rank)
            reader = ChannelReader(path)
        except (OSError, ValueError):
            continue
        events, _ = reader.read(RING_BYTES)
        reader.close()
        steps = [step for _, _, step, _ in events if step is not None]
        if events:
            found.append(UnreadChannel(*key, len(events), min(steps, default=None), max(steps, default=None)))
    return sorted(found, key=lambda one: (one.attempt, one.rank))


def lost(node: str, left: list[UnreadChannel]) -> Finding:
    """Return that what ranks logged on a node was removed unread."""
    steps = [step for one in left for step in (one.first_step, one.last_step) if step is not None]
    of = f", steps {min(steps)} to {max(steps)}" if steps else ""
    ranks = sorted({one.rank for one in left})
    text = (
        f"{sum(one.events for one in left)} events that rank{'s' if len(ranks) > 1 else ''} {range_list(ranks)} "
        f"logged on {node}{of}, were removed unread: no agent of this run came there again"
    )
    evidence = {"nodes": [node], "ranks": ranks, "channels": [one._asdict() for one in left]}
    next_step = "the curves lack these steps; a later attempt that ran them again has its own values"
    return Finding(text, "warn", "metrics-lost", evidence=evidence, next=next_step)
