"""CPUs near GPUs, on the trees of /sys that three machines have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.hardware.affinity import gpu_addresses, near, numa_nodes, places, range_list
from cordee.hardware.machine import count_list


class Tree:
    """An invented /sys and /proc."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._path = root

    def write(self, name: str, text: object) -> None:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def node(self, number: int, cpus: str) -> None:
        self.write(f"sys/devices/system/node/node{number}/cpulist", cpus)

    def core(self, siblings: str) -> None:
        for cpu in count_list(siblings):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)

    def gpu(self, address: str, node: int, local: str, uuid: str = "") -> None:
        self.write(f"sys/bus/pci/devices/{address}/numa_node", node)
        self.write(f"sys/bus/pci/devices/{address}/local_cpulist", local)
        self.write(f"proc/driver/nvidia/gpus/{address}/information", f"Model:  H\nGPU UUID:   \t {uuid}\nIRQ: 5")


@pytest.fixture
def gh200(tmp_path):
    """Four Grace Hoppers: 72 cores each on nodes 0-3; each GPU's memory is nodes of its own, without a CPU."""
    tree = Tree(tmp_path)
    for chip in range(4):
        tree.node(chip, f"{72 * chip}-{72 * chip + 71}")
        tree.gpu(f"00{chip}9:01:00.0", chip, f"{72 * chip}-{72 * chip + 71}", f"GPU-{chip}")
    for memory in range(4, 36):
        tree.node(memory, "")
    return tree


@pytest.fixture
def dgx(tmp_path):
    """DGX H100: two sockets of 56 cores with two threads each; GPUs 0-3 at the first, 4-7 at the second."""
    tree = Tree(tmp_path)
    for socket in range(2):
        cpus = f"{56 * socket}-{56 * socket + 55},{112 + 56 * socket}-{112 + 56 * socket + 55}"
        tree.node(socket, cpus)
        for gpu in range(4):
            tree.gpu(f"0000:{16 * (4 * socket + gpu) + 27:02x}:00.0", socket, cpus, f"GPU-{4 * socket + gpu}")
    for core in range(112):
        tree.core(f"{core},{core + 112}")
    return tree


@pytest.fixture
def laptop(tmp_path):
    """One node or none, and a kernel that calls all CPUs local."""
    tree = Tree(tmp_path)
    tree.gpu("0000:01:00.0", -1, "0-7", "GPU-x")
    return tree


def test_on_grace_hopper_each_rank_gets_its_own_chip_and_memory_nodes_do_not_count(gh200):
    assert set(numa_nodes(gh200.root)) == {0, 1, 2, 3}
    addresses = [address for address, _ in gpu_addresses(gh200.root)]
    found = places(addresses, range(288), gh200.root)
    assert [place.cpus for place in found] == [frozenset(range(72 * chip, 72 * chip + 72)) for chip in range(4)]
    assert found[1].words == "near GPU 0019:01:00: NUMA node 1, CPUs 72-143"


def test_four_ranks_at_a_socket_share_its_cores_by_whole_ones(dgx):
    addresses = [address for address, _ in gpu_addresses(dgx.root)]
    found = [place.cpus for place in places(addresses, range(224), dgx.root)]
    assert range_list(found[0]) == "0-13,112-125"
    assert range_list(found[7]) == "98-111,210-223"
    assert sum(map(len, found)) == len(frozenset().union(*found)) == 224


def test_no_rank_leaves_the_mask_and_fewer_cores_than_ranks_are_shared(dgx):
    addresses = [address for address, _ in gpu_addresses(dgx.root)][:4]
    allowed = {0, 112, 1, 113, 60}
    found = places(addresses, allowed, dgx.root)
    assert {place.cpus for place in found} == {frozenset({0, 1, 112, 113})}
    assert all("shared by 4 ranks" in place.words for place in found)
    three = places(addresses[:3], {0, 1, 2, 3, 112}, dgx.root)
    assert [sorted(place.cpus) for place in three] == [[0, 112], [1], [2, 3]]
    assert places(addresses[:1], {60, 61}, dgx.root)[0].cpus is None


def test_a_machine_without_numa_nodes_binds_nothing_and_says_so(laptop):
    assert near("0000:01:00.0", range(8), laptop.root) == frozenset()
    assert places(["0000:01:00"], range(8), laptop.root)[0].words.startswith("not bound: the kernel names no CPUs")


def test_a_device_of_which_everything_is_local_is_not_near_anything(dgx):
    dgx.gpu("0000:ff:00.0", -1, "0-223")
    assert near("00000000:FF:00.0", range(224), dgx.root) == frozenset()
    assert near("0000:FE:00.0", range(224), dgx.root) == frozenset()


def test_a_rank_whose_gpu_is_not_known_is_left_where_it_is(dgx):
    assert places([None], range(224), dgx.root) == [(None, "not bound: its GPU is not known")]


def test_gpus_of_amd_are_found_by_their_driver(tmp_path):
    tree = Tree(tmp_path)
    tree.write("sys/bus/pci/drivers/amdgpu/0000:c1:00.0/unique_id", "1234abcd")
    tree.write("sys/bus/pci/drivers/amdgpu/bind", "")
    assert gpu_addresses(tree.root) == [("0000:c1:00", "GPU-1234abcd")]
