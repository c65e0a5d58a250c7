"""Sources of GPU metrics against fake libraries: what they give, what is missing and why, GPUs that come and go."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.telemetry.node.samplers.gpu import SOURCES, GpuMetricSource, open_gpus
from cordee.telemetry.node.samplers.gpu._users import Sharing
from cordee.telemetry.node.samplers.gpu.nvml import gpm, gpm_samples
from cordee.telemetry.node.samplers.gpu.nvml.basic import NvmlSampler
from cordee.telemetry.node.samplers.gpu.nvml.gpm import NvmlGpmSource
from cordee.testing.samplers import GpuSourceContract
from support.clocks import give_clock
from support.nvml import FakeGpus

BUSY = {1: 90.0, 2: 80.0, 3: 40.0, 5: 60.5, 7: 60.0, 10: 33.0, 12: 5.0, 20: 1000, 21: 2000, 60: 3, 61: 5}


@pytest.fixture
def library(fake_library) -> str:
    return fake_library


@pytest.fixture
def gpus(tmp_path, fake_nvml, monkeypatch) -> FakeGpus:
    """Two GPUs with GPM, and no waiting for its interval."""
    monkeypatch.setattr(gpm, "LEAST_S", 0.0)
    monkeypatch.setattr(gpm_samples, "_EARLY_S", 0.0)
    gpus = FakeGpus(tmp_path, count=2, library=fake_nvml).gpm(0, BUSY).gpm(1, BUSY)
    for name, value in gpus.env.items():
        monkeypatch.setenv(name, value)
    return gpus


def opened(source: GpuMetricSource) -> GpuMetricSource:
    assert source.probe() is None
    return source


def values(source: GpuMetricSource, device: int = 0) -> dict[str, float]:
    """Return a sample of one device by metric."""
    sample = source.sample()
    names = [metric["name"] for metric in source.metrics()]
    return dict(zip(names, sample[device * len(names) : (device + 1) * len(names)], strict=True))


class TestGpm(GpuSourceContract):
    @pytest.fixture
    def opener(self, gpus, library):
        return lambda wanted: NvmlGpmSource(wanted, library=library)


class TestBasic(GpuSourceContract):
    @pytest.fixture
    def opener(self, gpus, library):
        return lambda wanted: NvmlSampler(wanted, library=library)


def test_gpm_gives_ratios_and_bytes(gpus, library):
    found = values(opened(NvmlGpmSource(library=library)))
    assert found["gpu_graphics_ratio"] == pytest.approx(0.9)
    assert found["gpu_tensor_ratio"] == pytest.approx(0.605)
    assert found["gpu_pcie_receive_bytes_per_second"] == 2000 * 2**20
    assert found["gpu_nvlink_transmit_bytes_per_second"] == 5 * 2**20
    assert found["gpu_nvlink_receive_bytes_per_second"] == 3 * 2**20


def test_power_and_throttling_are_means_of_the_drivers_counters(gpus, library):
    gpus.device(0, power_mw=500_000, violation_power=0.25)
    source = opened(NvmlGpmSource(library=library))
    began = time.monotonic()
    while time.monotonic() - began < 0.05:
        pass
    found = values(source)
    assert 250 < found["gpu_power_watts"] < 1000, "milliwatts, or no rate"
    assert found["gpu_throttle_power_ratio"] == pytest.approx(0.25, rel=0.01)
    assert found["gpu_throttle_thermal_ratio"] == 0


def test_without_counters_power_and_throttling_are_those_of_the_moment(gpus, library):
    gpus.device(0, power_mw=300_000, energy=None, violation_power=None, violation_thermal=None, throttle_reasons=0x84)
    found = values(opened(NvmlSampler(library=library)))
    assert found["gpu_power_watts"] == 300
    assert found["gpu_throttle_power_ratio"] == 1
    assert found["gpu_throttle_thermal_ratio"] == 0


@pytest.mark.parametrize("strict", [0, 1])
def test_metric_ids_unknown_to_the_driver_are_left_out_with_the_reason(gpus, library, strict):
    gpus.system(gpm_strict=strict)
    source = opened(NvmlGpmSource(library=library))
    assert "gpu_fp64_ratio" not in [metric["name"] for metric in source.metrics()]
    assert "GPM metric 11" in source.missing["gpu_fp64_ratio"]
    assert not math.isnan(values(source)["gpu_sm_ratio"])


def test_a_metric_that_only_one_gpu_gives_is_missing_on_the_other(gpus, library):
    gpus.gpm(1, {11: 50.0})
    source = opened(NvmlGpmSource(library=library))
    assert math.isnan(values(source, 0)["gpu_fp64_ratio"])
    assert gpus.uuid(0) in source.missing["gpu_fp64_ratio"]
    assert values(source, 1)["gpu_fp64_ratio"] == 0.5


def test_what_cannot_be_is_missing_and_a_little_over_one_is_one(gpus, library):
    source = opened(NvmlGpmSource(library=library))
    gpus.gpm(0, {1: 100.4, 2: 4.2e9})
    found = values(source)
    assert found["gpu_graphics_ratio"] == 1
    assert math.isnan(found["gpu_sm_ratio"])
    assert "cannot be" in source.missing["gpu_sm_ratio"]


def test_a_tick_that_comes_early_is_compared_with_the_one_before_the_last(gpus, library, monkeypatch):
    source = opened(NvmlGpmSource(library=library))
    began, at = time.monotonic(), [0.0]
    give_clock(monkeypatch, "cordee.telemetry.node.samplers", monotonic=lambda: began + at[0])
    monkeypatch.setattr(gpm_samples, "_EARLY_S", 0.09)
    for now, known in [(1.0, True), (1.05, True), (1.1, True), (1.17, True), (1.2, True), (1.21, False), (1.3, True)]:
        at[0] = now
        assert (values(source)["gpu_sm_ratio"] == 0.8) is known, now
        assert known == ("gpu_sm_ratio" not in source.missing)
    at[0] = 1.31
    values(source)
    at[0] = 1.32
    values(source)
    assert "0.1 s apart" in source.missing["gpu_sm_ratio"]


def test_a_gpu_that_is_lost_is_missing_while_the_others_go_on_and_comes_back(gpus, library, monkeypatch):
    source = opened(NvmlGpmSource(library=library))
    gpus.error("*", 15, device=0)
    assert all(math.isnan(value) for value in values(source, 0).values())
    assert "GPU is lost" in source.missing["gpu_sm_ratio"]
    assert "GPU is lost" in source.facts()[gpus.uuid(0)]["lost"]
    assert values(source, 1)["gpu_sm_ratio"] == 0.8
    gpus.error("*", None, device=0)
    assert math.isnan(values(source, 0)["gpu_sm_ratio"]), "a lost GPU is not asked at every tick"
    give_clock(monkeypatch, "cordee.telemetry.node.samplers", monotonic=lambda: time.perf_counter() + 1e6)
    values(source, 0)
    assert values(source, 0)["gpu_sm_ratio"] == 0.8
    assert source.facts()[gpus.uuid(0)]["lost"] == ""
    assert [remark.partition("UTC: ")[2].partition(" ")[2][:20] for remark in source.remarks] == [
        "does not answer any ",
        "answers again",
    ]


def test_a_wanted_gpu_that_is_not_there_is_named_beside_those_that_are(gpus, library):
    gone = "GPU-0b5f4a1e-dead-beef-0000-000000000000"
    source = opened(NvmlGpmSource([gpus.uuid(1), gone], library=library))
    assert source.devices() == [gpus.uuid(1), gone]
    assert math.isnan(values(source, 1)["gpu_sm_ratio"])
    assert any(gone in remark for remark in source.remarks)


def test_gpus_without_gpm_are_refused_with_the_reason_and_have_basic_values(gpus, library):
    gpus.device(0, gpm=0).device(1, gpm=0, utilization_gpu=70)
    reason = NvmlGpmSource(library=library).probe()
    assert reason is not None
    assert "Hopper" in reason
    found = values(opened(NvmlSampler(library=library)), 1)
    assert found["gpu_utilization_ratio"] == 0.7
    assert "gpu_sm_ratio" not in found


def test_instances_are_measured_by_themselves_and_know_their_share(gpus, library):
    gpus.instance(0, 3, memory_used=5 << 30).instance(0, 4).gpm(0, BUSY, instance=3).gpm(0, {**BUSY, 2: 20}, instance=4)
    source = opened(NvmlGpmSource([gpus.uuid(0)], library=library))
    assert source.devices() == [gpus.instance_uuid(0, 3), gpus.instance_uuid(0, 4)]
    assert values(source, 0)["gpu_sm_ratio"] == 0.8
    assert values(source, 1)["gpu_sm_ratio"] == 0.2
    facts = source.facts()[gpus.instance_uuid(0, 3)]
    assert facts["parent"] == gpus.uuid(0)
    assert facts["share"] == pytest.approx(16 / 132)
    assert facts["memory_bytes"] == 10 << 30
    assert "instance" in source.missing["gpu_power_watts"]


def test_counters_of_pcie_and_nvlink_become_rates_where_there_is_no_gpm(gpus, library):
    gpus.field(0, 197, "1000+5000").field(0, 138, "10+5", scope=0xFFFFFFFF)
    source = opened(NvmlSampler(library=library))
    before = time.monotonic()
    found = values(source)
    assert found["gpu_pcie_transmit_bytes_per_second"] > 5000 / (time.monotonic() - before + 1)
    assert found["gpu_nvlink_transmit_bytes_per_second"] > 0
    assert "NVML" in source.missing["gpu_pcie_receive_bytes_per_second"]


def test_processes_of_others_are_said(gpus, library, monkeypatch):
    gpus.process(0, os.getpid(), 1 << 30).process(1, 1, 1 << 30).process(1, 4_194_305, 1)
    source = opened(NvmlGpmSource(own=lambda: {7: os.getpid()}, library=library))
    assert values(source, 1)["gpu_processes"] == 2
    facts = source.facts()
    assert facts[gpus.uuid(0)]["ranks"] == [7]
    assert facts[gpus.uuid(0)]["shared"] == ""
    assert "not this job's: 1 of" in facts[gpus.uuid(1)]["shared"]
    assert facts[gpus.uuid(1)]["unseen_processes"] == 1


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("nvmlInitWithFlags", 9, "kernel module"),
        ("nvmlInitWithFlags", 4, "may not open"),
        ("nvmlInitWithFlags", 18, "reboot"),
        ("nvmlDeviceGetCount_v2", 999, "number of GPUs"),
        ("nvmlDeviceGetHandleByIndex_v2", 4, "cgroup"),
    ],
)
def test_a_driver_that_refuses_is_told_in_words(gpus, library, function, code, words):
    gpus.error(function, code)
    for kind in (NvmlGpmSource, NvmlSampler):
        assert words in (kind(library=library).probe() or "")


def test_without_a_driver_every_source_has_its_reason():
    source, refused = open_gpus("local-0")
    assert source is None
    assert list(refused) == [candidate.name for candidate in SOURCES]
    assert "libnvidia-ml.so.1" in refused["nvml-gpm"]


def test_a_job_without_gpus_has_none_measured():
    assert open_gpus("local-0", wanted=[]) == (None, {"auto": "the job has no GPU"})


def test_an_unknown_source_is_refused_with_those_there_are():
    with pytest.raises(UsageError) as caught:
        open_gpus("local-0", source="nvlm")
    assert "nvml-gpm" in str(caught.value.allowed)


def test_structs_and_numbers_are_those_of_nvidias_own_module():
    """nvidia-ml-py is made from nvml.h; what is read by ctypes here must lie where it lies there."""
    import ctypes

    import pynvml

    from cordee.telemetry.node.samplers.gpu.nvml import library, values

    pairs = {
        library.Memory: pynvml.c_nvmlMemory_t,
        library.MemoryV2: pynvml.c_nvmlMemory_v2_t,
        library.Utilization: pynvml.c_nvmlUtilization_t,
        library.Violation: pynvml.c_nvmlViolationTime_t,
        library.NvmlProcess: pynvml.c_nvmlProcessInfo_v3_t,
        library.FieldValue: pynvml.c_nvmlFieldValue_t,
        library.Attributes: pynvml.c_nvmlDeviceAttributes,
        library.GpmSupport: pynvml.c_nvmlGpmSupport_t,
    }
    for ours, theirs in pairs.items():
        places = [[getattr(kind, name).offset for name, *_ in kind._fields_] for kind in (ours, theirs)]
        assert places[0] == places[1], ours
        assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    asked, metric = pynvml.c_nvmlGpmMetricsGet_t, pynvml.c_nvmlGpmMetric_t
    assert (asked.sample1.offset, asked.sample2.offset, asked.metrics.offset) == (8, 16, gpm_samples._HEAD.size)
    assert (metric.nvmlReturn.offset, metric.value.offset, ctypes.sizeof(metric)) == (4, 8, gpm_samples._ENTRY.size)
    assert gpm_samples._VERSION == pynvml.NVML_GPM_METRICS_GET_VERSION
    assert gpm_samples._ROOM >= pynvml.NVML_GPM_METRIC_MAX
    assert pynvml.nvmlMemory_v2 == values._MEMORY_V2
    names = {
        "gpu_graphics_ratio": "GRAPHICS_UTIL",
        "gpu_sm_ratio": "SM_UTIL",
        "gpu_occupancy_ratio": "SM_OCCUPANCY",
        "gpu_tensor_ratio": "ANY_TENSOR_UTIL",
        "gpu_tensor_dfma_ratio": "DFMA_TENSOR_UTIL",
        "gpu_tensor_hmma_ratio": "HMMA_TENSOR_UTIL",
        "gpu_tensor_imma_ratio": "IMMA_TENSOR_UTIL",
        "gpu_dram_ratio": "DRAM_BW_UTIL",
        "gpu_fp64_ratio": "FP64_UTIL",
        "gpu_fp32_ratio": "FP32_UTIL",
        "gpu_fp16_ratio": "FP16_UTIL",
        "gpu_pcie_transmit_bytes_per_second": "PCIE_TX_PER_SEC",
        "gpu_pcie_receive_bytes_per_second": "PCIE_RX_PER_SEC",
        "gpu_nvlink_transmit_bytes_per_second": "NVLINK_TOTAL_TX_PER_SEC",
        "gpu_nvlink_receive_bytes_per_second": "NVLINK_TOTAL_RX_PER_SEC",
        "gpu_c2c_transmit_bytes_per_second": "C2C_TOTAL_TX_PER_SEC",
        "gpu_c2c_receive_bytes_per_second": "C2C_TOTAL_RX_PER_SEC",
    }
    assert {name: number for number, name, _ in gpm_samples.METRICS} == {
        name: getattr(pynvml, f"NVML_GPM_METRIC_{theirs}") for name, theirs in names.items()
    }
    assert pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES == values._PCIE_SENT
    assert pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES == values._PCIE_RECEIVED
    assert pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX == values._NVLINK_SENT
    assert pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX == values._NVLINK_RECEIVED


def test_a_source_whose_library_misbehaves_keeps_no_other_from_being_tried(monkeypatch):
    def fail(self):
        raise AttributeError("undefined symbol: nvmlErrorString")

    monkeypatch.setattr(NvmlGpmSource, "probe", fail)
    source, refused = open_gpus("local-0")
    assert source is None
    assert "undefined symbol" in refused["nvml-gpm"]
    assert "libnvidia-ml.so.1" in refused["nvml"]


def test_the_page_has_every_source_and_every_metric():
    page = (Path(__file__).parents[3] / "docs" / "gpu-sources.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)[: len(SOURCES)] == [
        candidate.name for candidate in SOURCES
    ]
    for number, name, _ in gpm_samples.METRICS:
        assert re.search(rf"GPM [\d, ]*\b{number}\b", page), name


def test_a_gpu_without_gpm_beside_one_with_it_has_basic_values_and_says_why(gpus, library):
    gpus.device(1, gpm=0)
    source = opened(NvmlGpmSource(library=library))
    assert values(source, 0)["gpu_sm_ratio"] == 0.8
    found = values(source, 1)
    assert math.isnan(found["gpu_sm_ratio"])
    assert found["gpu_memory_used_bytes"] == 4 << 20
    assert "Hopper" in source.missing["gpu_sm_ratio"]
    assert any(gpus.uuid(1) in remark and "basic values only" in remark for remark in source.remarks)


def test_a_process_whose_rank_has_ended_is_still_the_jobs(tmp_path):
    for pid, parent in ((40, 1), (41, 40), (50, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (python) S {parent} 1 1 0\n")
        (tmp_path / str(pid) / "comm").write_text("python\n")
    ranks = {3: 40, 4: 50}
    sharing = Sharing(lambda: ranks, str(tmp_path))
    assert sharing.facts([41]) == {"shared": "", "ranks": [3]}
    del ranks[3]
    shutil.rmtree(tmp_path / "40")
    (tmp_path / "41" / "stat").write_text("41 (python) S 1 1 1 0\n")
    assert sharing.facts([41]) == {"shared": "", "ranks": [3]}
    assert "outside of this job" in Sharing(lambda: ranks, str(tmp_path)).facts([41])["shared"]
