"""`cordee.log`: what a training script says about its steps."""

from __future__ import annotations

from typing import Any, Mapping

from cordee.client import rank as _rank

_STEPS = 1 << 63
_ACCEPTED = 'cordee.log(step=step, loss=loss) or cordee.log({"loss": loss}, step=step)'


def log(*given: Any, step: Any = None, **values: Any) -> None:
    """Record numbers of a training step in the run's folder; costs microseconds, never waits, never raises.

    Numbers have names, by keyword or in a dict: `cordee.log(step=10, loss=0.5)`, `cordee.log({"loss": 0.5}, step=10)`.
    Outside a run it does nothing. Every rank may call it; a value of rank 3 is kept as rank 3's. Numbers are whatever
    `float()` accepts: also numpy scalars and one-element tensors, though a tensor on a GPU makes `float()` wait for
    the GPU. NaN and infinity are kept. What is no number, or finds the buffer full because nobody reads it, is counted
    and reported as dropped.

    Args:
        given: a dict of numbers by name, the step, or both.
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
    if not guard.acquire(False) and not guard.acquire(timeout=_rank.CONTENDED_S):
        writer.drop()  # only a signal handler that interrupted this function in its own thread comes here
        return
    try:
        if given:
            step, values = _by_place(writer, given, step, values)
        if "steps" in values:
            _set_total(writer, values.pop("steps"))
        for name, value in values.items():
            if type(value) is not float and hasattr(value, "detach"):
                values[name] = value.detach()  # torch warns of a loss that still has its graph
        writer.write(step, values)
    except Exception:
        _write_what_can_be(writer, step, values)
    finally:
        guard.release()


def _by_place(writer: Any, given: tuple[Any, ...], step: Any, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the step and the numbers of a call that gave a dict, a step or both without their names.

    A dict's own `step` is the step where none was given otherwise, as scripts for W&B write it.
    """
    for one in given:
        if isinstance(one, Mapping):
            values = {**_flat(writer, one), **values}
        elif step is None and not isinstance(one, (str, bytes)):
            step = one
        else:
            _refuse(writer, f"cordee.log takes no {type(one).__name__} in this place; write {_ACCEPTED}")
    if step is None:
        step = values.pop("step", None)
    return step, values


def _flat(writer: Any, numbers: Mapping[Any, Any], before: str = "", depth: int = 4) -> dict[str, Any]:
    """Return numbers by name; those of a dict within get its name, a dot and their own."""
    flat: dict[str, Any] = {}
    for name, value in numbers.items():
        if not isinstance(name, str):
            _refuse(writer, f"cordee.log: a name is not a text but {type(name).__name__}: its value is not recorded")
        elif isinstance(value, Mapping) and depth:
            flat.update(_flat(writer, value, f"{before}{name}.", depth - 1))
        else:
            flat[before + name] = value
    return flat


def _write_what_can_be(writer: Any, step: Any, values: dict[str, Any]) -> None:
    """Record the values that are numbers after all, count the others, and say so once for each name."""
    numbers = {}
    for name, value in values.items():
        try:
            numbers[name] = float(value)
        except Exception:
            _refuse(
                writer,
                f"cordee.log: the value of {name!r} is not a number but {type(value).__name__}: it is not recorded",
            )
    try:
        whole = None if step is None else int(step)
        if whole is not None and not -_STEPS < whole < _STEPS:
            raise OverflowError
    except Exception:
        whole = None
        _refuse(writer, f"cordee.log: step is not a 64-bit integer but {type(step).__name__}: it is not recorded")
    try:
        writer.write(whole, numbers)
    except Exception:
        _refuse(writer, "cordee.log: an event cannot be written; it is not recorded")


def _set_total(writer: Any, steps: Any) -> None:
    try:
        writer.set_total(int(steps))
    except Exception:
        _refuse(writer, f"cordee.log: steps is not an integer but {type(steps).__name__}: it is not recorded")


def _refuse(writer: Any, text: str) -> None:
    writer.drop()
    _rank.tell_once(text)
