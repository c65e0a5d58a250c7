"""Where a job sits: figures that can be counted by hand, filters, meshes, what is missing."""

from __future__ import annotations

import itertools

import pytest

from cordee.core.errors import UsageError
from cordee.core.network import Network, Record, network_of, of_lists
from cordee.systems.explain.topology.figures import document, figures
from cordee.systems.explain.topology.job import PlacedJob, chosen, with_mesh


def tree(leaves: int = 4, nodes: int = 4, per_group: int = 2) -> Network:
    """Return s0, s1, ... of `nodes` nodes each (n0, n1, ...), in groups g0, g1, ..., below one top."""
    records = [Record(f"s{at}", [f"n{at * nodes + one}" for one in range(nodes)]) for at in range(leaves)]
    groups = [
        Record(f"g{at}", (), [f"s{at * per_group + one}" for one in range(per_group)])
        for at in range(leaves // per_group)
    ]
    return network_of([*records, *groups, Record("top", (), [group.name for group in groups])], "test")


def job(*nodes: int) -> PlacedJob:
    return PlacedJob("job", tuple(f"n{at}" for at in nodes))


def test_switches_spanned_stand_beside_the_least_possible():
    found = figures(job(0, 1, 4, 8), tree())
    switch, group = found.spans
    assert (switch.spanned, switch.least_possible, switch.there) == (3, 1, 4)
    assert (switch.largest, switch.partly, switch.lone) == (("s0", 2), 3, 2)
    assert (group.level, group.spanned, group.least_possible, group.there) == ("group", 2, 1, 2)


def test_the_least_possible_counts_what_the_largest_switches_hold():
    network = of_lists({"small": ["a"], "large": ["b", "c", "d"], "middle": ["e", "f"]}, "test")
    names = ("a", "b", "e", "f")
    assert figures(PlacedJob("job", names), network).spans[0].least_possible == 2


def test_the_mean_distance_is_that_of_all_pairs():
    network, some = tree(), (0, 1, 4, 8, 13)
    leaf = {f"n{at}": at // 4 for at in range(16)}

    def hops(one: int, other: int) -> int:
        a, b = leaf[f"n{one}"], leaf[f"n{other}"]
        return 1 if a == b else 3 if a // 2 == b // 2 else 5

    all_pairs = [hops(*pair) for pair in itertools.combinations(some, 2)]
    found = figures(job(*some), network)
    assert found.mean_hops == pytest.approx(sum(all_pairs) / len(all_pairs))
    assert (found.most_hops, found.known_pairs) == (5, 1)


def test_in_a_dragonfly_two_switches_of_a_group_are_two_apart_and_groups_four_at_most():
    leaves = {f"s{at}": [f"n{at}"] for at in range(4)}
    network = of_lists(leaves, "test", kind="dragonfly", groups={"g0": ["s0", "s1"], "g1": ["s2", "s3"]})
    assert network.hops("s0") == {"s0": 1, "s1": 2, "s2": 4, "s3": 4}
    assert figures(job(0, 1, 2), network).mean_hops == pytest.approx((2 + 4 + 4) / 3)


def test_the_share_of_pairs_whose_way_is_known_is_said_for_blocks():
    network = of_lists({"b0": ["n0", "n1"], "b1": ["n2", "n3"]}, "test", kind="block")
    found = figures(job(0, 1, 2, 3), network)
    assert (found.mean_hops, found.known_pairs) == (1, pytest.approx(4 / 12))


def test_one_node_has_no_distance():
    assert figures(job(0), tree()).mean_hops is None


def test_neighbours_are_rings_and_the_stages_of_a_pipeline_are_a_row():
    # Two ranks a node, tp 2 within it, pp 4 and dp 2: stage by stage through s0 and s1.
    found = figures(with_mesh(job(*range(8)), "tp=2,dp=2,pp=4"), tree())
    tp, dp, pp = (found.edges[name] for name in ("tp", "dp", "pp"))
    assert (tp.pairs, tp.nodes) == (8, 0)  # a ring of two is one pair
    assert (dp.pairs, dp.nodes, dp.crossing) == (8, 8, {"switch": 0, "group": 0})
    assert (pp.pairs, pp.nodes, pp.crossing) == (12, 12, {"switch": 4, "group": 0})


def test_the_last_of_a_ring_is_a_neighbour_of_the_first():
    found = figures(with_mesh(job(0, 1, 4, 8), "dp=4"), tree())
    assert (found.edges["dp"].pairs, found.edges["dp"].crossing) == (4, {"switch": 3, "group": 2})


def test_nodes_in_no_switch_are_named_and_their_pairs_are_unknown_not_zero():
    found = figures(with_mesh(job(0, 1, 99), "dp=3"), tree())
    assert found.unplaced == ("n99",)
    assert (found.edges["dp"].pairs, found.edges["dp"].unknown) == (3, 2)
    said = document(with_mesh(job(0, 1, 99), "dp=3"), tree(), found)
    assert said["edges"]["dp"] == {"pairs": 3, "unknown": 2, "node": 1, "switch": 0, "group": 0}
    assert "switch" not in said["placed"][2]


def test_without_a_network_nothing_is_said_of_switches():
    said = document(job(0, 1), None, figures(job(0, 1), None))
    assert (said["switches_spanned"], said["least_possible"], said["levels"], said["network"]) == (None, None, [], None)


def test_a_node_with_its_domain_is_the_node_that_the_network_knows():
    assert figures(PlacedJob("job", ("n0.site.example", "n1")), tree()).leaf_of == {"n0.site.example": "s0", "n1": "s0"}


def test_filters_combine_and_one_that_is_given_twice_takes_either():
    whole = with_mesh(job(*range(8)), "tp=2,dp=2,pp=4")
    assert set(chosen(whole, None, "dp=0,pp=2-3").ranks) == {8, 9, 12, 13}
    assert set(chosen(whole, None, "pp=0,pp=3,tp=1,dp=1").ranks) == {3, 15}
    assert chosen(whole, tree(), "switch=s1,rank=0-9").nodes == ("n4",)
    assert chosen(whole, tree(), "node=n[1-2,7],group=g0").nodes == ("n1", "n2", "n7")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("dp", "no filter"),
        ("dp=x", "no number"),
        ("dp=3-1", "no number"),
        ("zp=1", "nothing of this job is known by zp"),
        ("dp=7", "leaves nothing"),
        ("switch=s9", "leaves nothing"),
        ("rank=0-99999999999", "no number"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        chosen(with_mesh(job(*range(8)), "tp=2,dp=2,pp=4"), tree(), given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tp", "no mesh"),
        ("tp=0", "no mesh"),
        ("tp=2,tp=4", "no mesh"),
        ("tp=3", "the mesh has 3 ranks"),
        ("tp=x", "no mesh"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        with_mesh(job(0, 1), given)
