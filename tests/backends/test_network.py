"""How nodes are connected, as Slurm describes it: trees, blocks, YAML, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import SlurmError
from cordee.backends.slurm.node.topology import ask_network, read_topology
from cordee.backends.slurm.topology import nodes_of_job, read_topology_yaml
from cordee.core.errors import DocumentError, UsageError
from cordee.core.network import NetworkError, Record, leaf_of, network_of, of_lists

# From the manual page topology.conf(5).
TREE = """##################################################################
# Slurm's network topology configuration file for use with the
# topology/tree plugin
##################################################################
SwitchName=s0 Nodes=dev[0-5]
SwitchName=s1 Nodes=dev[6-11]
SwitchName=s2 Nodes=dev[12-17]
SwitchName=s3 Switches=s[0-2]
"""
BLOCKS = """BlockName=block1 Nodes=node[1-32]
BlockName=block2 Nodes=node[33-64]
BlockName=block3 Nodes=node[65-96]
BlockName=block4 Nodes=node[97-128]
BlockSizes=30,120
"""
# As Slurm 22.05 prints a tree, and as topology_block.c of 23.11 and of 24.11 and later print blocks.
SHOWN_TREE = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""
SHOWN_BLOCKS = """BlockName=b1 BlockIndex=0 Nodes=node[01-04]
BlockName=b2 BlockIndex=1 Nodes=node[05-08]
"""
SHOWN_WIDER = """BlockName=b1 BlockIndex=0 Nodes=node[01-04] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=node[05-08] BlockSize=4
BlockName=b3 BlockIndex=2 Nodes=node[09-12] BlockSize=4
BlockName=b4 BlockIndex=3 Nodes=node[13-16] BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=4 Nodes=node[01-08] BlockSize=8
AggregatedBlock=b[3-4] BlockIndex=5 Nodes=node[09-16] BlockSize=8
"""
# From the manual page topology.yaml(5), the block made the default.
YAML = """- topology: topo1
  cluster_default: False
  tree:
    switches:
    - switch: sw_root
      children: s[1-2]
    - switch: s1
      nodes: node[01-02]
    - switch: s2
      nodes: node[03-04]
- topology: topo2
  cluster_default: True
  block:
    block_sizes:
      - 4
      - 16
    blocks:
    - block: b1
      nodes: node[01-04]
    - block: b2
      nodes: node[05-08]
    - block: b3
      nodes: node[09-12]
    - block: b4
      nodes: node[13-16]
- topology: topo3
  cluster_default: False
  flat: True
"""


def read(text: str):
    return read_topology(text, "test", file="topology.conf")


def groups(network, level: int = 1) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for leaf, group in network.levels[level].of.items():
        found.setdefault(group, []).append(leaf)
    return found


def test_leaves_below_one_switch_are_three_switches_apart():
    network = read(TREE)
    assert {leaf: len(nodes) for leaf, nodes in network.leaves.items()} == {"s0": 6, "s1": 6, "s2": 6}
    assert network.hops("s0") == {"s0": 1, "s1": 3, "s2": 3}
    assert [level.name for level in network.levels] == ["switch"]  # the top holds all of them


def test_what_scontrol_prints_is_the_same_tree_as_the_file():
    network = read(SHOWN_TREE)
    assert network.leaves == {"leaf1": ("n1", "n2"), "leaf2": ("n3", "n4")}
    assert network.hops("leaf1") == {"leaf1": 1, "leaf2": 3}


def test_switches_in_the_middle_are_groups():
    lines = [f"switchname=s{at} nodes=n[{at * 4}-{at * 4 + 3}]" for at in range(4)]
    network = read(
        "\n".join(
            [
                *lines,
                "SwitchName=g0 Switches=s[0-1]",
                "SwitchName=g1 Switches=s[2,3] # two",
                "SwitchName=t \\",
                "Switches=g[0-1]",
            ]
        )
    )
    assert groups(network) == {"g0": ["s0", "s1"], "g1": ["s2", "s3"]}
    assert network.hops("s0") == {"s0": 1, "s1": 3, "s2": 5, "s3": 5}


def test_a_level_with_one_switch_below_each_switch_groups_nothing():
    lines = [f"SwitchName=rack{at} Nodes=n{at}\nSwitchName=row{at} Switches=rack{at}" for at in range(4)]
    network = read("\n".join([*lines, "SwitchName=a Switches=row[0-1]", "SwitchName=b Switches=row[2-3]"]))
    assert groups(network) == {"a": ["rack0", "rack1"], "b": ["rack2", "rack3"]}


def test_ways_that_are_searched_together_are_those_that_are_searched_alone():
    lines = [f"SwitchName=s{at} Nodes=n{at}" for at in range(12)]
    lines += [f"SwitchName=g{at} Switches=s[{at * 3}-{at * 3 + 2}]" for at in range(4)]
    rails = [Record(f"r{at}", [f"n{at // 2}"]) for at in range(8)]
    uneven = [
        *rails,
        Record("x", (), ["r0", "r1", "r2"]),
        Record("y", (), ["r2", "r3", "r6"]),
        Record("z", (), ["x", "y", "r4"]),
    ]
    for network in (
        read("\n".join([*lines, "SwitchName=top Switches=g[0-2]"])),
        network_of(uneven, "test", rails=True, links=[("r6", "r4"), ("r7", "r5")]),
        read(BLOCKS),
    ):
        assert dict(network.hops_from(network.leaves)) == {leaf: network.hops(leaf) for leaf in network.leaves}


def test_no_way_is_known_between_trees_that_nothing_joins():
    network = read("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]")
    assert network.hops("a") == {"a": 1}


@pytest.mark.parametrize("text", [SHOWN_BLOCKS, BLOCKS])
def test_how_many_switches_lie_between_blocks_is_not_known(text):
    network = read(text)
    assert network.kind == "block"
    assert all(network.hops(leaf) == {leaf: 1} for leaf in network.leaves)


def test_blocks_of_a_larger_size_are_made_of_neighbours():
    text = "".join(f"BlockName=b{at} Nodes=n[{at * 4}-{at * 4 + 3}]\n" for at in range(5)) + "BlockSizes=4,8"
    assert groups(read(text)) == {"b[0-1]": ["b0", "b1"], "b[2-3]": ["b2", "b3"], "b4": ["b4"]}


def test_larger_blocks_that_scontrol_prints_are_groups():
    assert groups(read(SHOWN_WIDER)) == {"b[1-2]": ["b1", "b2"], "b[3-4]": ["b3", "b4"]}


def test_of_several_topologies_in_yaml_the_default_counts(tmp_path):
    file = tmp_path / "topology.yaml"
    file.write_text(YAML)
    network = read_topology_yaml(file)
    assert (network.kind, list(network.leaves)) == ("block", ["b1", "b2", "b3", "b4"])
    assert network.source == f"{file}, topo2"
    file.write_text(YAML.replace("True", "no"))
    network = read_topology_yaml(file)
    assert network.leaves == {"s1": ("node01", "node02"), "s2": ("node03", "node04")}
    assert network.hops("s1") == {"s1": 1, "s2": 3}


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\n", "above itself", 1),
        ("# nothing\n", "no switch or block that has nodes", None),
        ("SwitchName=a Switches=b\n", "no switch or block that has nodes", None),
        ("SwitchName=a Nodes=n1\nNodeName=n1 CPUs=4\n", "neither a switch nor a block", 2),
        ("RingName=r0 Nodes=n[1-4]\n", "neither a switch nor a block", 1),
        ("SwitchName=a Nodes=n[1-\n", "no closing bracket", 1),
        ("SwitchName=a Nodes=n[9-1]\n", "a range that is none", 1),
        ("SwitchName=a Nodes=n[1-99999999999]\n", "names too many", 1),
        ("SwitchName=a Nodes=" + "n1," * 500_000, "too long", 1),
        ("BlockName=a Nodes=n1\nBlockSizes=many\n", "no size of a block", 2),
        ("BlockName=a Nodes=n1\nSwitchName=s Nodes=n2\n", "both switches and blocks", None),
    ],
)
def test_what_cannot_be_a_network_is_refused_with_its_line(text, words, line):
    with pytest.raises(NetworkError, match=words) as raised:
        read(text)
    assert (raised.value.file, raised.value.line) == ("topology.conf", line)
    assert raised.value.allowed
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]", "n2 is below a, b: a counts"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "a is described twice (line 2)"),
        ("SwitchName=a Nodes=n1\nSwitchName=t Switches=a,x", "t is above x, which nothing describes (line 2)"),
    ],
)
def test_what_contradicts_itself_is_said_and_the_first_mention_counts(text, words):
    network = read(text)
    assert words in network.faults[0]
    assert network.leaf_of["n1"] == "a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- topology: a\n  tree:\n\tswitches: []\n", "tab"),
        ("- topology: a\n  flat: True\n", "neither switches nor blocks"),
        ("- topology: a\n  tree:\n    switches: none\n", "`switches` is no list"),
        ("- topology: a\n  tree:\n    switches:\n    - nodes: n1\n", "has no `switch`"),
        ("- topology: a\n  block:\n    block_sizes: [x]\n    blocks: []\n", "no size of a block"),
        ("topology: a\n", "no topology.yaml"),
        ("- topology: a\n  tree:\n    switches:\n    - switch: s\n      nodes: n[1\n", "closing bracket"),
    ],
)
def test_yaml_that_is_no_topology_is_refused(tmp_path: Path, text, words):
    file = tmp_path / "topology.yaml"
    file.write_text(text)
    with pytest.raises((NetworkError, DocumentError)) as raised:
        read_topology_yaml(file)
    assert words in str(raised.value)
    assert str(file) in str(raised.value)


def test_names_that_yaml_would_read_as_numbers_stay_as_they_are_written(tmp_path):
    file = tmp_path / "topology.yaml"
    file.write_text("- topology: 1\n  tree:\n    switches:\n    - switch: 010\n      nodes: [007, n2]\n")
    assert read_topology_yaml(file).leaves == {"010": ("007", "n2")}


def test_of_lists_of_nodes_the_one_that_holds_another_is_above_it():
    members = {"all": ["a", "b", "c", "d"], "one": ["a", "b"], "two": ["c", "d"], "none": []}
    network = of_lists(members, "[switches]")
    assert network.leaves == {"one": ("a", "b"), "two": ("c", "d")}
    assert network.hops("one") == {"one": 1, "two": 3}
    assert leaf_of(members)["a"] == "one"


def test_lists_that_overlap_and_none_of_which_holds_the_other_are_a_fault():
    network = of_lists({"one": ["a", "b"], "two": ["b", "c", "d"]}, "[switches]")
    assert "b is below one, two, none of which is above the others: one counts" in network.faults


def test_a_node_with_ports_on_all_rails_shares_a_leaf_with_one_that_has_lost_a_port():
    records = [Record(f"rail{at}", ["n1", "n2"] if at else ["n1"]) for at in range(4)]
    network = network_of([*records, Record("other", ["n3"])], "test", rails=True, links=[("rail1", "other")])
    assert network.leaves == {"rail0 and 3 more": ("n1", "n2"), "other": ("n3",)}
    assert network.hops("other") == {"other": 1, "rail0 and 3 more": 2}


def test_thousands_of_switches_in_a_row_are_no_recursion():
    records = [Record(f"s{at}", (), [f"s{at + 1}"]) for at in range(3000)]
    assert network_of([*records, Record("s3000", ["n1"])], "test").leaves == {"s3000": ("n1",)}


def command(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A folder of commands, and the only one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_the_nodes_of_a_job_that_the_controller_has_forgotten_come_from_accounting(slurm):
    command(slurm, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    command(slurm, "sacct", 'test "$5" = --jobs=17_3 && echo "n[1-2],login7"')
    assert nodes_of_job("17_3") == ["n1", "n2", "login7"]


def test_a_job_that_waits_or_that_nobody_knows_has_no_nodes(slurm):
    command(slurm, "scontrol", "echo 'JobId=17 JobState=PENDING NodeList= NumNodes=2'")
    command(slurm, "sacct", "echo 'None assigned'")
    assert nodes_of_job("17") is None
    command(slurm, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    command(slurm, "sacct", "exit 1")
    assert nodes_of_job("17") is None


def test_who_cannot_be_asked_is_an_error_and_so_is_what_is_no_job(slurm):
    command(slurm, "scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(SlurmError, match="Unable to contact"):
        nodes_of_job("17")
    with pytest.raises(UsageError, match="no id of a job"):
        nodes_of_job("17;id")


def test_a_controller_without_topology_knows_no_network_and_one_with_it_tells_whole_lines(slurm, monkeypatch):
    command(slurm, "scontrol", "exit 0")
    assert ask_network() is None
    monkeypatch.setenv("SLURM_TOPO_LEN", "20")
    command(slurm, "scontrol", f"test -z \"$SLURM_TOPO_LEN\" && echo '{SHOWN_TREE}'")
    network = ask_network()
    assert network is not None
    assert list(network.leaves) == ["leaf1", "leaf2"]
