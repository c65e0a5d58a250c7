"""What holds a job back, the fabric, power, shares of cores and threads: on invented kernels and on this one."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.machine.cgroups import groups_of, job_group, quota_cores
from cordee.telemetry.node.blocklog import decode_json, iter_records
from cordee.telemetry.node.catalogue import GROUPS
from cordee.telemetry.node.samplers import perf
from cordee.telemetry.node.samplers.device_facts import DeviceFacts
from cordee.telemetry.node.samplers.fabric import FabricSampler
from cordee.telemetry.node.samplers.host import node_sampler, rank_sampler
from cordee.telemetry.node.samplers.perf import SOFTWARE, Counter, NoCounter
from cordee.telemetry.node.samplers.power import PowerSampler
from cordee.telemetry.node.samplers.pressure import PressureSampler
from cordee.telemetry.node.samplers.share import CoreShares
from cordee.telemetry.node.samplers.tree import BusyProcess, TreeLook
from support.clocks import give_clock

PRESSURE = "some avg10=1.00 avg60=1.00 avg300=1.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"


class Kernel:
    """An invented /proc and /sys, and a clock that the test moves."""

    def __init__(self, root: Path) -> None:
        self.root, self.proc, self.sys = root, str(root / "proc"), str(root / "sys")
        self.now = 100.0
        self.write("proc/self/cgroup", "")
        self.write("proc/self/mountinfo", "")

    def write(self, name: str, text: object) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as file:
            file.write(f"{text}\n")

    def version_2(self, path: str) -> str:
        """Put the processes into this cgroup; returns its folder."""
        self.write("proc/self/cgroup", f"0::/{path}")
        self.write("proc/self/mountinfo", f"35 31 0:32 / {self.root}/cgroup rw - cgroup2 cgroup2 rw")
        return f"cgroup/{path}"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    kernel = Kernel(tmp_path)
    give_clock(monkeypatch, "cordee.telemetry.node.samplers", monotonic=lambda: kernel.now)
    return kernel


def named(sampler):
    return dict(zip([metric["name"] for metric in sampler.metrics()], sampler.sample(), strict=True))


def test_every_metric_of_the_host_samplers_is_in_the_catalogue():
    node, rank = node_sampler("n"), rank_sampler(lambda: {0: os.getpid()}, 1.0)
    for group, sampler in (("node", node), ("rank", rank)):
        sampler.sample()
        told = {metric["name"] for metric in sampler.metrics()}
        assert told | set(sampler.missing) == {metric.name for metric in GROUPS[group]}
        sampler.close()


def test_pressure_is_of_the_slurm_jobs_cgroup_where_there_is_one(kernel):
    step = kernel.version_2("system.slice/slurmstepd.scope/job_7/step_0/user/task_0")
    job = step.split("/step_0")[0]
    for folder, total in ((step, 1), (job, 1_000_000)):
        kernel.write(f"{folder}/cgroup.events", "populated 1")
        for kind in ("cpu", "memory", "io"):
            kernel.write(f"{folder}/{kind}.pressure", PRESSURE.format(total))
    sampler = PressureSampler("n", kernel.proc)
    assert all(math.isnan(value) for value in sampler.sample())
    kernel.now += 2
    kernel.write(f"{job}/io.pressure", PRESSURE.format(1_500_000))
    assert named(sampler) == {"pressure_cpu_ratio": 0, "pressure_memory_ratio": 0, "pressure_io_ratio": 0.25}
    assert sampler.metrics()[0]["source"] == "cgroup pressure"
    assert sampler.facts()["n"]["pressure_of"].endswith("job_7")


def test_without_a_cgroup_of_its_own_the_pressure_is_the_machines_and_says_so(kernel):
    for kind in ("cpu", "memory", "io"):
        kernel.write(f"proc/pressure/{kind}", PRESSURE.format(0))
    sampler = PressureSampler("n", kernel.proc)
    sampler.sample()
    assert "whole machine" in sampler.metrics()[0]["source"]
    assert sampler.missing["cpu_throttled_ratio"] == "no cgroup of this process shows cpu.stat"


def test_a_kernel_without_pressure_is_a_reason_and_no_metric(kernel):
    sampler = PressureSampler("n", kernel.proc)
    assert "psi=1" in sampler.probe()
    assert sampler.metrics() == []
    assert set(sampler.missing) == {
        "pressure_cpu_ratio",
        "pressure_memory_ratio",
        "pressure_io_ratio",
        "cpu_throttled_ratio",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_above_the_job_shows_as_throttling_and_as_cores(kernel, version):
    if version == 2:
        folder = kernel.version_2("job_7/step_0")
        kernel.write("cgroup/job_7/cpu.max", "150000 100000")
        kernel.write("cgroup/job_7/step_0/cpu.max", "max 100000")
    else:
        folder = "cgroup/job_7/step_0"
        kernel.write("proc/self/cgroup", "3:cpu,cpuacct:/job_7/step_0\n0::/")
        kernel.write("proc/self/mountinfo", f"35 31 0:32 / {kernel.root}/cgroup rw - cgroup cgroup rw,cpu,cpuacct")
        for level, quota in ((folder, -1), ("cgroup/job_7", 150000)):
            kernel.write(f"{level}/cpu.cfs_quota_us", quota)
            kernel.write(f"{level}/cpu.cfs_period_us", 100000)
    stat = "nr_periods {}\nnr_throttled {}\nthrottled_usec 9"
    kernel.write(f"{folder}/cpu.stat", stat.format(0, 0))
    kernel.write("cgroup/job_7/cpu.stat", stat.format(100, 10))
    assert quota_cores(kernel.proc) == 1.5
    assert job_group(groups_of("cpu", kernel.proc)).folder.endswith("job_7")
    sampler = PressureSampler("n", kernel.proc)
    assert math.isnan(named(sampler)["cpu_throttled_ratio"])
    kernel.now += 1
    assert named(sampler)["cpu_throttled_ratio"] == 0
    kernel.now += 1
    kernel.write("cgroup/job_7/cpu.stat", stat.format(110, 13))
    assert named(sampler)["cpu_throttled_ratio"] == pytest.approx(0.3)
    assert sampler.facts()["n"]["quota_cores"] == 1.5


def test_the_fabric_is_the_sum_of_all_ports_in_bytes(kernel):
    words = "sys/class/infiniband/mlx5_{}/ports/1/counters"
    slingshot = "sys/class/cxi/cxi0/device/telemetry"

    def count(received, octets):
        for port in (0, 1):
            kernel.write(f"{words.format(port)}/port_rcv_data", received)
            kernel.write(f"{words.format(port)}/port_xmit_data", 0)
        kernel.write(f"{slingshot}/hni_sts_rx_ok_octets", f"{octets}@1700000000.5")
        kernel.write(f"{slingshot}/hni_sts_tx_ok_octets", "0@1700000000.5")

    count(100, 0)
    sampler = FabricSampler("n", kernel.sys)
    sampler.sample()
    kernel.now += 2
    count(300, 1000)
    assert named(sampler) == {
        "fabric_receive_bytes_per_second": (2 * 200 * 4 + 1000) / 2,
        "fabric_transmit_bytes_per_second": 0,
    }
    assert sampler.facts() == {"n": {"fabric_ports": 3}}
    kernel.now += 1
    count(0, 1000)
    assert named(sampler)["fabric_receive_bytes_per_second"] == 0  # the ports that were reset are left out
    assert "no InfiniBand" in FabricSampler("n", kernel.proc).probe()


def test_rapl_is_packages_and_memory_and_a_counter_that_wraps_goes_on(kernel):
    zones = {":0": "package-0", ":0:0": "core", ":0:1": "dram", ":1": "psys", "-mmio:0": "package-0"}

    def count(energy_uj):
        for zone, name in zones.items():
            kernel.write(f"sys/class/powercap/intel-rapl{zone}/name", name)
            kernel.write(f"sys/class/powercap/intel-rapl{zone}/energy_uj", energy_uj)
            kernel.write(f"sys/class/powercap/intel-rapl{zone}/max_energy_range_uj", 100_000_000)

    count(90_000_000)
    sampler = PowerSampler("n", kernel.sys)
    assert math.isnan(named(sampler)["cpu_power_watts"])
    kernel.now += 2
    count(10_000_000)
    assert named(sampler) == {"cpu_power_watts": 2 * 20 / 2}
    assert sampler.missing == {"node_power_watts": "no power meter of the node is shown here"}


def test_a_counter_of_energy_that_only_root_may_read_is_a_reason(kernel, monkeypatch):
    kernel.write("sys/class/powercap/intel-rapl:0/name", "package-0")
    (kernel.root / "sys/class/powercap/intel-rapl:0/energy_uj").symlink_to("/proc/1/task/1/no-such-permission")
    sampler = PowerSampler("n", kernel.sys)
    assert "the administrator can open it" in sampler.probe()
    assert sampler.metrics() == []


def test_grace_and_cray_tell_their_own_power(kernel):
    labels = ("Module Power Socket 0", "Grace Power Socket 0", "CPU Power Socket 0", "Module Power Socket 1")
    for index, label in enumerate(labels):
        kernel.write(f"sys/class/hwmon/hwmon{index}/name", "power_meter")
        kernel.write(f"sys/class/hwmon/hwmon{index}/device/power1_oem_info", label)
        kernel.write(f"sys/class/hwmon/hwmon{index}/device/power1_average", (index + 1) * 100_000_000)
    assert named(PowerSampler("n", kernel.sys)) == {"cpu_power_watts": 200, "node_power_watts": 500}
    kernel.write("sys/cray/pm_counters/energy", "1000 J 1700000000 us")
    sampler = PowerSampler("n", kernel.sys)
    sampler.sample()
    kernel.now += 4
    kernel.write("sys/cray/pm_counters/energy", "5000 J 1700000004 us")
    assert named(sampler)["node_power_watts"] == 1000


def look(*pids, ticks=0):
    return TreeLook(0, 0, 0, 0, len(pids), {pid: BusyProcess(ticks, 1) for pid in pids})


def test_cores_that_ranks_share_count_for_each_in_part(kernel, monkeypatch):
    masks = {10: {0, 1}, 20: {1, 2}, 21: {3}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: masks[pid])
    shares = CoreShares(kernel.proc)
    values = shares.sample({0: 10, 1: 20}, {0: look(10), 1: look(20, 21)}, 1.0)
    assert values == {0: [1.5], 1: [2.5]}
    masks[20] = {2}  # it pins its main thread: what was its own before still is
    assert shares.sample({0: 10, 1: 20}, {0: look(10), 1: look(20)}, 1.0) == {0: [1.5], 1: [2.5]}
    assert shares.facts(1) == {"cpus": [1, 2, 3]}


def test_a_quota_and_nodes_on_the_same_machine_shrink_all_shares(kernel, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    folder = kernel.version_2("job_7")
    kernel.write(f"{folder}/cpu.max", "100000 100000")
    roots, looks = {0: 10, 1: 20}, {0: look(10), 1: look(20)}
    assert CoreShares(kernel.proc).sample(roots, looks, 1.0) == {0: [0.5], 1: [0.5]}
    kernel.write(f"{folder}/cpu.max", "max 100000")
    assert CoreShares(kernel.proc, sharing=2).sample(roots, looks, 1.0) == {0: [1.0], 1: [1.0]}


THREADS = """
import os, sys, threading, time
ready = threading.Barrier(13)
def idle():
    ready.wait(); time.sleep(600)
for _ in range(12):
    threading.Thread(target=idle, daemon=True).start()
ready.wait()
sys.stdin.readline()
while True:
    pass
"""


def test_the_busiest_of_many_threads_is_found_and_few_are_read():
    process = subprocess.Popen([sys.executable, "-c", THREADS], stdin=subprocess.PIPE)
    sampler = rank_sampler(lambda: {0: process.pid}, 1.0)
    try:
        while len(os.listdir(f"/proc/{process.pid}/task")) < 13:
            os.sched_yield()
        assert math.isnan(named(sampler)["thread_busiest_ratio"])
        process.stdin.write(b"\n")
        process.stdin.flush()
        values = {}
        while not values.get("cpu_cores_ratio", 0) > 0.2:  # a busy machine gives it a core later
            _wait_for_ticks(process.pid, 30)
            values = named(sampler)
        # The two are read one after the other, and a busy machine stops this process in between.
        assert 0.5 < values["thread_busiest_ratio"] / values["cpu_cores_ratio"] < 2.0
        assert values["cpu_share_cores"] == pytest.approx(len(os.sched_getaffinity(0)))
        followed = sampler._parts[1]._known[process.pid]._followed
        assert 1 <= len(followed) <= 8
    finally:
        sampler.close()
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("real")
def test_a_process_that_shares_its_core_stands_in_the_queue_and_one_that_sleeps_does_not():
    core = {min(os.sched_getaffinity(0))}
    spin = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {core})\nwhile True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(3)]
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    samplers = {at: rank_sampler(lambda at=at: {0: at.pid}, 1.0) for at in (spinning[0], asleep)}
    try:
        for process in spinning:
            _wait_for_ticks(process.pid, 20)
        first = {at: named(sampler)["cpu_queued_ratio"] for at, sampler in samplers.items()}
        assert all(math.isnan(value) for value in first.values())
        _wait_for_ticks(spinning[0].pid, 40)
        assert named(samplers[spinning[0]])["cpu_queued_ratio"] > 0.4
        assert named(samplers[asleep])["cpu_queued_ratio"] < 0.1
    finally:
        for sampler in samplers.values():
            sampler.close()
        for process in (*spinning, asleep):
            process.kill()
            process.communicate()


def _wait_for_ticks(pid, ticks):
    """Wait until a process has used so much more CPU time."""

    def used():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    until = used() + ticks
    while used() < until:
        os.sched_yield()


def test_at_a_quick_cadence_threads_are_not_looked_at_and_the_reason_is_given():
    sampler = rank_sampler(lambda: {0: os.getpid()}, 0.1)
    values = named(sampler)
    assert "thread_busiest_ratio" not in values
    assert "at least 1 s apart" in sampler.missing["thread_busiest_ratio"]


def counter_of_page_faults():
    """Return a counter that every machine has (PERF_COUNT_SW_PAGE_FAULTS), or None and why not."""
    try:
        return Counter(os.getpid(), SOFTWARE, 2), ""
    except NoCounter as error:
        return None, str(error)


def test_counters_of_perf_follow_children_or_say_why_there_are_none():
    counter, why = counter_of_page_faults()
    if counter is None:
        assert "not allowed" in why
        return
    before = counter.read()
    child = os.fork()
    if child == 0:
        touched = bytearray(400 * os.sysconf("SC_PAGE_SIZE"))
        os._exit(len(touched) % 2)
    os.waitpid(child, 0)
    assert counter.read() - before >= 300
    counter.close()


def test_refused_counters_are_a_reason_and_no_metric(monkeypatch):
    monkeypatch.setattr(perf, "_CALLS", {})
    sampler = rank_sampler(lambda: {0: os.getpid()}, 1.0)
    assert "instructions_per_cycle" not in named(sampler)
    assert "are not known" in sampler.missing["instructions_per_cycle"]


class Counted(perf.Counter):
    """A counter whose values the test sets."""

    counts: dict[int, float | None] = {}

    def __init__(self, tid, kind, event):
        self.event = event

    def read(self):
        return self.counts[self.event]

    def close(self):
        """Nothing is open."""


def test_instructions_are_divided_by_the_cycles_of_the_interval(monkeypatch):
    monkeypatch.setattr(perf, "Counter", Counted)
    Counted.counts = {perf.CYCLES: 1000.0, perf.INSTRUCTIONS: 1000.0}
    part = perf.InstructionsPerCycle()
    with subprocess.Popen(["sleep", "60"]) as rank:  # this process may have more threads by now than are followed
        arguments = ({0: rank.pid}, {0: look(rank.pid)}, 1.0)
        assert math.isnan(part.sample(*arguments)[0][0])
        Counted.counts = {perf.CYCLES: 2000.0, perf.INSTRUCTIONS: 3500.0}
        assert part.sample(*arguments) == {0: [pytest.approx(2.5)]}
        assert len(part._ranks[0].counters) == 1
        Counted.counts = {perf.CYCLES: None, perf.INSTRUCTIONS: None}
        assert math.isnan(part.sample(*arguments)[0][0])
        assert "other programs" in part.missing["instructions_per_cycle"]
        rank.kill()


class Told:
    """A sampler with facts that the test sets."""

    def __init__(self):
        self.missing, self.about = {}, {"n": {"cpus": 2}}

    def facts(self):
        return self.about


def test_facts_are_told_when_they_change_and_reasons_when_they_last():
    told, sampler = DeviceFacts("n", "node"), Told()

    def news(moment, **more):
        record = told.news(sampler, moment, **more)
        return decode_json(next(iter_records(record))[1]) if record else None

    sampler.missing = {"pressure_cpu_ratio": "a rate needs two samples", "cpu_power_watts": "closed"}
    assert news(1.0)["devices"] == {"n": {"cpus": 2}}
    assert news(2.0)["missing"] == {"cpu_power_watts": "closed"}
    assert news(3.0) is None
    sampler.about["n"]["quota_cores"] = 1.0
    assert news(4.0)["devices"] == {"n": {"quota_cores": 1.0}}
    sampler.missing = {}
    assert news(5.0)["missing"] == {"cpu_power_watts": ""}
    assert news(6.0, remarks=["a driver hung", "a driver hung"])["remarks"] == ["a driver hung"]
    assert news(7.0, remarks=["a driver hung"]) is None
