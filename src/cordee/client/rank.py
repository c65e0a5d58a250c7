"""Which process writes the rank's channel: the rank itself, and nothing that it forks or starts."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Optional

from cordee.wire.channel import ChannelWriter
from cordee.wire.facts import ChannelFact

CONTENDED_S = 0.05

writer: Optional[ChannelWriter] = None
opened = False
guard = threading.Lock()
_forked = False
_told: set[str] = set()


def open_writer() -> Optional[ChannelWriter]:
    """Return this process's channel, or None outside a run and in processes whose calls are not recorded. Never raises."""
    global writer, opened
    with guard:
        if not opened:
            writer = _open()
            opened = True
        return writer


def _open() -> Optional[ChannelWriter]:
    path = os.environ.get("CORDEE_CHANNEL")
    if not path or (is_split() and os.environ.get("LOCAL_RANK", "0") != "0"):
        return None
    try:
        return ChannelWriter(path)
    except BlockingIOError:
        tell_once("another process of this rank already uses cordee.log or cordee.stopping: here they do nothing")
    except (OSError, ValueError) as error:
        tell_once(f"cordee.log and cordee.stopping do nothing: the channel cannot be opened: {error}")
    return None


def is_split() -> bool:
    """Return whether an elastic launcher made several workers of this rank; only the first has the channel."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_WORLD_SIZE", "1") != "1"


def tell_fact(what: str, fact: ChannelFact) -> None:
    """Have the run record a fact; never raises, and does nothing outside a run.

    Args:
        what: the call that tells it, for a warning in a process that was forked from a rank.
    """
    target = open_writer()
    if target is None:
        tell_if_forked(what)
    elif guard.acquire(timeout=CONTENDED_S):
        try:
            target.tell(fact)
        finally:
            guard.release()
    else:
        target.drop()  # a signal handler that interrupted cordee.log in its own thread


def tell_if_forked(what: str) -> None:
    """Warn once in a process that was forked from a rank with an open channel, such as a data loader's worker."""
    if _forked:
        tell_once(f"{what} does nothing in a process forked from the rank; call it in the main process")


def tell_once(text: str) -> None:
    """Warn at the first call with this text, with the script's line; never raises, also where warnings are errors."""
    if text in _told:
        return
    _told.add(text)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("cordee."):
        frame, level = frame.f_back, level + 1
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=level)
    except RuntimeWarning:
        return


def _after_fork() -> None:
    global writer, guard, _forked
    guard = threading.Lock()
    if writer is not None:
        writer, _forked = None, True


os.register_at_fork(after_in_child=_after_fork)
