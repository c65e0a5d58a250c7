"""Samplers, on invented /proc trees and on real processes."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordee.machine.memory import MemorySource
from cordee.telemetry.node.samplers.proc import NodeSampler, RankSampler
from support.clocks import give_clock

DISKS = """   7       0 loop0 9 0 999 0 9 0 999 0 0 0 0
 259       0 nvme0n1 10 0 {read} 5 20 0 {written} 7 0 9 12 0 0 0 0
 259       1 nvme0n1p1 10 0 {read} 5 20 0 {written} 7 0 9 12 0 0 0 0
 253       0 dm-0 10 0 {read} 5 20 0 {written} 7 0 9 12 0 0 0 0
"""
NETWORK = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 555 1 0 0 0 0 0 0 555 1 0 0 0 0 0 0
  hsn0:{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0
 bond0: 777 1 0 0 0 0 0 0 777 1 0 0 0 0 0 0
"""
NODE = ["cpu", "used", "total", "load", "read", "written", "received", "sent"]
RANK = ["cpu", "rss", "read", "written", "processes"]


class Machine:
    """An invented /proc and /sys, and a clock that the test moves."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        self.now = 100.0
        for name in ("block/nvme0n1/device", "class/net/hsn0/device"):
            (self.sys / name).mkdir(parents=True)
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "self").mkdir()
        self.write("self/cgroup", "")
        self.write("self/mountinfo", "")
        give_clock(monkeypatch, "cordee.telemetry.node.samplers", monotonic=lambda: self.now)
        self.set()

    def write(self, name: str, text: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def set(
        self, busy: int = 0, idle: int = 0, sectors: tuple[int, int] = (0, 0), net: tuple[int, int] = (0, 0)
    ) -> None:
        self.write("stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n")
        self.write("meminfo", "MemTotal:       1000 kB\nMemFree:         10 kB\nMemAvailable:    600 kB\n")
        self.write("loadavg", "1.25 0.5 0.1 1/99 4242\n")
        self.write("diskstats", DISKS.format(read=sectors[0], written=sectors[1]))
        self.write("net/dev", NETWORK.format(received=net[0], sent=net[1]))

    def sampler(self) -> NodeSampler:
        return NodeSampler("local-0", str(self.proc), str(self.sys))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def by_name(names: list[str], values: list[float]) -> dict[str, float]:
    assert len(names) == len(values)
    return dict(zip(names, values, strict=True))


def test_a_node_sample_holds_ratios_bytes_and_rates_over_the_true_time(machine: Machine) -> None:
    sampler = machine.sampler()
    sampler.sample()
    machine.now += 2.0
    machine.set(busy=30, idle=70, sectors=(8, 16), net=(2000, 500))
    assert by_name(NODE, sampler.sample()) == {
        "cpu": 0.3,
        "used": 400 * 1024,
        "total": 1000 * 1024,
        "load": 1.25,
        "read": 8 * 512 / 2,
        "written": 16 * 512 / 2,
        "received": 1000.0,
        "sent": 250.0,
    }
    assert sampler.missing == {}
    assert sampler.devices() == ["local-0"]
    assert len(sampler.metrics()) == len(NODE)


def test_the_first_rates_are_missing_with_a_reason_and_not_zero(machine: Machine) -> None:
    sampler = machine.sampler()
    values = by_name(NODE, sampler.sample())
    missing = {name for name, value in values.items() if math.isnan(value)}
    assert missing == {"cpu", "read", "written", "received", "sent"}
    assert set(sampler.missing.values()) == {"a rate needs two samples"}
    assert len(sampler.missing) == 5


def test_a_file_that_is_not_there_makes_its_metrics_missing_and_the_others_stay(machine: Machine) -> None:
    (machine.proc / "diskstats").unlink()
    (machine.proc / "meminfo").unlink()
    sampler = machine.sampler()
    sampler.sample()
    machine.now += 1
    machine.write("stat", "cpu  5 0 0 5 0 0 0 0 0 0\n")
    values = by_name(NODE, sampler.sample())
    assert {name for name, value in values.items() if math.isnan(value)} == {"used", "total", "read", "written"}
    assert "No such file" in sampler.missing["disk_read_bytes_per_second"]
    assert "No such file" in sampler.missing["memory_used_bytes"]


def test_a_node_without_disks_has_no_disk_rates(machine: Machine) -> None:
    machine.write("diskstats", "")
    sampler = machine.sampler()
    sampler.sample()
    sampler.sample()
    assert sampler.missing["disk_read_bytes_per_second"] == "this node shows no disk"


def test_a_counter_that_was_reset_gives_no_negative_rate(machine: Machine) -> None:
    machine.set(sectors=(100, 100), net=(100, 100), busy=10, idle=10)
    sampler = machine.sampler()
    sampler.sample()
    machine.now += 1
    machine.set(sectors=(5, 500), net=(100, 90), busy=5, idle=5)
    values = by_name(NODE, sampler.sample())
    assert all(math.isnan(values[name]) for name in ("read", "written", "received", "sent", "cpu"))


def test_inside_a_container_interfaces_without_hardware_count(machine: Machine) -> None:
    (machine.sys / "class/net/hsn0/device").rmdir()
    sampler = machine.sampler()
    machine.set(net=(0, 0))
    sampler.sample()
    machine.now += 1
    machine.set(net=(10, 20))
    assert by_name(NODE, sampler.sample())["received"] == 10.0


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_limit_below_the_machine_is_the_memory(tmp_path: Path, version: int) -> None:
    point = tmp_path / "cgroup"
    deep = point / "slurm" / "job_7"
    deep.mkdir(parents=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    inactive = "inactive_file" if version == 2 else "total_inactive_file"
    for folder, limit in ((deep, "max" if version == 2 else str(2**63 - 4096)), (deep.parent, "500000")):
        (folder / names[0]).write_text(limit + "\n")
        (folder / names[1]).write_text("200000\n")
        (folder / "memory.stat").write_text(f"anon 5\n{inactive} 50000\n")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 600 kB\n")
    (proc / "self/cgroup").write_text("0::/slurm/job_7\n" if version == 2 else "4:memory:/slurm/job_7\n0::/\n")
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    (proc / "self/mountinfo").write_text(f"35 31 0:32 / {point} rw,relatime - {kind}\n")
    reading = MemorySource(str(proc)).read()
    assert reading == (500_000, 350_000, "cgroup")


def test_a_container_sees_its_own_cgroup_at_the_mount_point(tmp_path: Path) -> None:
    point = tmp_path / "memory"
    point.mkdir()
    (point / "memory.limit_in_bytes").write_text("500000")
    (point / "memory.usage_in_bytes").write_text("100000")
    (point / "memory.stat").write_text("")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 600 kB\n")
    (proc / "self/cgroup").write_text("4:memory:/docker/abc\n")
    (proc / "self/mountinfo").write_text(f"35 31 0:32 /docker/abc {point} rw - cgroup cgroup rw,memory\n")
    assert MemorySource(str(proc)).read() == (500_000, 400_000, "cgroup")


def test_memory_of_this_machine_can_be_read() -> None:
    reading = MemorySource().read()
    assert reading is not None
    assert 0 < reading.available_bytes <= reading.total_bytes


class Processes:
    """Invented processes in an invented /proc."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def set(
        self,
        pid: int,
        parent: int,
        *,
        own: int = 0,
        waited: int = 0,
        read: int = 0,
        start: int = 1,
        state: str = "S",
        session: int = 1,
    ) -> None:
        stat = (
            f"{pid} (a ) b) {state} {parent} 1 {session} 0 -1 0 0 0 0 0 {own} 0 {waited} 0 20 0 1 0 {start} 999 3 0\n"
        )
        self.machine.write(f"{pid}/stat", stat)
        io = f"rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: {read}\nwrite_bytes: {read * 2}\ncancelled: 0\n"
        self.machine.write(f"{pid}/io", io)

    def end(self, pid: int) -> None:
        (self.machine.proc / str(pid) / "stat").unlink()
        (self.machine.proc / str(pid) / "io").unlink(missing_ok=True)
        (self.machine.proc / str(pid)).rmdir()


@pytest.fixture
def processes(machine: Machine) -> Processes:
    return Processes(machine)


def sampled(machine: Machine, sampler: RankSampler) -> dict[str, float]:
    machine.now += 1.0
    return by_name(RANK, sampler.sample())


def test_a_rank_is_the_sum_of_its_tree_and_nothing_else(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(11, 10)
    processes.set(12, 11)
    processes.set(20, 1, own=5)
    sampler = RankSampler(lambda: {3: 10}, str(machine.proc))
    first = sampled(machine, sampler)
    assert first["processes"] == 3
    assert math.isnan(first["cpu"])
    assert sampler.missing["cpu_cores_ratio"] == "a rate needs two samples"
    for pid, parent in ((10, 1), (11, 10), (12, 11)):
        processes.set(pid, parent, own=50, read=100)
    processes.set(20, 1, own=500, read=9999)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    page = os.sysconf("SC_PAGE_SIZE")
    assert sampled(machine, sampler) == {
        "cpu": pytest.approx(150 * tick),
        "rss": 9 * page,
        "read": 300,
        "written": 600,
        "processes": 3,
    }
    assert sampler.devices() == [3]
    assert sampler.missing == {}


def test_work_of_a_child_that_ended_is_counted_once(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(11, 10)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    processes.set(11, 10, own=60, read=600)
    total = sampled(machine, sampler)["cpu"]
    processes.end(11)
    processes.set(10, 1, waited=80, read=700)
    last = sampled(machine, sampler)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert total == pytest.approx(60 * tick)
    assert last["cpu"] == pytest.approx(20 * tick)
    assert last["read"] == 100


def test_a_child_that_nobody_waits_for_never_makes_a_rate_negative(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(11, 10, own=900, read=5000)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    processes.end(11)
    processes.set(10, 1, own=7)
    assert sampled(machine, sampler)["cpu"] == pytest.approx(7 / os.sysconf("SC_CLK_TCK"))


def test_a_process_whose_parent_died_stays_with_its_rank(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(11, 10)
    processes.set(12, 11)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    processes.end(11)
    processes.set(12, 1, own=10)
    values = sampled(machine, sampler)
    assert values["processes"] == 2
    assert values["cpu"] > 0


def test_a_process_that_left_its_parent_before_it_was_seen_is_known_by_its_session(
    machine: Machine, processes: Processes
) -> None:
    processes.set(10, 1, session=10)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    processes.set(30, 1, session=10)
    assert sampled(machine, sampler)["processes"] == 2


def test_a_process_that_becomes_a_rank_later_is_found_at_once(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(20, 1)
    processes.set(21, 20)
    ranks = {0: 10}
    sampler = RankSampler(lambda: ranks, str(machine.proc))
    sampled(machine, sampler)
    ranks[1] = 20
    machine.now += 1
    values = sampler.sample()
    assert sampler.devices() == [0, 1]
    assert [values[4], values[9]] == [1, 2]


@pytest.mark.parametrize("how", ["gone", "zombie", "reused"])
def test_a_rank_whose_main_process_is_gone_is_missing(machine: Machine, processes: Processes, how: str) -> None:
    processes.set(10, 1)
    processes.set(11, 10)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    if how == "gone":
        processes.end(10)
    elif how == "zombie":
        processes.set(10, 1, state="Z")
    else:
        processes.set(10, 1, start=77)
    assert all(math.isnan(value) for value in sampled(machine, sampler).values())
    assert sampler.missing["processes"] == "rank 0 has ended"


def test_traffic_that_the_kernel_hides_is_missing_and_not_zero(machine: Machine, processes: Processes) -> None:
    processes.set(10, 1)
    processes.set(11, 10)
    sampler = RankSampler(lambda: {0: 10}, str(machine.proc))
    sampled(machine, sampler)
    machine.write("11/io", "")
    values = sampled(machine, sampler)
    assert math.isnan(values["read"])
    assert values["cpu"] == 0
    assert "does not show" in sampler.missing["io_read_bytes_per_second"]


def test_no_ranks_give_no_values(machine: Machine) -> None:
    sampler = RankSampler(dict, str(machine.proc))
    assert sampler.sample() == []
    assert sampler.devices() == []


def test_a_missing_proc_is_said_by_probe_and_never_raised(tmp_path: Path) -> None:
    node = NodeSampler("n", str(tmp_path / "none"), str(tmp_path))
    rank = RankSampler(lambda: {0: 1, 1: 2}, str(tmp_path / "none"))
    assert "not mounted" in (node.probe() or "")
    assert "not mounted" in (rank.probe() or "")
    assert all(math.isnan(value) for value in node.sample())
    assert len(rank.sample()) == 10
    assert "No such file" in rank.missing["processes"]


@pytest.fixture
def spawn() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", program]
        started.append(subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_real_rank_and_its_short_lived_children_use_about_one_core_and_never_less_than_none(
    spawn: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    process = spawn(
        "import os, time\n"
        "while True:\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        end = time.process_time() + 0.05\n"
        "        while time.process_time() < end: pass\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    sampler = RankSampler(lambda: {0: process.pid})
    assert sampler.probe() is None
    sampler.sample()
    values = []
    for _ in range(6):
        time.sleep(0.15)
        values.append(sampler.sample()[0])
    assert all(value >= 0 for value in values)
    assert max(values) < 1.6
    assert sum(values) > 0.2


def test_a_real_rank_shows_its_memory(spawn: Callable[[str], subprocess.Popen[bytes]]) -> None:
    process = spawn("data = bytearray(b'x' * 60_000_000); print('ready', flush=True); import time; time.sleep(60)")
    assert process.stdout is not None
    process.stdout.readline()
    sampler = RankSampler(lambda: {0: process.pid})
    values = by_name(RANK, sampler.sample())
    assert values["rss"] > 60_000_000
    assert values["processes"] == 1


def test_new_processes_may_be_looked_for_less_often_than_the_known_ones_are_sampled(tmp_path, monkeypatch):
    from cordee.telemetry.node.samplers import tree

    now = [100.0]
    give_clock(monkeypatch, tree.__name__, monotonic=lambda: now[0])

    def process(pid: int, parent: int) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (p) S {parent} {pid} 10" + " 0" * 40 + "\n")

    process(10, 1)
    trees = tree.ProcessTrees(str(tmp_path), list_every_s=0.9)

    def processes(rank: int = 0) -> int:
        look = trees.look({0: 10, **({1: 12} if rank else {})})[rank]
        return look.processes if look else 0

    assert processes() == 1
    process(11, 10)
    assert processes() == 1
    now[0] += 1
    assert processes() == 2
    shutil.rmtree(tmp_path / "11")
    assert processes() == 1
    process(12, 1)
    assert processes(1) == 1, "other ranks are looked for at once"
