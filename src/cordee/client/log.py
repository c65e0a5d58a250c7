"""`cordee.log`: what a training script says about its steps."""

from __future__ import annotations

from typing import Any, Optional

from cordee.client import rank as _rank

_CONTENDED_S = 0.05


def log(step: Optional[int] = None, **values: Any) -> None:
    """Record numbers of a training step in the run's folder; costs microseconds, never waits, never raises.

    Outside a run it does nothing. Every rank may call it; a value of rank 3 is kept as rank 3's. Numbers are whatever
    `float()` accepts: also numpy scalars and one-element tensors, though a tensor on a GPU makes `float()` wait for
    the GPU. NaN and infinity are kept. What is no number, or finds the buffer full because nobody reads it, is counted
    and reported as dropped.

    Args:
        step: the step that the numbers belong to.
        steps: reserved: how many steps the training has, for progress.
        values: numbers by name, for example `loss=0.5, tokens_per_s=1e4`.
    """
    writer = _rank.writer
    if writer is None:
        if _rank.opened:
            _rank.tell_if_forked("cordee.log")
            return
        writer = _rank.open_writer()
        if writer is None:
            return
    guard = _rank.guard
    if not guard.acquire(False) and not guard.acquire(timeout=_CONTENDED_S):
        writer.drop()  # only a signal handler that interrupted this function in its own thread comes here
        return
    try:
        if "steps" in values:
            _set_total(writer, values.pop("steps"))
        writer.write(step, values)
    except Exception:
        _write_what_can_be(writer, step, values)
    finally:
        guard.release()


def _write_what_can_be(writer: Any, step: Any, values: dict[str, Any]) -> None:
    """Record the values that are numbers after all, count the others, and say so once for each name."""
    numbers = {}
    for name, value in values.items():
        try:
            numbers[name] = float(value.detach() if hasattr(value, "detach") else value)
        except Exception:
            _refuse(writer, f"cordee.log: {name} is no number but {type(value).__name__}; it is not recorded")
    try:
        whole = None if step is None else int(step)
    except Exception:
        whole = None
        _refuse(writer, f"cordee.log: step is no integer but {type(step).__name__}; it is not recorded")
    try:
        writer.write(whole, numbers)
    except Exception:
        _refuse(writer, "cordee.log: an event cannot be written; it is not recorded")


def _set_total(writer: Any, steps: Any) -> None:
    try:
        writer.set_total(int(steps))
    except Exception:
        _refuse(writer, f"cordee.log: steps is no integer but {type(steps).__name__}; it is not recorded")


def _refuse(writer: Any, text: str) -> None:
    writer.drop()
    _rank.tell_once(text)
