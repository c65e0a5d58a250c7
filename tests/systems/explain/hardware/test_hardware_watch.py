"""Faults of hardware while ranks run: each kind is told once, what was there before is not, and a flood costs little."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cordee.machine.gpus.model import Gpu, GpuLink
from cordee.systems.explain.node.hardware import watch
from cordee.systems.explain.node.hardware.kernel import KERNEL_RULES, KernelWords
from support.hosts.kernel_log import write_kmsg, xid_line

from .watched_node import WatchedNode

# What the kernel says of machines that are well, and of devices that are no hardware.
INNOCENT = (
    "systemd[1]: Started a session.",
    "veth1: renamed from eth0",
    "blk_update_request: I/O error, dev loop1, sector 0 op 0x0:(READ) flags 0x0",
    "blk_update_request: I/O error, dev fd0, sector 0",
    "nfs: server 10.0.0.1 OK",
    "amdgpu 0000:03:00.0: amdgpu: Will use PSP to load VCN firmware",
    "mlx5_core 0000:3b:00.0 ib0: Link up",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "NVRM: Xid (PCI:0000:10:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "mce: [Hardware Error]: Machine check events logged",
)
UUID = "GPU-1f000000-0000-0000-0000-000000000000"
SOUND = {
    "uuid": UUID,
    "pci_bus_id": "0000:10:00",
    "ecc_corrected": 5000,
    "ecc_uncorrectable": 7,
    "retired_pages": 3,
    "remap_pending": True,
    "throttle_reasons": ["idle"],
    "pcie_replays": 900,
    "recovery_action": "none",
}


def gpu(**values):
    return Gpu(0, **{**SOUND, "links": [GpuLink(0, True, {"replay": 40, "recovery": 2})], **values})


@pytest.fixture
def node(tmp_path):
    return WatchedNode(tmp_path, {3: 4711})


def of_rule(found, rule):
    return [one for one in found if one["rule"] == rule]


@pytest.mark.parametrize("rule", KERNEL_RULES, ids=lambda rule: f"{rule.rule}-{rule.kind}")
def test_each_kernel_line_of_the_table_is_found_by_its_own_rule(rule):
    assert next(one for one in KERNEL_RULES if one.pattern.search(rule.example)) is rule


def test_every_rule_of_the_watch_is_on_its_page():
    page = (Path(__file__).parents[4] / "docs" / "hardware.md").read_text()
    folder = Path(watch.__file__).parent
    rules = {rule for file in folder.glob("*.py") for rule in re.findall(r'"(hardware-[a-z-]+)"', file.read_text())}
    assert len(rules) >= 12
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in page] == []


def test_every_kind_of_kernel_line_is_one_finding_with_what_to_do(node):
    with node.watched():
        node.kernel_says(*(rule.example for rule in KERNEL_RULES))
        found = node.until(lambda found: len(found) >= len(KERNEL_RULES) - 3)
        node.kernel_says(*INNOCENT)
        assert node.look_often() == found
    assert {one["rule"] for one in found} == {rule.rule for rule in KERNEL_RULES}
    assert all(one["next"] and one["evidence"]["line"] for one in found)
    (oom,) = of_rule(found, "hardware-oom")
    assert (oom["severity"], oom["evidence"]["ranks"]) == ("error", [3])
    assert oom["text"] == "python: killed by the kernel for want of memory"


def test_an_xid_says_whose_fault_it_is_which_gpu_and_which_ranks(node):
    with node.watched():
        node.driver_says(gpu(), ranks={UUID: [3]})
        node.kernel_says(xid_line("0000:10:00", 31), xid_line("0000:10:00", 79), xid_line("0000:99:00", 999))
        found = node.until(lambda found: len(found) == 3)
    program, bus, unknown = found
    assert program["severity"] == "warn"
    assert "mostly the program's own fault" in program["text"]
    assert bus["severity"] == "error"
    assert bus["text"].startswith(f"GPU 0 ({UUID}): XID 79")
    assert bus["evidence"]["device"] == UUID
    assert bus["evidence"]["ranks"] == [3]
    assert bus["next"].startswith("reboot the node")
    assert unknown["severity"] == "warn"
    assert unknown["evidence"]["device"] == "0000:99:00"


def test_the_same_again_is_counted_and_told_again_only_at_ten_times_as_many(node):
    with node.watched():
        levels = []
        for times in (1, 8, 1, 89):
            node.kernel_says(*[xid_line("0000:10:00", 13)] * times)
            node.look_often()
            levels.append(node.levels())
        (found,) = node.found()
    assert [next(iter(level.values())) for level in levels] == [101, 101, 102, 102]
    assert "(10 times since " in found["text"]
    assert found["evidence"]["count"] == 10


def test_a_flood_of_kernel_lines_is_read_in_part_and_its_causes_are_bounded(node):
    with node.watched():
        node.kernel_says(*(f"INFO: task job{number}:1 blocked for more than 120 seconds." for number in range(20_000)))
        found = node.until(lambda found: bool(of_rule(found, "unwatched-hardware")))
        read = node.look_often()
        assert len(read) <= 65
        assert len(read) == len(found)
        node.kernel_says("NETDEV WATCHDOG: ib0 (mlx5_core): transmit queue 3 timed out")
        node.look_often()
    assert any("more than 64 causes" in one["text"] or "passed over" in one["text"] for one in found)


def test_what_stood_in_the_log_before_is_not_told(node):
    write_kmsg(node.host.root, [(0.1, xid_line("0000:10:00", 79)), (0.1, "NETDEV WATCHDOG: ib0 (x): timed out")])
    with node.watched():
        assert node.look_often() == []


def test_a_log_that_was_rotated_or_emptied_is_read_on(node):
    with node.watched():
        path = node.host.root / "dev/kmsg"
        path.rename(path.with_name("kmsg.1"))
        path.write_text("")
        node.kernel_says("nvme nvme0: I/O 12 QID 3 timeout, aborting")
        (found,) = node.until(bool)
    assert found["rule"] == "hardware-io"


def test_a_program_of_another_job_that_the_kernel_killed_is_not_ours():
    words = KernelWords("0::/slurm/uid_1/job_42/step_0/task_0\n")
    killed = "Memory cgroup out of memory: Killed process {} (python) total-vm:1kB"
    about = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,oom_memcg={0},task_memcg={0},task=python,pid={1},uid=1"
    lines = [about.format("/slurm/uid_2/job_43/step_0", 5), killed.format(5)]
    lines += [about.format("/slurm/uid_1/job_42/step_3", 6), killed.format(6)]
    (seen,) = words.read(lines, {}, {"6": [0]})
    assert seen.facts["ranks"] == [0]


def test_counters_that_were_high_before_are_not_told_and_what_grows_is(node):
    with node.watched():
        node.driver_says(gpu(), ranks={UUID: [3]})
        node.driver_says(gpu(), ranks={UUID: [3]})
        assert node.look_often() == []
        worse = gpu(
            ecc_uncorrectable=9,
            retired_pages=4,
            retired_pending=True,
            pcie_replays=2000,
            recovery_action="drain and reset",
            links=[GpuLink(0, False, {"replay": 45, "recovery": 2})],
        )
        node.driver_says(worse, ranks={UUID: [3]})
        found = node.look_often()
    assert {one["rule"] for one in found} == {"hardware-gpu", "hardware-gpu-memory", "hardware-nvlink", "hardware-pcie"}
    assert all(one["evidence"]["ranks"] == [3] and one["evidence"]["device"] == UUID for one in found)
    memory = {one["evidence"]["kind"]: one for one in of_rule(found, "hardware-gpu-memory")}
    assert set(memory) == {
        "uncorrectable-ecc-errors-since-the-watch-began",
        "page-retirement-is-pending-it-must-be-reset",
        "repaired",
    }
    ecc = memory["uncorrectable-ecc-errors-since-the-watch-began"]
    assert ecc["text"].endswith("2 uncorrectable ECC errors since the watch began")
    assert ecc["severity"] == "error"
    assert ecc["evidence"]["before"]["ecc_uncorrectable"] == 7
    assert ecc["evidence"]["after"]["ecc_uncorrectable"] == 9
    texts = sorted(one["text"].partition(": ")[2] for one in of_rule(found, "hardware-nvlink"))
    assert texts == ["NVLink 0 is down", "NVLink 0: replay +5 since the watch began"]


def test_low_clocks_are_told_once_they_last_and_a_lost_gpu_at_once(node):
    with node.watched():
        hot = gpu(throttle_reasons=["hardware thermal"])
        for told in (gpu(), hot, gpu(), hot):
            node.driver_says(told)
        assert node.found() == []
        node.driver_says(hot)
        (throttled,) = node.found()
        node.driver_says(Gpu(0, lost="GPU is lost"))
        lost = node.found()[-1]
    assert throttled["rule"] == "hardware-throttled"
    assert "slowed it down for heat" in throttled["text"]
    assert lost["rule"] == "hardware-gpu"
    assert lost["text"] == f"GPU 0 ({UUID}): does not answer: GPU is lost"


def test_ports_memory_and_processors_are_told_by_what_they_have_grown(node):
    def heat(times):
        node.host.write("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", str(times))

    node.host.infiniband("mlx5_0", symbol_error=500, link_downed=4)
    node.host.infiniband("mlx5_1", symbol_error=500)
    node.host.memory_module("mc0", 0, corrected=5000, uncorrected=3)
    node.host.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0")
    heat(9)
    with node.watched():
        assert node.look_often() == []
        node.host.infiniband("mlx5_0", symbol_error=512, link_downed=5, state="1: DOWN")
        node.host.memory_module("mc0", 0, corrected=5201, uncorrected=4)
        heat(12)
        found = node.until(lambda found: len(found) == 6)
    texts = [f"{one['severity']} {one['rule']} {one['text']}" for one in found]
    assert any(text.startswith("error hardware-link mlx5_0/1: is down: DOWN") for text in texts)
    assert "error hardware-link mlx5_0/1: went down 1 times since the watch began" in texts
    assert "warn hardware-link mlx5_0/1: symbol_error +12 since the watch began" in texts
    assert "error hardware-memory mc0 dimm0 (P0_DIMM_A1): 1 uncorrected errors since the watch began" in texts
    assert "warn hardware-memory mc0 dimm0 (P0_DIMM_A1): 201 corrected errors since the watch began" in texts
    assert (
        "warn hardware-throttled processor 0: its clocks were held down for heat 3 times since the watch began" in texts
    )


def test_a_closed_kernel_log_is_an_info_where_there_is_more_than_a_desk(node):
    os.unlink(node.host.root / "dev/kmsg")
    with node.watched():
        assert node.look_often() == []
    node.host.infiniband("mlx5_0")
    with node.watched():
        (found,) = node.until(bool)
        assert node.look_often() == [found]
    assert (found["severity"], found["rule"]) == ("info", "unwatched-hardware")
    assert "dev/kmsg: No such file" in found["text"]
    assert "dmesg_restrict" in found["next"]


def test_xids_that_the_driver_tells_count_only_where_the_kernel_log_is_closed(node):
    with node.watched():
        node.driver_says(gpu(), ranks={UUID: [3]}, xids=[(UUID, 79)])
        assert node.look_often() == []
    os.unlink(node.host.root / "dev/kmsg")
    node.host.infiniband("mlx5_0")
    with node.watched():
        node.driver_says(gpu(), ranks={UUID: [3]})
        node.look_often()
        node.driver_says(ranks={UUID: [3]}, xids=[(UUID, 79)])
        (_, found) = node.look_often()
    assert found["text"] == f"GPU 0 ({UUID}): XID 79, GPU has fallen off the bus"
    assert found["evidence"]["ranks"] == [3]
    assert found["evidence"]["pci_bus_id"] == "0000:10:00"


@pytest.mark.usefixtures("real")
def test_a_file_system_that_hangs_is_told_and_whoever_asked_is_left_behind(node, tmp_path, monkeypatch):
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "stat").write_text("#!/bin/sh\nexec sleep 1000\n")
    (commands / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setattr(watch, "_MOUNT_PATIENCE_S", 0.3)
    node.host.mount(str(tmp_path), "lustre", "10.0.0.1@o2ib:/scratch")
    with node.watched():
        (found,) = node.until(bool)
    assert found["rule"] == "hardware-file-system"
    assert found["severity"] == "warn"
    assert found["text"].endswith("(lustre) does not answer within 0 s")
    assert found["evidence"]["device"] == "10.0.0.1@o2ib:/scratch"


def test_nothing_is_watched_where_the_job_says_so(tmp_path):
    node = WatchedNode(tmp_path, hardware=False)
    with node.watched():
        node.kernel_says(xid_line("0000:10:00", 79))
        assert node.look_often() == []
