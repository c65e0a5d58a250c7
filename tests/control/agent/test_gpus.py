"""GPUs of a run: sampled by a child that may hang or die, told whose they are, and ranks bound near them."""

from __future__ import annotations

import asyncio
import json
import math
import os
from pathlib import Path

import pytest

from cordee.control.agent.ranks.binding import bound, devices_of
from cordee.control.agent.ranks.facts import RankFacts
from cordee.control.agent.telemetry import gpus
from cordee.control.agent.telemetry.gpus import GpuSampling
from cordee.control.launch import RankCommand
from cordee.control.world import AttemptWorld
from cordee.machine import inventory
from cordee.machine.gpus.presence import gpu_device_file
from cordee.machine.inventory import read_slots
from cordee.machine.slots import AllocatableGpu, Core, Instance, NodeSlots, SlotAllocator
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import Task, TaskRunner
from cordee.runs.plan import Checkpoints, RunRequest, RunSampling, RunScheduler, RunStep, RunTasks
from cordee.telemetry.node import recording_child
from cordee.telemetry.node.blocklog import FACTS, GRID, SCHEMA, decode_json, encode_record, iter_records, merge_facts
from cordee.telemetry.node.gpu_sampler import GpuSampler
from cordee.telemetry.node.ranks_file import read_ranks
from cordee.telemetry.node.recording_child import whole_records
from cordee.telemetry.node.samplers.gpu._base import GpuMetricSource
from cordee.telemetry.node.samplers.gpu.attribution import GpuView, SeenGpu
from support.nvml import FakeGpus

SOURCES = Path(gpus.__file__).parents[3]


def facts_of(records):
    known = {}
    for kind, body in iter_records(records):
        if kind == FACTS:
            merge_facts(known, decode_json(body))
    return known


def step_of(tasks, request=RunRequest()):  # noqa: B008 - it cannot be changed
    return RunStep(tasks, Checkpoints("/run/checkpoints"), request)


class Host(WatchedTasks):
    """An agent, as far as the sampling of GPUs knows it; what comes is in `records`."""

    def __init__(self, name, shown=()):
        super().__init__(lambda **told: TaskRunner(f"{name}/n/1", kill_s=5.0, **told))
        self.records = b""
        self.health = []
        self.slots = SlotAllocator(lambda: NodeSlots(tuple(Core(frozenset({cpu})) for cpu in range(4)), shown))

    def add(self, records):
        self.records += records

    def driver_said(self, gpus, ranks, xids):
        self.health.append((gpus, ranks, xids))

    def remarks(self):
        known = facts_of(self.records)
        return known["n/gpu"]["remarks"] if known else []


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """Sample GPUs until a condition on the host holds: `sample(condition, source, **variables)` returns the host."""

    def run(condition, source="nvml-gpm", gpus=(), said="{}", exclusive=False, **variables):
        ranks = tmp_path / "ranks.json"
        ranks.write_text(said)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        step = step_of(RunTasks((), {}), RunRequest(scheduler=RunScheduler(exclusive)))

        async def until():
            host = Host(tmp_path.name, gpus)
            about = RunSampling(0.1, source)
            sampling = GpuSampling(host, "n", about, step, SOURCES, ranks, host.slots, host.add, host.driver_said)
            sampling.start()
            try:
                while not condition(host):
                    await asyncio.sleep(0.01)
            finally:
                host.tasks.kill_everything()
            return host

        return asyncio.run(asyncio.wait_for(until(), 60))

    return run


@pytest.mark.usefixtures("real")
def test_gpus_are_sampled_by_a_child_and_told_whose_they_are(sample, fake_nvml, tmp_path):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml)
    for gpu in range(2):
        fake.gpm(gpu, {1: 80.0, 2: 60.0, 3: 40.0})
    env = {"CUDA_VISIBLE_DEVICES": fake.uuid(1)}
    ranks = json.dumps({"3": {"pid": os.getpid(), "env": env}})

    def grids(host):
        return sum(kind == GRID for kind, _ in iter_records(host.records))

    host = sample(lambda host: grids(host) >= 4, said=ranks, **fake.env)
    schemas = [decode_json(body) for kind, body in iter_records(host.records) if kind == SCHEMA]
    assert len(schemas) == 1
    assert schemas[0]["devices"] == [fake.uuid(0), fake.uuid(1)]
    known = facts_of(host.records)
    assert known["n/gpu"]["devices"][fake.uuid(1)]["ranks"] == [3]
    assert "ranks" not in known["n/gpu"]["devices"][fake.uuid(0)]
    assert known["n/gpu"]["devices"][fake.uuid(0)]["source"] == "nvml-gpm"
    assert known["n/rank"]["devices"]["3"] == {
        "gpus": [fake.uuid(1)],
        "gpus_known_by": "UUIDs in CUDA_VISIBLE_DEVICES",
    }


def test_what_the_driver_says_of_faults_comes_with_the_ranks_on_each_gpu_and_is_in_no_log(sample, fake_nvml, tmp_path):
    fake = (
        FakeGpus(tmp_path / "fake", count=1, library=fake_nvml)
        .links(0, 2)
        .device(0, ecc_uncorrectable=7, pcie_replays=3)
    )
    ranks = json.dumps({"3": {"pid": os.getpid(), "env": {"CUDA_VISIBLE_DEVICES": fake.uuid(0)}}})
    host = sample(lambda host: len(host.health) >= 2, source="nvml", said=ranks, **fake.env)
    (first,), on, xids = host.health[0]
    assert (first.uuid, first.pci_bus_id, first.ecc_uncorrectable, first.pcie_replays) == (
        fake.uuid(0),
        "0000:10:00",
        7,
        3,
    )
    assert [(link.link, link.active, link.errors["replay"]) for link in first.links] == [(0, True, 0), (1, True, 0)]
    assert on == {fake.uuid(0): [3]}
    assert xids == []
    assert {kind for kind, _ in iter_records(host.records)} <= {FACTS, GRID, SCHEMA}


def test_an_xid_is_told_at_once_by_the_driver_and_one_from_before_is_not(sample, fake_nvml, tmp_path):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml).device(1, xid="48 1")

    def told(host):
        if host.health:
            fake.device(1, xid="79 2")
        return [xid for _, _, xids in host.health for xid in xids]

    host = sample(told, source="nvml", **fake.env)
    assert told(host) == [[fake.uuid(1), 79]]


def test_ranks_on_instances_of_gpus_are_bound_near_them_once_the_driver_has_told_of_them(sample, fake_nvml, tmp_path):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml).instance(0, 0).instance(0, 1)
    near = (frozenset({0, 1}), frozenset({2, 3}))
    shown = tuple(AllocatableGpu(f"0000:{index}0:00", fake.uuid(index), near[index]) for index in range(2))
    host = sample(lambda host: len(host.slots.has.gpus[0].instances) == 2, source="nvml", gpus=shown, **fake.env)
    host.slots.look_again()
    split, whole = host.slots.has.gpus
    assert (split.memory_bytes, whole.memory_bytes) == (None, 80 << 30)
    assert {part.memory_bytes for part in split.instances} == {10 << 30}
    lists = [fake.instance_uuid(0, 0), fake.instance_uuid(0, 1), fake.uuid(1)]
    ranks = [RankCommand(rank, (), {"CUDA_VISIBLE_DEVICES": listed}, "/") for rank, listed in enumerate(lists)]
    placed = bound(ranks, step_of(RunTasks((), {}, bind="gpu")), 1, host.slots)
    assert [sorted(rank.given.cpus) for rank in placed] == [[0], [1], [2, 3]]
    assert placed[0].given.gpus == (fake.instance_uuid(0, 0),)


@pytest.mark.parametrize("exclusive", [False, True])
def test_where_slurm_names_no_gpus_only_a_job_of_whole_nodes_has_all(sample, fake_nvml, tmp_path, exclusive):
    fake = FakeGpus(tmp_path / "fake", count=2, library=fake_nvml).gpm(0, {1: 5.0}).gpm(1, {1: 5.0})

    def told(host):
        return host.remarks() or any(kind == GRID for kind, _ in iter_records(host.records))

    host = sample(told, exclusive=exclusive, SLURM_JOB_ID="7", **fake.env)
    said = " ".join(host.remarks())
    assert ("it is not known which GPUs are this job's: Slurm names no GPUs" in said) is not exclusive
    assert ("not sampled" in said) is not exclusive


def test_a_driver_that_hangs_is_killed_tried_again_and_given_up_with_words(sample, fake_nvml, tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "_FIRST_S", 0.5)
    monkeypatch.setattr(gpus, "_SILENT_S", 0.1)
    monkeypatch.setattr(recording_child, "_PAUSES_S", (0.01,))
    fake = FakeGpus(tmp_path / "fake", count=1, library=fake_nvml).hang("nvmlDeviceGetCount_v2")
    host = sample(lambda host: len(host.remarks()) == 2, **fake.env)
    assert host.remarks()[0].startswith("the sampler of GPUs was started again: it was silent for")
    assert host.remarks()[1].startswith("GPUs are not sampled any more: the sampler ended 2 times")
    assert host.tasks.running() == []


def test_a_source_that_is_not_there_is_said_once_and_not_tried_again(sample):
    host = sample(lambda host: host.remarks() and not host.tasks.running(), "nvml-gmp")
    assert len(host.remarks()) == 1
    assert "there is no such source" in host.remarks()[0]


def test_a_node_without_gpus_starts_nothing_and_one_without_a_wish_says_so(sample, tmp_path):
    assert gpu_device_file(str(tmp_path), {}) is None
    host = sample(lambda host: host.remarks(), "none")
    assert host.remarks() == ["GPUs were not sampled: the job says so ([sampling] gpus)"]
    assert host.tasks.running() == []


def test_records_are_passed_on_whole_and_what_is_none_is_known():
    record = encode_record(FACTS, b"{}")
    assert whole_records(b"") == 0
    assert whole_records(record + record[:-1]) == len(record)
    assert whole_records(record[:3]) == 0
    assert whole_records(b"WARNING: the driver says hello") == -1


class TwoGpus(GpuMetricSource):
    """Two GPUs that say whose they are."""

    name = "two"

    def __init__(self, seen):
        super().__init__()
        self._seen = seen
        self.give(["gpu_utilization_ratio"], "not told")

    def probe(self):
        return None

    def devices(self):
        return ["GPU-a", "GPU-b"]

    def facts(self):
        return {device: {"model": "M", **({"ranks": ranks} if ranks else {})} for device, ranks in self._seen.items()}

    def sample(self):
        return [0.5, math.nan]


@pytest.mark.parametrize(
    ("view", "env", "holders", "of_rank_0", "of_gpu_a"),
    [
        (GpuView((SeenGpu("GPU-a"), SeenGpu("GPU-b"))), {"CUDA_VISIBLE_DEVICES": "GPU-a"}, {}, ["GPU-a"], [0]),
        (GpuView((SeenGpu("GPU-a"), SeenGpu("GPU-b"))), {}, {"GPU-a": [0], "GPU-b": [1]}, ["GPU-a"], [0]),
        (None, {}, {"GPU-a": [0, 1]}, ["GPU-a"], [0, 1]),
        (GpuView((SeenGpu("GPU-a"), SeenGpu("GPU-b"))), {}, {}, None, None),
    ],
)
def test_whose_a_gpu_is_is_told_by_variables_then_by_who_holds_its_memory_and_never_guessed(
    view, env, holders, of_rank_0, of_gpu_a
):
    written = []
    ranks = {0: {"pid": 10, "env": env}, 1: {"pid": 11, "env": {}}}
    source = TwoGpus({"GPU-a": None, "GPU-b": None, **holders})
    sampler = GpuSampler("n", 1.0, source, view, lambda: ranks, ["a remark"], written.append)
    sampler.sample()
    sampler.sample()
    known = facts_of(b"".join(written))
    assert known["n/rank"]["devices"]["0"]["gpus"] == of_rank_0
    assert known["n/gpu"]["devices"]["GPU-a"].get("ranks") == of_gpu_a
    assert known["n/gpu"]["remarks"] == ["a remark"]
    kinds = [kind for kind, _ in iter_records(written[1])]
    assert kinds.count(SCHEMA) == 0
    assert kinds.count(GRID) == 1


def test_the_agent_tells_its_ranks_through_a_file_that_is_whole_at_any_time(tmp_path):
    world = AttemptWorld(1, ("n",), ("::1",), 2, "n", 0, "::1", 1, 2)
    facts = RankFacts(tmp_path / "ranks.json")
    assert read_ranks(facts.path) == {}
    environments = [{"CUDA_VISIBLE_DEVICES": str(rank), "SECRET": "x"} for rank in range(2)]
    facts.begin(world, [RankCommand(rank, (), env, "/") for rank, env in enumerate(environments)])
    facts.write({0: 10, 1: 11})
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    assert read_ranks(facts.path)[1] == {"pid": 11, "env": env, "attempt": 1, "local_rank": 1}
    assert facts.facts()["1"] == {"node": "n", "local_rank": 1, "bound": "not bound"}
    facts.path.unlink()
    facts.write({0: 10, 1: 11})
    assert not facts.path.exists()  # nothing changed, nothing is written


GPUS = (
    AllocatableGpu("0000:10:00", "GPU-aa"),
    AllocatableGpu("0000:20:00", "GPU-bb"),
    AllocatableGpu("0000:30:00", "GPU-cc", instances=(Instance("MIG-c1"), Instance("MIG-c2"))),
    AllocatableGpu("0000:40:00", "GPU-dd"),
    AllocatableGpu("0000:50:00"),
)


@pytest.mark.parametrize(
    ("environments", "devices"),
    [
        ([{}] * 5, ["GPU-aa", "GPU-bb", "GPU-cc", "GPU-dd", "0000:50:00"]),
        ([{}] * 2, [None, None]),
        ([{"CUDA_VISIBLE_DEVICES": "2,3"}] * 2, ["GPU-cc", "GPU-dd"]),
        ([{"CUDA_VISIBLE_DEVICES": "GPU-dd,GPU-a"}] * 2, ["GPU-dd", "GPU-aa"]),
        ([{"CUDA_VISIBLE_DEVICES": "GPU-bb"}, {"CUDA_VISIBLE_DEVICES": "3"}], ["GPU-bb", "GPU-dd"]),
        ([{"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3"}] * 2, ["GPU-cc", "GPU-dd"]),
        ([{"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_STEP_GPUS": "2,3"}] * 2, ["GPU-cc", "GPU-dd"]),
        ([{"SLURM_JOB_GPUS": "1"}], ["GPU-bb"]),
        ([{"HIP_VISIBLE_DEVICES": "1"}], ["GPU-bb"]),
        ([{"CUDA_VISIBLE_DEVICES": "NoDevFiles"}], [None]),
        ([{"CUDA_VISIBLE_DEVICES": "MIG-c2"}, {"CUDA_VISIBLE_DEVICES": "MIG-c"}], ["MIG-c2", None]),
    ],
)
def test_the_gpu_of_a_rank_is_the_one_that_its_script_will_take(environments, devices):
    assert devices_of([RankCommand(rank, (), env, "/") for rank, env in enumerate(environments)], GPUS) == devices


def test_ranks_that_are_not_to_be_bound_say_why_and_others_where(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    for node, cpus in ((0, "0-1"), (1, "2-3")):
        for name, text in (
            (f"sys/devices/system/node/node{node}/cpulist", cpus),
            (f"sys/bus/pci/devices/0000:{node + 1}0:00.0/numa_node", str(node)),
            (f"proc/driver/nvidia/gpus/0000:{node + 1}0:00.0/information", f"GPU UUID:  GPU-{node}"),
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
    ranks = [RankCommand(rank, (), {}, "/") for rank in range(2)]
    slots = SlotAllocator(lambda: read_slots(str(tmp_path)))
    placed = bound(ranks, step_of(RunTasks((), {}, bind="gpu")), 1, slots)
    assert [rank.given.cpus for rank in placed] == [{0, 1}, {2, 3}]
    assert placed[1].given.words == "near GPU 0000:20:00: NUMA node 1, CPUs 2-3"
    for tasks, words in ((RunTasks((), {}), "not bound: bind is none"), (RunTasks((), {}, "srun"), "by srun")):
        unbound = bound(ranks, step_of(tasks), 1, slots)
        assert [(rank.given.cpus, rank.given.words) for rank in unbound] == [(None, words)] * 2


def test_a_bound_task_and_its_children_run_on_their_cpus_alone(tmp_path):
    last = max(os.sched_getaffinity(0))

    async def run():
        host, ended = Host(tmp_path.name), asyncio.get_running_loop().create_future()
        argv = ("sh", "-c", "grep Cpus_allowed_list /proc/self/status")
        task = Task("t", argv, dict(os.environ), "/", cpus=frozenset({last}))
        host.run_task(task, ended.set_result, output=lambda stream, data: host.add(data))
        await ended
        return host.records

    assert asyncio.run(run()).split()[-1] == str(last).encode()
