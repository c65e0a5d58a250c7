"""Hardware under `cordee run`: what breaks while ranks run is a finding of the run, with node, ranks, device and what to do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cordee.core.findings import Finding
from cordee.testing.patience import PatientWait
from support.hosts.host_tree import HostTree
from support.hosts.kernel_log import append_kmsg, write_kmsg, xid_line
from support.nvml import FakeGpus

pytestmark = pytest.mark.usefixtures("real")

WAITS = "import os, time\nwhile not os.path.exists('over'): time.sleep(0.05)\n"
_LONGEST_S = 60.0


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose kernel log is written to."""
    tree = HostTree(tmp_path / "host")
    write_kmsg(tree.root, [(0.1, xid_line("0000:10:00", 48))])
    monkeypatch.setenv("CORDEE_HOST_ROOT", str(tree.root))
    return tree


def hardware(run):
    found = [Finding.from_document(event["finding"]) for event in run.events("finding")]
    return {f"{one.rule} {one.evidence['kind']}": one for one in found if one.rule.startswith("hardware-")}


def until(run, *kinds, again=lambda: None):
    """Wait until all of these kinds are findings of the run, and return what there is."""
    patience = PatientWait(_LONGEST_S)
    while not set(kinds) <= set(hardware(run)):
        assert not patience.over(), hardware(run)
        again()
        time.sleep(0.2)
    return hardware(run)


def end(run, folder):
    Path(folder, "over").touch()
    assert run.wait_end().state == "finished"
    return hardware(run)


def test_gpus_that_break_while_their_ranks_run_are_found_by_driver_and_kernel(
    job, start, host, fake_nvml, tmp_path, monkeypatch
):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml)
    fake.device(1, ecc_uncorrectable=7, throttle_reasons=0)
    for name, value in {**fake.env, "CUDA_VISIBLE_DEVICES": f"{fake.uuid(0)},{fake.uuid(1)}"}.items():
        monkeypatch.setenv(name, value)
    folder = job(WAITS, run="python train.py")
    run = start(folder, sampling__interval=0.1, sampling__gpus="nvml")

    def told_of_its_rank():
        one = hardware(run).get("hardware-xid XID 79")
        return one is not None and (one.evidence["device"], one.evidence["ranks"]) == (fake.uuid(1), [0])

    late = time.monotonic() + _LONGEST_S
    while (
        not told_of_its_rank()
    ):  # at first the driver has not been asked, or not which ranks run there; told again at the tenth line
        assert time.monotonic() < late, hardware(run)
        append_kmsg(host.root, xid_line("0000:11:00", 79))
        time.sleep(0.2)
    ecc = "hardware-gpu-memory uncorrectable-ecc-errors-since-the-watch-began"
    fake.device(1, ecc_uncorrectable=9, throttle_reasons=0x40)
    found = until(run, ecc, "hardware-throttled clocks")
    for one in found.values():
        assert one.evidence["device"] == fake.uuid(1)
        assert one.evidence["ranks"] == [0]
        assert one.evidence["nodes"] == [one.text.partition(":")[0]]
        assert one.next
    assert found[ecc].evidence["before"]["ecc_uncorrectable"] == 7
    assert "2 uncorrectable ECC errors" in found[ecc].text
    assert set(end(run, folder)) == set(found)


def test_two_nodes_of_one_machine_tell_what_its_kernel_says_once(job, start, host):
    folder = job(WAITS, run="python train.py", toml="[need]\nnodes = 2\n")
    run = start(folder, sampling__interval=0.1)
    line = "nvme nvme0: I/O 12 QID 3 timeout, aborting"
    until(run, "hardware-io timeout", again=lambda: append_kmsg(host.root, line))
    found = end(run, folder)
    assert list(found) == ["hardware-io timeout"]
    assert found["hardware-io timeout"].severity == "error"


def test_a_job_that_wants_no_watch_has_none(job, start, host):
    folder = job(WAITS, run="python train.py")
    run = start(folder, sampling__interval=0.1, sampling__hardware=False)
    late = time.monotonic() + _LONGEST_S
    while not run.events("ranks_started") and not run.events("attempt_started"):
        assert time.monotonic() < late
        time.sleep(0.1)
    append_kmsg(host.root, "nvme nvme0: I/O 12 QID 3 timeout, aborting")
    assert end(run, folder) == {}
