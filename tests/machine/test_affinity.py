"""CPUs near GPUs, on the trees of /sys that three machines have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.machine.gpus.affinity import gpu_addresses, near, numa_nodes, range_list


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
    return tree


@pytest.fixture
def laptop(tmp_path):
    """One node or none, and a kernel that calls all CPUs local."""
    tree = Tree(tmp_path)
    tree.gpu("0000:01:00.0", -1, "0-7", "GPU-x")
    return tree


def test_on_grace_hopper_nodes_of_memory_alone_do_not_count(gh200):
    assert set(numa_nodes(gh200.root)) == {0, 1, 2, 3}
    addresses = [address for address, _ in gpu_addresses(gh200.root)]
    found = [near(address, range(288), gh200.root) for address in addresses]
    assert found == [frozenset(range(72 * chip, 72 * chip + 72)) for chip in range(4)]


def test_what_is_near_is_within_the_mask(dgx):
    assert near("0000:1b:00", {0, 112, 60}, dgx.root) == {0, 112}
    assert near("0000:1b:00", {60, 61}, dgx.root) == frozenset()
    assert range_list(near("0000:5b:00", range(224), dgx.root)) == "56-111,168-223"


def test_on_a_machine_without_numa_nodes_nothing_is_near(laptop):
    assert near("0000:01:00.0", range(8), laptop.root) == frozenset()


def test_a_device_of_which_everything_is_local_is_not_near_anything(dgx):
    dgx.gpu("0000:ff:00.0", -1, "0-223")
    assert near("00000000:FF:00.0", range(224), dgx.root) == frozenset()
    assert near("0000:FE:00.0", range(224), dgx.root) == frozenset()


def test_gpus_of_amd_are_found_by_their_driver(tmp_path):
    tree = Tree(tmp_path)
    tree.write("sys/bus/pci/drivers/amdgpu/0000:c1:00.0/unique_id", "1234abcd")
    tree.write("sys/bus/pci/drivers/amdgpu/bind", "")
    assert gpu_addresses(tree.root) == [("0000:c1:00", "GPU-1234abcd")]
