"""`cordee.stopping`: asks at every step whether the run should stop, and gives all ranks the same answer at the same step."""

from __future__ import annotations

import time
from typing import Optional

from cordee.client import rank as _rank
from cordee.wire.channel import ChannelWriter

_FIRST_POLL_S, _LONGEST_POLL_S = 0.0005, 0.005


def stopping(step: int) -> bool:
    """Return whether to save and end before running `step`; true at one agreed step on all ranks.

    Every rank calls it at the same steps, best at the top of each. It costs about a microsecond until a stop is asked
    for; then a rank waits here until all agree, at most 30 s, and asks again at its next call if no answer came. It
    installs no signal handler. Outside a run it is always False, as it is where an elastic launcher split this rank
    into several workers, because only one of them could be told.

    Args:
        step: the number of the step about to run, from 0.
    """
    writer = _rank.writer
    if writer is None or writer is not _told_writer:
        writer = _introduce()
        if writer is None:
            return False
    try:
        return writer.ask(step) and _agree(writer, step)
    except (TypeError, ValueError, OverflowError):
        return _ask_again(writer, step)


_told_writer: Optional[ChannelWriter] = None


def _introduce() -> Optional[ChannelWriter]:
    """Open the channel at the first call and say that this rank can be asked to stop."""
    global _told_writer
    if _rank.writer is None and _rank.opened:
        _rank.tell_if_forked("cordee.stopping")
        return None
    writer = _rank.writer or _rank.open_writer()
    if writer is None or _rank.is_split():
        return None
    writer.uses_stopping()
    _told_writer = writer
    return writer


def _ask_again(writer: ChannelWriter, step: object) -> bool:
    """Take a step that only `int()` understands; anything else is said once and never stops a training."""
    try:
        whole = int(step)  # type: ignore[call-overload]
        return whole >= 0 and writer.ask(whole) and _agree(writer, whole)
    except (TypeError, ValueError, OverflowError):
        _rank.tell_once(f"cordee.stopping: step is no integer but {type(step).__name__}; the answer is False")
        return False


def _agree(writer: ChannelWriter, step: int) -> bool:
    stop_step = writer.stop_step
    if stop_step is None:
        stop_step = _wait(writer, step)
    return stop_step is not None and step >= stop_step


def _wait(writer: ChannelWriter, step: int) -> Optional[int]:
    """Publish where this rank waits; return the agreed step, or None after the longest wait."""
    deadline = time.monotonic() + writer.stop_wait_s
    pause = _FIRST_POLL_S
    writer.answer(step)
    while writer.stop_step is None and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(_LONGEST_POLL_S, pause * 1.5)
    writer.answer(None)
    return writer.stop_step
