"""Which GPUs are a rank's and a job's: by UUID, by what may be opened, by Slurm, and never by a guess."""

from __future__ import annotations

import os

import pytest

from cordee.machine.gpus.presence import gpu_variables
from cordee.telemetry.node.samplers.gpu.attribution import GpuView, SeenGpu, look, of_job, of_rank
from support.nvml import FakeGpus

FOUR = GpuView(tuple(SeenGpu(f"GPU-{letter * 8}-0000", "H100", f"0000:{bus}:00", minor) for letter, bus, minor in
                  (("c", "a0", 2), ("a", "10", 0), ("b", "20", 1), ("d", "f0", 3))))  # fmt: skip
A, B, C, D = (f"GPU-{letter * 8}-0000" for letter in "abcd")
SLURM = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("env", "devices"),
    [
        ({"CUDA_VISIBLE_DEVICES": f"{B},{A}"}, [A, B]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bb"}, [B]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-eeeeeeee-0000"}, ["GPU-eeeeeeee-0000"]),
        ({"CUDA_VISIBLE_DEVICES": "0,2"}, [A, C]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", **SLURM}, []),
        ({}, [C, A, B, D]),
        ({**SLURM, "SLURM_STEP_GPUS": "1,3", "SLURM_JOB_GPUS": "0-3"}, [B, D]),
        ({**SLURM, "SLURM_JOB_GPUS": "0-2"}, [A, B, C]),
        ({"ROCR_VISIBLE_DEVICES": B}, [B]),
    ],
)
def test_the_gpus_of_a_lone_rank_are_known(env, devices):
    found = of_rank(env, FOUR)
    assert found.devices is not None
    assert sorted(found.devices) == sorted(devices)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4"}, "names GPU 4 where this node shows 4"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, "the beginning of the UUIDs of 4 GPUs"),
        ({"CUDA_VISIBLE_DEVICES": "0,GPU-aa"}, "neither"),
        ({**SLURM, "SLURM_STEP_GPUS": "5"}, "no GPU that may be opened has the device number 5"),
        ({**SLURM, "SLURM_JOB_GPUS": "all"}, "no list"),
        (SLURM, "Slurm names no GPUs"),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(env, words):
    found = of_rank(env, FOUR)
    assert found.devices is None
    assert words in found.reason


def test_indices_count_what_a_cgroup_leaves_and_not_the_node():
    alone = GpuView(FOUR.devices[3:], hidden=3)
    assert of_rank({**SLURM, "CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0,1,2,3"}, alone).devices == [D]
    assert of_rank({**SLURM, "CUDA_VISIBLE_DEVICES": "3"}, alone).devices is None
    assert of_rank(SLURM, alone).devices == [D]


def test_indices_of_gpus_of_two_models_are_known_only_in_the_order_of_the_bus():
    mixed = GpuView((SeenGpu(A, "H100", "0000:20:00"), SeenGpu(B, "L4", "0000:10:00")))
    assert of_rank({"CUDA_VISIBLE_DEVICES": "0"}, mixed).devices is None
    assert of_rank({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed).devices == [B]


def test_indices_where_gpus_are_split_are_refused_and_uuids_are_not():
    split = GpuView((SeenGpu("MIG-1", "H100", "0000:10:00", 0, A), SeenGpu("MIG-2", "H100", "0000:10:00", 0, A)))
    assert of_rank({"CUDA_VISIBLE_DEVICES": "0"}, split).devices is None
    assert of_rank({**SLURM, "SLURM_JOB_GPUS": "0"}, split).devices is None
    assert of_rank({"CUDA_VISIBLE_DEVICES": "MIG-2"}, split).devices == ["MIG-2"]


def test_ranks_that_see_the_same_gpus_have_them_together_and_none_by_itself():
    assert of_rank({}, FOUR, ranks=4).devices is None
    found = of_job([{}] * 4, FOUR)
    assert sorted(found.devices or []) == [A, B, C, D]


def test_a_jobs_gpus_are_those_of_its_ranks():
    found = of_job([{"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "0"}], FOUR)
    assert found.devices == [B, A]


def test_a_job_whose_ranks_have_unreadable_lists_has_no_known_gpus():
    found = of_job([{"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "9"}], FOUR)
    assert found.devices is None
    assert "names GPU 9" in found.reason


@pytest.fixture
def proc(tmp_path):
    """A /proc in which this process and 11 are tasks of one step, 12 of another and 13 of a cgroup of the first version."""
    step = "0::/system.slice/slurmstepd.scope/job_7/step_0/user"
    groups = {
        "self": f"{step}/task_0",
        "11": f"{step}/task_1",
        "12": f"{step.replace('step_0', 'step_1')}/task_0",
        "13": "5:cpu,cpuacct:/x\n9:devices:/slurm/uid_0/job_8/step_0/task_0",
    }
    for pid, group in groups.items():
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "cgroup").write_text(group + "\n")
        os.symlink("mnt:[1]", tmp_path / pid / "ns" / "mnt")
    return tmp_path


@pytest.mark.parametrize(
    ("pid", "bound", "devices"),
    [(11, {}, [A]), (11, {"SLURM_GPUS_PER_TASK": "1"}, None), (12, {}, None), (13, {}, None)],
)
def test_indices_given_in_another_control_group_are_not_read_in_this_one(proc, pid, bound, devices):
    env = {**SLURM, **bound, "CUDA_VISIBLE_DEVICES": "0"}
    found = of_rank(env, FOUR, 4, pid, str(proc))
    assert found.devices == devices
    assert of_rank({**env, "CUDA_VISIBLE_DEVICES": B}, FOUR, 4, pid, str(proc)).devices == [B]


def test_indices_given_in_another_container_are_not_read_in_this_one(proc):
    (proc / "11" / "ns" / "mnt").unlink()
    os.symlink("mnt:[2]", proc / "11" / "ns" / "mnt")
    assert of_rank({"CUDA_VISIBLE_DEVICES": "0"}, FOUR, 4, 11, str(proc)).devices is None


def test_a_rank_that_has_ended_keeps_its_gpus(proc):
    assert of_rank({"CUDA_VISIBLE_DEVICES": "0"}, FOUR, 4, 99, str(proc)).devices == [A]


def test_only_what_tells_of_gpus_is_kept_of_an_environment():
    kept = gpu_variables({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "7", "SECRET": "x"})
    assert kept == {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "7"}


def test_a_look_shows_what_may_be_opened_and_counts_what_may_not(tmp_path, fake_nvml, fake_library, monkeypatch):
    gpus = FakeGpus(tmp_path, count=3, library=fake_nvml).error("nvmlDeviceGetHandleByIndex_v2", 4, device=1)
    gpus.instance(2, 1)
    monkeypatch.setenv("FAKE_NVML", gpus.env["FAKE_NVML"])
    seen, _ = look(fake_library)
    assert seen is not None
    assert seen.hidden == 1
    assert [gpu.uuid for gpu in seen.devices] == [gpus.uuid(0), gpus.instance_uuid(2, 1)]
    assert seen.devices[1].parent == gpus.uuid(2)


def test_a_look_without_a_driver_says_why():
    seen, reason = look()
    assert seen is None
    assert "libnvidia-ml.so.1" in reason
