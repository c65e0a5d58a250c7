"""InfiniBand fabrics: what the real ibnetdiscover 44.0 printed of a simulated one, and what its manual page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cordee.backends.network.fabric import read_fabric
from cordee.backends.network.sources import read_network
from cordee.core.network import NetworkError

RECORDED = Path(__file__).parent / "recorded"


def switch(number: int, text: str, *ports: str) -> str:
    return f'Switch\t8 "S-{number:016x}"\t\t# "{text}" base port 0 lid 0 lmc 0\n' + "".join(
        f"[{at}]\t{port} lid 0 4xSDR\n" for at, port in enumerate(ports, 1)
    )


def to_node(name: str) -> str:
    return f'"H-{abs(hash(name)) % (1 << 40):016x}"[1](1) \t\t# "{name} mlx5_0"'


def to_switch(number: int) -> str:
    return f'"S-{number:016x}"[1]\t\t# "whatever"'


def read(*parts: str):
    return read_fabric("\n".join(parts).splitlines(), "test")


def test_a_fabric_that_ibnetdiscover_found_has_its_leaves_and_two_spines():
    network = read_network(RECORDED / "ibnetdiscover.txt")
    assert network.leaves == {"leaf1": ("n1", "n2"), "leaf2": ("n3", "n4"), "leaf3": ("n5", "n6")}
    assert network.hops("leaf1") == {"leaf1": 1, "leaf2": 3, "leaf3": 3}
    assert len(network.levels) == 1  # both spines are above all


def test_a_link_that_is_down_leaves_its_switch_where_it_was():
    text = (RECORDED / "ibnetdiscover.txt").read_text()
    kept = [line for line in text.splitlines() if '[2]\t"S-0000000000200004"[3]' not in line]
    network = read_fabric([line for line in kept if '[3]\t"S-0000000000200002"[2]' not in line], "test")
    assert len(network.levels) == 1
    assert network.hops("leaf3") == {"leaf1": 3, "leaf2": 3, "leaf3": 1}


def test_the_fabric_of_the_manual_page_is_two_switches_that_are_linked():
    text = (RECORDED / "ibnetdiscover-published.txt").read_text()
    # Its adapters are all described by their model; --node-name-map gives them names of nodes.
    named = re.sub(r'("H-0*)([0-9a-f]+)(".*# ")MT23108', r"\1\2\3n\2", text)
    network = read_fabric(named.splitlines(), "test")
    assert {leaf: len(nodes) for leaf, nodes in network.leaves.items()} == {
        "ISR9024 Voltaire": 2,
        "SW-6IB4 Voltaire": 2,
    }
    assert network.hops("ISR9024 Voltaire") == {"ISR9024 Voltaire": 1, "SW-6IB4 Voltaire": 2}


def test_pods_are_groups_and_the_way_between_them_leads_over_the_core():
    leaves = [switch(at, f"leaf{at}", to_node(f"n{at}"), to_switch(10 + at // 2)) for at in range(4)]
    pods = [switch(10 + at, f"pod{at}", to_switch(2 * at), to_switch(2 * at + 1), to_switch(20)) for at in range(2)]
    network = read(*leaves, *pods, switch(20, "core", to_switch(10), to_switch(11)))
    assert network.levels[1].of == {"leaf0": "pod0", "leaf1": "pod0", "leaf2": "pod1", "leaf3": "pod1"}
    assert network.hops("leaf0") == {"leaf0": 1, "leaf1": 3, "leaf2": 5, "leaf3": 5}


def test_switches_of_one_description_are_told_apart_by_their_guid_and_managed_ones_have_their_name():
    same = "SwitchX -  Mellanox Technologies"
    managed = switch(3, "MF0;sw3:MQM8700/U1", to_node("n3"))
    network = read(switch(1, same, to_node("n1")), switch(2, same, to_node("n2")), managed)
    assert set(network.leaves) == {f"{same} {1:016x}", f"{same} {2:016x}", "sw3"}


def test_an_aggregation_node_inside_a_switch_is_no_node():
    network = read(switch(1, "leaf", to_node("n1"), '"H-9"[1](1) # "Mellanox Technologies Aggregation Node"'))
    assert network.leaves == {"leaf": ("n1",)}


@pytest.mark.usefixtures("real")
def test_a_line_without_end_is_refused_by_its_number():
    with pytest.raises(NetworkError, match="too long") as raised:
        read(switch(1, "leaf", to_node("n1")), "x" * 5000)
    assert raised.value.line == 4
