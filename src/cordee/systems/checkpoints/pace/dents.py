"""What a checkpoint cost the training: the time of the steps around its writing, held against undisturbed steps nearby."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cordee.core.stats import centre_and_spread
from cordee.systems.checkpoints.pace.pace import Stretches
from cordee.systems.checkpoints.pace.saves import Save

NEIGHBOURS = 20
LEAST_NEIGHBOURS = 6
_FURTHEST = 500
_SIGMAS = 4.0
_LEAST_SPREAD = 0.01
_LEAST_COVERED = 0.5


@dataclass(frozen=True)
class Dent:
    """What one save cost.

    Attributes:
        lost_s: by how much the steps that overlap it took longer than undisturbed ones; None: cannot be said.
        share: of the throughput during those steps, 0-1; None: cannot be said.
        visible: whether that stands out from how undisturbed steps vary.
        reason: why it cannot be said, else empty.
    """

    lost_s: float | None = None
    share: float | None = None
    visible: bool = False
    reason: str = ""


def dents(found: Sequence[Save], done: Stretches) -> list[Dent]:
    """Return what each save cost, in their order.

    The steps of a save are those between whose logging it began or ended; undisturbed are those of no save, at most twenty on
    each side of the same attempt. A dent stands out when it is beyond four sigmas (from the median absolute deviation) of the
    undisturbed, and beyond 95 % of them.
    """
    spans = [_span(save, done) for save in found]
    quiet = np.ones(len(done.end), dtype=bool)
    for span in spans:
        if span is not None:
            quiet[slice(*span)] = False
    return [_dent(save, span, done, quiet) for save, span in zip(found, spans, strict=True)]


def _span(save: Save, done: Stretches) -> tuple[int, int] | None:
    """Return the first stretch that a save overlaps and the one after the last, None when there is none."""
    if save.begin is None:
        return None
    first = int(np.searchsorted(done.end, save.begin, "right"))
    last = int(np.searchsorted(done.begin, save.end, "left"))
    return (first, last) if first < last else None


def _dent(save: Save, span: tuple[int, int] | None, done: Stretches, quiet: np.ndarray) -> Dent:
    if save.begin is None:
        return Dent(reason="when it was written is not known")
    if not len(done.end):
        return Dent(reason="no steps were logged")
    if span is None:
        return Dent(reason="no steps that count were logged around it")
    first, last = span
    covered = np.minimum(done.end[first:last], save.end) - np.maximum(done.begin[first:last], save.begin)
    if covered.sum() < _LEAST_COVERED * (save.end - save.begin):
        return Dent(reason="no steps that count were logged after it")
    begin, end = max(0, first - _FURTHEST), last + _FURTHEST
    fit = begin + np.flatnonzero(quiet[begin:end] & (done.attempt[begin:end] == done.attempt[first]))
    near = np.r_[fit[fit < first][-NEIGHBOURS:], fit[fit >= last][:NEIGHBOURS]]
    if len(near) < LEAST_NEIGHBOURS:
        return Dent(reason=f"{len(near)} undisturbed steps were logged nearby, {LEAST_NEIGHBOURS} are needed")
    usual = done.step_s[near]
    middle, spread = centre_and_spread(usual)
    spread = max(spread, _LEAST_SPREAD * middle)
    steps = done.steps[first:last]
    took = float((done.end - done.begin)[first:last].sum())
    lost = took - middle * float(steps.sum())
    noise = _SIGMAS * spread * float(np.sqrt((steps**2).sum()))
    beyond = took / float(steps.sum()) > float(np.quantile(usual, 0.95))
    return Dent(lost, max(0.0, lost / took), lost > noise and beyond)
