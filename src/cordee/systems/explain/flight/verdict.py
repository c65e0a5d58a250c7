"""What is found of a hang: the calls that do not end, and who is to blame for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cordee.systems.explain.flight.rings import RingGroup

UNKNOWN = "unknown"


class FlightVerdict(NamedTuple):
    """One cause.

    Attributes:
        kind: `missing-rank`, `cpu-stall`, `gpu-stall`, `wrong-collective`, `size`, `dtype`, `order`, `coalesced`,
            `all-to-all`, `p2p` or `unknown`.
        ranks: who is to blame for certain.
        suspects: among whom the cause is, where it is not certain.
        group, sequence: what hangs; a transfer has no sequence number that ranks share.
        arrived: a rank that called it as it should be.
        odd: by rank, what it called instead (a number of `Rings.calls`).
        why: in words, what is particular.
    """

    kind: str
    ranks: tuple[int, ...]
    group: RingGroup
    sequence: int | None
    arrived: int | None = None
    suspects: tuple[int, ...] = ()
    odd: Mapping[int, int] = MappingProxyType({})
    why: str = ""


class Stuck(NamedTuple):
    """The first call of a group that has not ended.

    Attributes:
        arrived: who has called it, late: who has not, unseen: of whom nothing can be said.
        since: when the first rank called it, ns by that rank's clock.
    """

    group: RingGroup
    sequence: int
    arrived: list[int]
    late: list[int]
    unseen: list[int]
    since: int
