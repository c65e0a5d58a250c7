"""Which dumps belong together: of one world, of one start, by clocks that agree."""

from __future__ import annotations

from collections import Counter
from statistics import median

from cordee.systems.explain.flight.rings import ALL_TO_ALL, Rings

_APART_S = 60.0
# They end on no rank before all have called them.
_TOGETHER: tuple[str, ...] = (
    "all_reduce",
    "all_gather",
    "_all_gather_base",
    "all_gather_single",
    "reduce_scatter",
    "barrier",
)
_TOGETHER += ("_reduce_scatter_base", "reduce_scatter_single", "all_reduce_barrier", *ALL_TO_ALL)


def strangers(rings: Rings) -> dict[int, str]:
    """Return the ranks whose dumps do not belong to the others', with the reason; nobody where neither side is the smaller."""
    worlds = Counter(ring.world for ring in rings.ranks.values() if ring.world)
    if len(worlds) > 1:
        usual = worlds.most_common(1)[0][0]
        return {
            rank: "its world has other ranks than that of the others"
            for rank, ring in rings.ranks.items()
            if ring.world and ring.world != usual
        }
    ahead: set[int] = set()
    behind: set[int] = set()
    for group in rings.groups:
        ended = {}
        for rank, span in group.spans.items():
            last = span.high if span.open is None else span.open - 1
            # What failed counts as ended with Gloo, and is the last call then.
            ended[rank] = min(last, span.high - 1) if rings.ranks[rank].gloo else last
        at = max(ended.values(), default=0)
        if at in group.calls and rings.calls[group.calls[at]].op in _TOGETHER:
            late = [rank for rank, span in group.spans.items() if span.high < at]
            if late:
                behind.update(late)
                ahead.update(rank for rank, last in ended.items() if last > max(group.spans[one].high for one in late))
    fewer = min((behind, ahead), key=len)
    if not behind or len(behind) == len(ahead):
        return {}
    return dict.fromkeys(
        fewer, "it is of another time: others have completed calls with it that it does not know, or it with them"
    )


def clocks_apart(rings: Rings) -> dict[int, float]:
    """Return the ranks that made the same calls more than a minute before or after the others, with the seconds (before: < 0)."""
    offsets: dict[int, float] = {}
    for group in rings.groups:
        times: dict[int, list[int]] = {}
        for span in group.spans.values():
            for sequence, time in {span.last, span.ended}:
                times.setdefault(sequence, []).append(time)
        middles = {sequence: median(each) for sequence, each in times.items() if len(each) > 2}
        for rank, span in group.spans.items():
            for sequence, time in {span.last, span.ended}:
                if sequence in middles:
                    apart = (time - middles[sequence]) / 1e9
                    offsets[rank] = min(offsets.get(rank, apart), apart, key=abs)
    return {rank: apart for rank, apart in offsets.items() if abs(apart) > _APART_S}
