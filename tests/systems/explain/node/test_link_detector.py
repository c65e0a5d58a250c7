"""Which connection is slow, from the data that waits for it."""

from __future__ import annotations

import pytest

from cordee.systems.explain.node.slow.links import LinkDetector
from cordee.wire.messages import SlowLink

MIB = 1 << 20


def ring(nodes: int) -> dict[tuple[str, str], int]:
    """The largest queue of each node to the next one, in bytes."""
    return {(f"n{at}", f"10.0.0.{(at + 1) % nodes}"): 40_000 + 1000 * at for at in range(nodes)}


def rounds(detector: LinkDetector, links: dict[tuple[str, str], int], count: int, now: float, excused=()):
    found = []
    for number in range(count):
        for (node, address), queued in links.items():
            detector.told(node, [SlowLink(address, queued // 2, 1), SlowLink(address, queued, 0)])
        found += detector.look(now + 10.0 * (number + 1), excused)
    return found


def test_the_connection_for_which_data_waits_in_every_round_is_named_once():
    detector = LinkDetector()
    (found,) = rounds(detector, {**ring(4), ("n2", "10.0.0.3"): 3 * MIB}, 20, 0.0)
    assert (found.node, found.address, found.queued_bytes, found.retransmits) == ("n2", "10.0.0.3", 3 * MIB, 6)
    assert found.usual_bytes < 64_000


def test_it_is_told_again_when_it_comes_back():
    detector = LinkDetector()
    slow = {**ring(4), ("n2", "10.0.0.3"): 3 * MIB}
    assert len(rounds(detector, slow, 8, 0.0)) == 1
    assert rounds(detector, ring(4), 8, 100.0) == []
    assert len(rounds(detector, slow, 8, 200.0)) == 1


@pytest.mark.parametrize(
    "links",
    [
        dict.fromkeys(ring(8), 3 * MIB),  # large messages everywhere
        {**ring(2), ("n0", "10.0.0.1"): 3 * MIB},  # two: too few to say
        {**ring(4), ("n0", "10.0.0.1"): 3 * MIB, ("n1", "10.0.0.2"): 3 * MIB},  # half of them
    ],
)
def test_what_is_common_or_among_few_blames_nobody(links):
    assert rounds(LinkDetector(), links, 20, 0.0) == []


def test_a_burst_blames_nobody():
    detector = LinkDetector()
    for number in range(10):
        assert rounds(detector, ring(4), 1, 60.0 * number) == []
        assert rounds(detector, {**ring(4), ("n2", "10.0.0.3"): 9 * MIB}, 5, 60.0 * number + 10) == []


def test_who_waits_for_a_slow_rank_has_no_slow_connection():
    slow = {**ring(4), ("n2", "10.0.0.3"): 3 * MIB}
    assert rounds(LinkDetector(), slow, 20, 0.0, ("n3", "10.0.0.3")) == []
    assert rounds(LinkDetector(), slow, 20, 0.0, ("n2",)) == []


def test_another_attempt_begins_anew():
    detector = LinkDetector()
    slow = {**ring(4), ("n2", "10.0.0.3"): 3 * MIB}
    rounds(detector, slow, 5, 0.0)
    detector.begin((), 50.0)
    assert rounds(detector, slow, 5, 50.0) == []


def test_nodes_for_which_nothing_waits_are_those_that_it_is_compared_with():
    detector = LinkDetector()
    detector.begin(("n0", "n1", "n2", "n3"), 0.0)
    (found,) = rounds(detector, {("n2", "10.0.0.3"): 3 * MIB}, 8, 0.0)
    assert (found.node, found.address, found.usual_bytes) == ("n2", "10.0.0.3", 0)
    detector.begin(("n2", "n3"), 100.0)
    assert rounds(detector, {("n2", "10.0.0.3"): 3 * MIB}, 8, 100.0) == []
