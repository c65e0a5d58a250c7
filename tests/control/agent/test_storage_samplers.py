"""Rates of shared file systems and of the job's own disk traffic, on invented kernels and on this one."""

from __future__ import annotations

import math
import os

import pytest

from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.node.samplers import _base
from cordee.telemetry.node.samplers.storage.disks import JobDiskSampler
from cordee.telemetry.node.samplers.storage.sampler import StorageSampler
from support.clocks import give_clock
from support.hosts.storage_tree import COUNTS, LUSTRE_2_12, LUSTRE_2_15, StorageTree

LUSTRE = ("10.1.0.1@o2ib:10.1.0.2@o2ib:/scratch", "/scratch")


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    kernel = StorageTree(tmp_path)
    kernel.now = 100.0
    give_clock(monkeypatch, "cordee.telemetry.node.samplers", monotonic=lambda: kernel.now)
    return kernel


@pytest.fixture
def sampler(kernel):
    sampler = StorageSampler("n", kernel.proc, kernel.sys)
    assert sampler.probe() is None
    yield sampler
    sampler.close()


def named(sampler):
    """Return the values by their short names: the sample comes first, since it finds the mounts."""
    values = sampler.sample()
    names = [metric["name"] for metric in sampler.metrics()]
    return {name.removeprefix("storage_"): value for name, value in zip(names, values, strict=True)}


def more(**added):
    return {name: COUNTS[name] + amount for name, amount in added.items()}


GROWN = {"reads": 4, "writes": 8, "opens": 6, "stats": 20, "read_bytes": 4096, "write_bytes": 8192}


@pytest.mark.parametrize(
    ("form", "folder"),
    [(LUSTRE_2_12, "proc/fs/lustre"), (LUSTRE_2_15, "sys/kernel/debug/lustre"), (LUSTRE_2_15, "sys/fs/lustre")],
)
def test_lustres_counters_become_rates_wherever_its_version_keeps_them(kernel, sampler, form, folder):
    kernel.mount(LUSTRE[1], "lustre", LUSTRE[0])
    kernel.lustre("scratch-ffff9d3c4a1b2800", form, folder)
    first = named(sampler)
    assert all(math.isnan(value) for value in first.values())
    assert sampler.missing["storage_read_bytes_per_second"] == _base.FIRST
    kernel.now += 2
    kernel.lustre("scratch-ffff9d3c4a1b2800", form, folder, **more(**GROWN, busy_us=3_000_000))
    values = named(sampler)
    requests = values.pop("requests")
    assert values == {
        "read_bytes_per_second": 2048,
        "write_bytes_per_second": 4096,
        "read_operations_per_second": 2,
        "write_operations_per_second": 4,
        "open_operations_per_second": 3,
        "metadata_operations_per_second": 16,
    }
    if form == LUSTRE_2_12:
        assert math.isnan(requests)
        assert "lustre" in sampler.missing["storage_requests"]
    else:
        assert requests == 1.5
        assert sampler.missing == {}
    assert "Lustre" in sampler.metrics()[0]["source"]
    assert sampler.facts()["n"]["storage"] == [
        {"mount": "/scratch", "type": "lustre", "from": LUSTRE[0], "counted": True, "reason": ""}
    ]


def test_nfs_counts_what_servers_moved_and_time_in_requests(kernel, sampler):
    kernel.nfs("/home")
    named(sampler)
    kernel.now += 2
    kernel.nfs("/home", **more(**GROWN, read_ms=1000, write_ms=3000))
    assert named(sampler) == {
        "read_bytes_per_second": 2048,
        "write_bytes_per_second": 4096,
        "read_operations_per_second": 2,
        "write_operations_per_second": 4,
        "open_operations_per_second": 3,
        "metadata_operations_per_second": 10,
        "requests": 2,
    }
    assert sampler.missing == {}


def test_bind_mounts_of_one_client_count_once_and_others_add_up(kernel, sampler):
    for point, device in (("/home", "0:45"), ("/users", "0:45"), ("/apps", "0:46")):
        kernel.nfs(point, device=device)
    kernel.mount(LUSTRE[1], "lustre", LUSTRE[0])
    kernel.lustre("scratch-ffff1")
    named(sampler)
    kernel.now += 1
    for point, device in (("/home", "0:45"), ("/users", "0:45"), ("/apps", "0:46")):
        kernel.nfs(point, device=device, **more(read_bytes=100))
    kernel.lustre("scratch-ffff1", **more(read_bytes=1000))
    assert named(sampler)["read_bytes_per_second"] == 1200
    assert "Lustre" in sampler.metrics()[0]["source"]
    assert "NFS" in sampler.metrics()[0]["source"]


def test_a_counter_that_went_back_is_left_out_of_one_sample_and_the_others_stay(kernel, sampler):
    kernel.nfs("/home", device="0:45")
    kernel.nfs("/apps", device="0:46")
    named(sampler)
    kernel.now += 1
    kernel.nfs("/home", device="0:45", read_bytes=5)
    kernel.nfs("/apps", device="0:46", **more(read_bytes=10))
    assert named(sampler)["read_bytes_per_second"] == 10
    kernel.now += 1
    kernel.nfs("/home", device="0:45", read_bytes=8)
    assert named(sampler)["read_bytes_per_second"] == 3


def test_without_shared_file_systems_there_is_a_reason_and_a_mount_that_comes_later_is_counted(kernel, sampler):
    assert named(sampler) == {}
    assert set(sampler.missing.values()) == {"this node mounts no Lustre and no NFS"}
    assert set(sampler.missing) == {name for name in METRICS if name.startswith("storage_")}
    kernel.nfs("/home")
    kernel.now += 30
    assert math.isnan(named(sampler)["read_bytes_per_second"])
    kernel.now += 1
    kernel.nfs("/home", **more(read_bytes=10))
    assert named(sampler)["read_bytes_per_second"] == 10


def test_a_mount_that_goes_leaves_a_gap_with_its_reason(kernel, sampler):
    kernel.nfs("/home")
    named(sampler)
    kernel.unmount("/home")
    kernel.now += 1
    assert all(math.isnan(value) for value in named(sampler).values())
    assert "mounts no" in sampler.missing["storage_requests"]


def test_lustre_whose_counters_are_roots_says_what_an_administrator_can_do(kernel, sampler):
    kernel.mount(LUSTRE[1], "lustre", LUSTRE[0])
    assert named(sampler) == {}
    reason = sampler.missing["storage_read_bytes_per_second"]
    assert "/scratch" in reason
    assert "remount,mode=0755" in reason
    (about,) = sampler.facts()["n"]["storage"]
    assert about["counted"] is False
    assert about["reason"] == reason
    kernel.nfs("/home")
    kernel.now += 30
    named(sampler)
    kernel.now += 1
    assert named(sampler)["read_bytes_per_second"] == 0
    assert [about["counted"] for about in sampler.facts()["n"]["storage"]] == [False, True]


def test_other_shared_file_systems_are_named_and_not_counted(kernel, sampler):
    kernel.mount("/gpfs", "gpfs", "gpfs0")
    named(sampler)
    assert "gpfs" in sampler.missing["storage_requests"]
    assert sampler.facts()["n"]["storage"][0]["reason"] == "gpfs is not counted"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense\n",
        "read_bytes\n",
        "read_bytes x samples [bytes] 1 2 3\n",
        "read_bytes 5 samples [bytes]\nopen\n\x00\xff",
    ],
)
def test_what_is_no_statistic_never_raises(kernel, sampler, text):
    kernel.mount(LUSTRE[1], "lustre", LUSTRE[0])
    kernel.write("sys/kernel/debug/lustre/llite/scratch-ffff1/stats", text)
    kernel.mount(
        "/home", "nfs4", "filer:/home", statistics=f"device filer:/home mounted on /home with fstype nfs4\n{text}"
    )
    for _ in range(2):
        kernel.now += 1
        assert len(sampler.sample()) == len(sampler.metrics()) == 7
    assert not any(value < 0 for value in sampler.sample())


def test_mount_points_with_spaces_keep_their_names(kernel, sampler):
    kernel.nfs(r"/home\040of\040all")
    named(sampler)
    assert sampler.facts()["n"]["storage"][0]["mount"] == "/home of all"


def test_no_mount_point_is_ever_touched_so_that_one_that_hangs_holds_up_nothing(kernel, sampler, monkeypatch):
    kernel.nfs("/home")
    kernel.mount(LUSTRE[1], "lustre", LUSTRE[0])
    kernel.lustre("scratch-ffff1")

    def watched(function):
        def touch(path, *more, **options):
            assert not str(path).startswith(("/home", "/scratch"))
            return function(path, *more, **options)

        return touch

    for name in ("stat", "statvfs", "lstat", "open", "listdir", "scandir", "access"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    for _ in range(2):
        kernel.now += 1
        assert len(sampler.sample()) == 7
    assert sampler.missing == {}


def of_job(kernel, version):
    if version == 2:
        kernel.write("proc/self/cgroup", "0::/system.slice/job_7/step_0\n")
        kernel.write("proc/self/mountinfo", f"35 31 0:32 / {kernel.root}/cgroup rw - cgroup2 cgroup2 rw\n")
        for name in ("system.slice/job_7", "system.slice/job_7/step_0"):
            kernel.write(f"cgroup/{name}/cgroup.events", "populated 1\n")
        return "cgroup/system.slice/job_7/io.stat"
    kernel.write("proc/self/cgroup", "4:blkio:/slurm/job_7/step_0\n0::/\n")
    kernel.write("proc/self/mountinfo", f"35 31 0:32 / {kernel.root}/blkio rw - cgroup cgroup rw,blkio\n")
    return "blkio/slurm/job_7/blkio.throttle.io_service_bytes_recursive"


VERSION_2 = "8:0 rbytes={read} wbytes={written} rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=9 wbytes={written} rios=1\n"
VERSION_1 = "8:0 Read {read}\n8:0 Write {written}\n8:0 Total 9\n253:0 Write {written}\nTotal 99\n"


@pytest.mark.parametrize(("version", "form"), [(2, VERSION_2), (1, VERSION_1)])
def test_the_jobs_cgroup_counts_its_disk_traffic_and_stacked_devices_once(kernel, version, form):
    file = of_job(kernel, version)
    kernel.write(file, form.format(read=0, written=0))
    kernel.write("sys/dev/block/253:0/slaves/sda/size", "1\n")
    sampler = JobDiskSampler("n", kernel.proc, kernel.sys)
    assert sampler.probe() is None
    assert all(math.isnan(value) for value in sampler.sample())
    kernel.now += 2
    kernel.write(file, form.format(read=1000, written=500))
    assert sampler.sample() == [500, 250]
    kernel.now += 2
    kernel.write(file, "")
    assert all(math.isnan(value) for value in sampler.sample())
    assert sampler.facts()["n"]["job_disk_of"].endswith("job_7")
    sampler.close()


def test_a_job_without_a_cgroup_of_its_own_is_not_measured_by_the_machines(kernel):
    kernel.write("proc/self/cgroup", "0::/\n")
    kernel.write("proc/self/mountinfo", f"35 31 0:32 / {kernel.root}/cgroup rw - cgroup2 cgroup2 rw\n")
    kernel.write("cgroup/io.stat", VERSION_2.format(read=1, written=1))
    assert "no cgroup of its own" in (JobDiskSampler("n", kernel.proc, kernel.sys).probe() or "")
