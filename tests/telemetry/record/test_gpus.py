from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import cordee
from cordee.machine.gpus.presence import GPU_VARIABLES
from cordee.telemetry.node.record import gpus as module
from cordee.telemetry.node.record.binding import bind_near_gpu
from cordee.telemetry.node.record.gpus import Claim, GpuThread
from cordee.telemetry.node.record.start import devices_to_open, told_of_gpus
from support.nvml import FakeGpus
from support.recordings.recording import gpu_uuid, made_node, write_recording

BUSY = {1: 90.0, 2: 80.0, 3: 40.0, 5: 60.0, 10: 30.0}
UNTIL_TOLD = ["sh", "-c", "read line"]


@pytest.fixture
def fake(tmp_path, fake_nvml) -> FakeGpus:
    return FakeGpus(tmp_path / "fake", count=2, library=fake_nvml).gpm(0, BUSY).gpm(1, BUSY)


def test_gpus_are_sampled_by_uuid_and_only_those_of_the_command(record, recording, fake):
    mine = fake.uuid(1)
    env = {**fake.env, "CUDA_VISIBLE_DEVICES": mine}
    process = record("-q", "--interval", "200ms", "--", *UNTIL_TOLD, env=env)
    recording.sampled("gpu-0.2s")
    process.communicate("\n")
    (recorder,) = recording.closed()
    assert recorder.sources == ["proc", "nvml-gpm"]
    assert recorder.ranks[0].devices == [mine]
    run = cordee.open_run(recording.root)
    grid = run.grid("gpu-0.2s", ["gpu_sm_ratio"])
    assert grid.devices == [mine]
    assert grid.values[0, -1, 0] == pytest.approx(0.8)
    (facts,) = run.facts("gpu").values()
    assert facts["devices"][mine]["ranks"] == [0]


def test_gpus_that_nobody_can_attribute_are_not_sampled_and_the_recording_says_why(record, recording, fake):
    env = {**fake.env, "SLURM_JOB_ID": "7"}
    process = record("-q", "--", *UNTIL_TOLD, env=env)
    recording.until(lambda found: found and found[0].remarks)
    process.communicate("\n")
    (recorder,) = recording.closed()
    assert recorder.sources == ["proc"]
    assert "whose they are cannot be told: Slurm names no GPUs" in recorder.refused["gpus"]
    assert recorder.remarks[0].startswith(f"GPUs of {recorder.node} were not sampled: whose they are cannot be told")


def test_a_source_that_was_asked_for_and_cannot_measure_is_told_in_the_score(record, recording):
    process = record("-q", "--source", "dcgm", "--", *UNTIL_TOLD)
    recording.until(lambda found: found and found[0].remarks)
    process.communicate("\n")
    (recorder,) = recording.closed()
    assert [text.partition(": dcgm: ")[0] for text in recorder.remarks] == [f"GPUs of {recorder.node} were not sampled"]


def test_a_recording_is_played_again_as_a_source(record, recording, tmp_path):
    used = np.full((5, 1), 0.7)
    write_recording(tmp_path / "old", [made_node(0, 1, {"gpu_sm_ratio": used, "gpu_graphics_ratio": used})])
    process = record("-q", "--source", f"replay:{tmp_path / 'old'}", "--interval", "200ms", "--", *UNTIL_TOLD)
    recording.sampled("gpu-0.2s")
    process.communicate("\n")
    (recorder,) = recording.closed()
    assert recorder.sources == ["proc", "replay"]
    grid = cordee.open_run(recording.root).grid("gpu-0.2s", ["gpu_sm_ratio"])
    assert grid.devices == [gpu_uuid(0, 0)]
    assert grid.values[0, 0, 0] == pytest.approx(0.7)


def test_a_recording_made_by_something_else_is_not_added_to(record, tmp_path):
    write_recording(tmp_path / "old", [made_node(0, 1, {"gpu_sm_ratio": np.full((5, 1), 0.7)})])
    process = record("-o", str(tmp_path / "old"), "--", "true")
    assert "holds another recording" in process.communicate()[1]
    assert process.returncode == 125
    assert not (tmp_path / "old/recorders/start.json").exists()


def test_a_driver_that_hangs_holds_up_no_other_sample(record, recording, fake):
    fake.hang("nvmlDeviceGetCount_v2")
    process = record("-q", "--interval", "200ms", "--", *UNTIL_TOLD, env=fake.env)
    recording.sampled("rank-0.2s")
    process.communicate("\n")
    (recorder,) = recording.closed()
    assert recorder.sources == ["proc"]
    assert recorder.refused == {"gpus": "their driver had not answered when the command ended"}


def test_a_silent_driver_is_told_of_after_a_while(monkeypatch):
    monkeypatch.setattr(module, "_SILENT_S", 0.0)
    thread = GpuThread("n1", "auto", 0.001)
    monkeypatch.setattr(GpuThread, "_open", lambda self, claims, news: time.sleep(30))
    thread.claims([Claim(0, os.getpid(), {})])
    deadline = time.monotonic() + 60
    while not thread.silent_s:
        assert time.monotonic() < deadline
    thread.sample()  # while the driver hangs nothing is piled up
    assert thread._pending == 1
    assert [news.refused for news in thread.last()] == [
        {"gpus": "their driver had not answered when the command ended"}
    ]


def test_a_sample_that_came_after_one_was_asked_for_news_costs_none(monkeypatch):
    done = threading.Semaphore(0)
    monkeypatch.setattr(GpuThread, "_open", lambda self, claims, news: None)
    monkeypatch.setattr(GpuThread, "_sampled", lambda self: b"a sample")
    thread = GpuThread("n1", "auto", 1.0)
    put = thread._news.put
    monkeypatch.setattr(
        thread,
        "_news",
        SimpleNamespace(put=lambda news: (put(news), done.release()), get_nowait=thread._news.get_nowait),
    )
    thread.claims([])
    found = []
    for _ in range(5):
        assert done.acquire(timeout=10)
        thread.sample()
        found += thread.news()
    assert done.acquire(timeout=10)
    assert [news.records for news in [*found, *thread.news()]].count(b"a sample") == 5


def test_a_library_that_misbehaves_is_a_remark(monkeypatch):
    def fail(self, claims, news):
        raise TypeError("no such thing")

    monkeypatch.setattr(GpuThread, "_open", fail)
    thread = GpuThread("n1", "auto", 1.0)
    thread.claims([])
    (news,) = thread.last()
    assert news.remarks == ["GPUs of n1 could not be sampled: TypeError: no such thing"]


def test_all_that_tells_of_gpus_is_registered_and_no_secret_is():
    environ = dict.fromkeys([*GPU_VARIABLES, "SLURM_JWT", "AWS_SECRET_ACCESS_KEY"], "x")
    assert sorted(told_of_gpus(environ)) == sorted(GPU_VARIABLES)


def test_processes_that_may_open_other_gpus_are_told_apart(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "kfd", "nvidia-caps/nvidia-cap2", "dri/card0", "dri/renderD128"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    opened = [name.removeprefix(f"{tmp_path}/") for name in devices_to_open(str(tmp_path))]
    assert opened == ["kfd", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap2", "dri/renderD128"]
    assert devices_to_open(str(tmp_path / "nowhere")) == []


@pytest.fixture
def machine(tmp_path):
    """A /proc, /sys and /dev with a GPU near CPU 1 and one near CPU 0, which Slurm keeps from us."""
    for index, (address, cpus) in enumerate([("0000:18:00.0", "1"), ("0000:3a:00.0", "0")]):
        gpu = tmp_path / "proc/driver/nvidia/gpus" / address
        gpu.mkdir(parents=True)
        told = f"Model: \t NVIDIA H100\nGPU UUID: \t GPU-{index}\nDevice Minor: \t {index}\n"
        (gpu / "information").write_text(told)
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "local_cpulist").write_text(cpus)
        (device / "numa_node").write_text(cpus)
        node = tmp_path / f"sys/devices/system/node/node{index}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(str(index))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    return str(tmp_path)


@pytest.fixture
def affinity(monkeypatch):
    """The CPUs of this process, changed by nobody but the test."""
    found = {"cpus": {0, 1}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(found["cpus"]))
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: found.update(cpus=set(cpus)))
    return found


def test_a_command_is_bound_near_the_gpu_that_it_may_open(machine, affinity):
    words = bind_near_gpu({"CUDA_VISIBLE_DEVICES": "0"}, machine)
    assert affinity["cpus"] == {1}
    assert words.endswith("CPUs 1")
    assert "0000:18:00" in words
    assert "where it was already" in bind_near_gpu({"CUDA_VISIBLE_DEVICES": "GPU-0"}, machine)


def test_without_a_gpu_of_its_own_a_command_is_left_where_it_is(machine, affinity, tmp_path):
    assert bind_near_gpu({"CUDA_VISIBLE_DEVICES": "5"}, machine).startswith("not bound: CUDA_VISIBLE_DEVICES=5 names")
    assert bind_near_gpu({}, str(tmp_path / "nowhere")) == "not bound: the kernel shows no NVIDIA GPU"
    affinity["cpus"] = {0}
    assert "names no CPUs near its GPU" in bind_near_gpu({"CUDA_VISIBLE_DEVICES": "0"}, machine)
    assert affinity["cpus"] == {0}
