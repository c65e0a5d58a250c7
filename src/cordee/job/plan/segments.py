"""A time that is longer than one job may take, cut into segments."""

from __future__ import annotations

import math

from cordee.job.plan.model import SegmentPolicy
from cordee.job.plan.placement import Placement
from cordee.job.profile import Requeue


def segments(time_s: float | None, grace_s: float, placement: Placement, following: Requeue) -> SegmentPolicy:
    """Return how a job of `time_s` is cut where one job may take no more than the placement's limit.

    Every segment ends `grace_s` before its limit, half of the limit at most, so that it can save; as many follow as the
    rest of each adds up to the whole time. Without a time there is one segment of the partition's default time, else of
    its limit.
    """
    limit_s = placement.limit.seconds
    if time_s is None:
        default_s = placement.facts.default_time if placement.facts else None
        one_s = min((given for given in (default_s, limit_s) if given), default=None)
    else:
        one_s = time_s if limit_s is None else min(time_s, limit_s)
    grace = grace_s if one_s is None else min(grace_s, one_s / 2)
    count = 1
    if time_s is not None and one_s is not None and one_s < time_s:
        count = math.ceil(time_s / (one_s - grace) - 1e-9)
    return SegmentPolicy(limit_s=one_s, grace_s=grace, max_segments=count, next=following)
