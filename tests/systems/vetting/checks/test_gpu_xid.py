"""XIDs in a host's kernel log: whose fault they are, and which GPU is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordee.machine.gpus.xid import XIDS
from support.hosts.kernel_log import write_kmsg, write_log_file, xid_line
from support.nvml import FakeGpus

from .gpus import ask

GPU_1 = "0000:11:00"


@pytest.fixture
def gpus(tmp_path: Path, fake_nvml: Path) -> FakeGpus:
    return FakeGpus(tmp_path / "fake", count=4, library=fake_nvml)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path / "host"


def look(gpus: FakeGpus | None, host: Path, **parameters: Any) -> dict[str, Any]:
    return ask("gpu.xid", gpus, parameters, root=str(host))


@pytest.mark.parametrize("number", [48, 63, 64, 74, 79, 94, 95, 119, 120, 140, 145])
def test_an_xid_of_the_hardware_fails_and_names_its_gpu(number, gpus, host):
    write_kmsg(host, [(2.5, xid_line(GPU_1, number, "what the driver says"))])
    result = look(gpus, host)
    assert result["status"] == "fail"
    assert (
        f"GPU 1 ({gpus.uuid(1)}): XID {number}, {XIDS[number].name}, 2.5 h ago: what the driver says"
        in result["evidence"]
    )
    assert result["facts"]["xids"] == [number]
    assert result["facts"]["scope"] in ("device", "link")
    assert [(entry["device"], entry["uuid"]) for entry in result["facts"]["devices"]] == [(1, gpus.uuid(1))]


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_an_xid_of_a_program_is_a_warning_about_the_user(number, gpus, host):
    write_kmsg(host, [(1, xid_line(GPU_1, number))])
    result = look(gpus, host)
    assert (result["status"], result["value"], result["facts"]["scope"]) == ("warn", 0, "user")
    assert f"XID {number}" in result["evidence"]


def test_an_xid_that_is_not_in_the_table_is_warned_of(gpus, host):
    write_kmsg(host, [(1, xid_line(GPU_1, 999))])
    result = look(gpus, host)
    assert result["status"] == "warn"
    assert "look it up" in result["evidence"]


def test_a_log_without_xids_passes_and_says_how_far_it_goes(gpus, host):
    write_kmsg(host, [(1, "eth0: link up"), (0.5, "NVRM: loading NVIDIA UNIX Open Kernel Module  550.54.15")])
    result = look(gpus, host)
    assert result["status"] == "pass"
    assert "no XID in the last 24.0 h" in result["evidence"]
    assert result["facts"]["xids"] == []


def test_a_log_that_was_overwritten_says_so(gpus, host):
    write_kmsg(host, [(3, "the oldest line")])
    lines = (host / "dev" / "kmsg").read_text().splitlines(keepends=True)
    (host / "dev" / "kmsg").write_text("".join(lines[1:]))
    assert "the last 3.0 h, the log goes no further back" in look(gpus, host)["evidence"]


def test_old_xids_and_those_of_an_earlier_boot_do_not_count(gpus, host):
    write_kmsg(host, [(30, xid_line(GPU_1, 79))])
    assert look(gpus, host)["status"] == "pass"
    assert look(gpus, host, hours=48)["status"] == "fail"
    write_kmsg(host, [], uptime_s=3600)
    (host / "dev" / "kmsg").unlink()
    write_log_file(host, [(2, xid_line(GPU_1, 79)), (0.5, "NVRM: loading")])
    result = look(gpus, host)
    assert result["status"] == "pass"
    assert "since the node was started" in result["evidence"]


def test_repeated_xids_are_counted_and_the_gravest_comes_first(gpus, host):
    lines = [(hours, xid_line(GPU_1, 31)) for hours in (5, 4, 3)]
    write_kmsg(host, [*lines, (2, xid_line("0000:13:00", 79)), (1, xid_line("0000:10:00", 31))])
    result = look(gpus, host)
    assert result["evidence"].startswith(f"GPU 3 ({gpus.uuid(3)}): XID 79")
    assert "XID 31, GPU memory page fault, 3 times, 3.0 h ago" in result["evidence"]
    assert result["facts"]["xids"] == [31, 79]
    assert result["facts"]["scope"] == "device"


def test_a_gpu_that_the_driver_shows_no_more_is_named_by_its_address(gpus, host):
    write_kmsg(host, [(1, xid_line("0000:9A:00", 79, "GPU has fallen off the bus."))])
    result = look(gpus, host)
    assert result["status"] == "fail"
    assert "GPU at 0000:9a:00: XID 79" in result["evidence"]


def test_a_gpu_that_is_lost_is_told_by_its_xid(gpus, host):
    gpus.error("nvmlDeviceGetTemperature", 15, device=1)
    write_kmsg(host, [(1, xid_line(GPU_1, 79))])
    assert f"GPU 1 ({gpus.uuid(1)}): XID 79" in look(gpus, host)["evidence"]


def test_xids_are_found_though_the_driver_does_not_answer(gpus, host):
    write_kmsg(host, [(1, xid_line(GPU_1, 119))])
    gpus.error("nvmlInitWithFlags", 999)
    assert "GPU at 0000:11:00: XID 119" in look(gpus, host)["evidence"]
    assert look(None, host)["status"] == "fail"


def test_errors_of_a_switch_are_grave_when_they_are_fatal(gpus, host):
    write_kmsg(
        host, [(1, "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error")]
    )
    assert look(gpus, host)["status"] == "warn"
    write_kmsg(host, [(1, "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")])
    result = look(gpus, host)
    assert (result["status"], result["facts"]["scope"], result["facts"]["sxids"]) == ("fail", "link", [20034])
    assert "NVSwitch at 0000:c4:00: SXID 20034" in result["evidence"]


def test_a_recovery_that_is_over_is_no_fault(gpus, host):
    write_kmsg(
        host, [(1, xid_line(GPU_1, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"))]
    )
    assert look(gpus, host)["status"] == "pass"
    write_kmsg(
        host, [(1, xid_line(GPU_1, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"))]
    )
    assert look(gpus, host)["status"] == "fail"


@pytest.mark.parametrize("iso", [True, False])
def test_a_log_file_does_where_the_kernel_s_own_is_closed(iso, gpus, host):
    write_log_file(host, [(30, xid_line(GPU_1, 48)), (2, xid_line(GPU_1, 79))], iso=iso)
    result = look(gpus, host)
    assert result["facts"]["xids"] == [79]
    assert result["facts"]["source"].endswith("var/log/kern.log")


def test_a_closed_log_is_unknown_and_says_what_was_tried(gpus, host):
    host.mkdir()
    result = look(gpus, host)
    assert (result["status"], result["cause"]) == ("unknown", "closed")
    assert "dev/kmsg: No such file or directory" in result["evidence"]
    assert "var/log/kern.log" in result["evidence"]


def test_a_node_without_gpus_has_nothing_to_look_for(host):
    write_kmsg(host, [])
    result = look(None, host)
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert look(None, host, gpus_expected=0)["status"] == "skip"
