"""What a node has, and who gets it: cores near GPUs, GPUs and their instances, memory; on three machines that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.machine import inventory
from cordee.machine.gpus.affinity import range_list
from cordee.machine.inventory import read_slots
from cordee.machine.slots import AllocatableGpu, CannotGive, Core, Instance, NodeSlots, SlotAllocator

GIB = 1 << 30


def cpus(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def gh200() -> NodeSlots:
    """Four Grace Hoppers: 72 cores each on nodes 0-3."""
    cores = tuple(Core(frozenset({cpu}), cpu // 72) for cpu in range(288))
    gpus = (
        AllocatableGpu(f"00{chip}9:01:00", f"GPU-{chip}", cpus(f"{72 * chip}-{72 * chip + 71}")) for chip in range(4)
    )
    return NodeSlots(cores, tuple(gpus), 480 * GIB)


def dgx(allowed: frozenset[int] = cpus("0-223")) -> NodeSlots:
    """DGX H100: two sockets of 56 cores with two threads each; GPUs 0-3 at the first, 4-7 at the second."""
    cores = (Core(frozenset({core, core + 112}) & allowed, core // 56) for core in range(112))
    gpus = []
    for gpu in range(8):
        first = 56 * (gpu // 4)
        near = cpus(f"{first}-{first + 55},{first + 112}-{first + 167}") & allowed
        gpus.append(AllocatableGpu(f"0000:{16 * gpu + 27:02x}:00", f"GPU-{gpu}", near))
    return NodeSlots(tuple(core for core in cores if core.cpus), tuple(gpus), 2048 * GIB)


def ranks(slots: SlotAllocator, count: int) -> dict[str, tuple[str, ...]]:
    return {f"rank-1-{rank}": (slots.has.gpus[rank].name,) for rank in range(count)}


def test_on_grace_hopper_each_rank_gets_its_own_chip():
    slots = SlotAllocator(gh200)
    given = list(slots.give(ranks(slots, 4)).values())
    assert [range_list(one.cpus) for one in given] == ["0-71", "72-143", "144-215", "216-287"]
    assert given[1].words == "near GPU 0019:01:00: NUMA node 1, CPUs 72-143"
    assert given[1].gpus == ("GPU-1",)


def test_four_ranks_at_a_socket_share_its_cores_by_whole_ones():
    slots = SlotAllocator(dgx)
    given = [one.cpus for one in slots.give(ranks(slots, 8)).values()]
    assert range_list(given[0]) == "0-13,112-125"
    assert range_list(given[7]) == "98-111,210-223"
    assert sum(map(len, given)) == len(frozenset().union(*given)) == 224


def test_where_there_are_fewer_cores_than_ranks_they_are_shared_and_it_is_said():
    few = SlotAllocator(lambda: dgx(frozenset({0, 112, 1, 113, 60})))
    given = few.give(ranks(few, 4)).values()
    assert {one.cpus for one in given} == {frozenset({0, 1, 112, 113})}
    assert all("shared by 4 ranks" in one.words for one in given)
    uneven = SlotAllocator(lambda: dgx(frozenset({0, 1, 2, 3, 112})))
    assert [sorted(one.cpus) for one in uneven.give(ranks(uneven, 3)).values()] == [[0, 112], [1], [2, 3]]


def test_a_rank_whose_gpu_is_not_known_or_near_nothing_stays_where_it_is():
    slots = SlotAllocator(lambda: dgx(frozenset({60, 61})))
    given = slots.give({"unknown": (), "elsewhere": ("GPU-0",)})
    assert [(one.cpus, one.words) for one in given.values()] == [
        (None, "not bound: its GPU is not known"),
        (None, "not bound: the kernel names no CPUs near its GPU that it may use"),
    ]


def test_what_was_taken_back_is_given_again_as_before():
    slots = SlotAllocator(dgx)
    first = slots.give(ranks(slots, 8))
    with pytest.raises(CannotGive, match="holds slots already"):
        slots.give(ranks(slots, 8))
    for name in [*first, "nobody"]:
        slots.take_back(name)
    assert slots.give(ranks(slots, 8)) == first


def test_cores_that_a_task_holds_are_nobody_elses():
    slots = SlotAllocator(dgx)
    held = slots.give({"first": ("GPU-0",)})["first"]
    assert range_list(held.cpus) == "0-55,112-167"
    assert slots.give({"far": ("GPU-4",)})["far"].cpus == cpus("56-111,168-223")
    slots.take_back("first")
    given = slots.give({name: (f"GPU-{name}",) for name in "123"})
    assert [range_list(one.cpus) for one in given.values()] == ["0-17,112-129", "18-36,130-148", "37-55,149-167"]


def test_as_many_threads_fall_to_a_rank_as_it_has_whole_cores():
    slots = SlotAllocator(dgx)
    assert {one.cores for one in slots.give(ranks(slots, 8)).values()} == {14}
    few = SlotAllocator(lambda: dgx(frozenset({0, 112, 1, 113, 60})))
    assert {one.cores for one in few.give(ranks(few, 4)).values()} == {1}
    assert few.give({"unknown": ()})["unknown"].cores == 0


def test_a_gpu_is_shared_by_those_who_ask_at_once_and_by_nobody_later():
    slots = SlotAllocator(gh200)
    given = slots.give({"a": ("GPU-2",), "b": ("GPU-2",)})
    assert [range_list(one.cpus) for one in given.values()] == ["144-179", "180-215"]
    with pytest.raises(CannotGive, match="c asks for a GPU that b holds"):
        slots.give({"c": ("GPU-2",)})


def split() -> SlotAllocator:
    """One of the GPUs is split into two instances, as its driver has told."""
    slots = SlotAllocator(gh200)
    slots.learn({name: {"parent": "GPU-0", "memory_bytes": 10 * GIB} for name in ("MIG-b", "MIG-a")})
    slots.learn({"GPU-1": {"memory_bytes": 96 * GIB}, "GPU-x": {"memory_bytes": 1}, "MIG-x": {"parent": "GPU-x"}})
    return slots


def test_what_a_driver_tells_is_known_of_the_gpus_that_the_kernel_shows() -> None:
    slots = split()
    assert slots.has.gpus[0].instances == (Instance("MIG-a", 10 * GIB), Instance("MIG-b", 10 * GIB))
    assert [gpu.memory_bytes for gpu in slots.has.gpus] == [None, 96 * GIB, None, None]
    before = slots.has
    slots.look_again()
    assert slots.has == before


def test_an_instance_is_near_what_its_gpu_is_near_and_held_apart_from_its_sister():
    slots = split()
    given = slots.give({"a": ("MIG-a",), "b": ("MIG-b",)})
    assert [range_list(one.cpus) for one in given.values()] == ["0-35", "36-71"]
    with pytest.raises(CannotGive, match="whole asks for a GPU that a holds"):
        slots.give({"whole": ("GPU-0",)})
    slots.take_back("a")
    assert slots.give({"c": ("MIG-a",)})["c"].gpus == ("MIG-a",)
    for name in "bc":
        slots.take_back(name)
    slots.give({"whole": ("GPU-0",)})
    with pytest.raises(CannotGive, match="part asks for a GPU that whole holds"):
        slots.give({"part": ("MIG-b",)})


def test_what_cannot_be_given_is_said_with_what_is_there_and_nothing_of_it_is_held():
    slots = split()
    with pytest.raises(CannotGive) as error:
        slots.give({"well": ("GPU-1",), "b": ("GPU-7",)})
    assert (error.value.given, error.value.allowed) == ("GPU-7", "GPU-0, MIG-a, MIG-b, GPU-1, GPU-2, GPU-3")
    assert slots.give({"b": ("GPU-1",)})["b"].gpus == ("GPU-1",)


def test_a_node_is_read_from_its_kernel_within_what_may_be_used(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(inventory.os, "sched_getaffinity", lambda pid: {0, 1, 2, 6, 7})
    files = {
        "sys/devices/system/node/node0/cpulist": "0-1,4-5",
        "sys/devices/system/node/node1/cpulist": "2-3,6-7",
        "sys/bus/pci/devices/0000:10:00.0/numa_node": "1",
        "proc/driver/nvidia/gpus/0000:10:00.0/information": "GPU UUID:  GPU-a",
        "proc/meminfo": "MemTotal: 64 kB\nMemAvailable: 32 kB",
    }
    for core in range(4):
        for cpu in (core, core + 4):
            files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{core},{core + 4}"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    found = read_slots(str(tmp_path))
    assert found.cores == (Core(cpus("0"), 0), Core(cpus("1"), 0), Core(cpus("2,6"), 1), Core(cpus("7"), 1))
    assert found.gpus == (AllocatableGpu("0000:10:00", "GPU-a", cpus("2,6-7")),)
    assert found.memory_bytes == 64 << 10
