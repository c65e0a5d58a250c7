"""The order to start ranks, as nodes read it."""

from __future__ import annotations

import pytest

from cordee.control.world import AttemptWorld, encode_places
from cordee.wire.messages import Ranks

ORDER = Ranks(2, "fork", 4, "b", 1, "::1", 1, 2, None, 3)


@pytest.mark.parametrize(
    ("nodes", "addresses"),
    [
        (["n1", "n2", "n03", "login"], ["10.0.0.7", "10.0.0.8", "10.0.1.1", "10.0.0.9"]),
        (["local-0", "local-1"], ["127.0.0.1", "127.0.0.1"]),
        (["a[1", "b,c", "d]"], ["fe80::1%eth0", "::1", ""]),
        (["n10", "n9", "n9a", "n11"], ["x"] * 4),
    ],
    ids=["nodes of a cluster", "one machine", "odd names", "in no order"],
)
def test_a_world_is_read_as_it_was_written(nodes, addresses):
    world = AttemptWorld.from_order(ORDER, encode_places(nodes, addresses))
    assert world.nodes == tuple(nodes)
    assert world.addresses == tuple(addresses)
    assert (world.attempt, world.node_rank, world.resume_from, world.epoch) == (2, 1, None, 3)


def test_what_all_nodes_are_told_of_ten_thousand_is_small():
    nodes = [f"nid{index:06d}" for index in range(10_000)]
    addresses = [f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}" for index in range(10_000)]
    assert len(encode_places(nodes, addresses)) < 4096
