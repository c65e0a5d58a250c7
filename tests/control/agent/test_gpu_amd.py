"""amdsmi as a source, against a fake module: what it gives, and why the rest is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from cordee.telemetry.node.samplers.gpu.amd import AmdSmiSource
from cordee.telemetry.node.samplers.gpu.attribution import look
from cordee.testing.samplers import GpuSourceContract

FAKE = Path(__file__).parents[2] / "machine" / "fake_amdsmi.py"
A, B = "d8ff74a1-0000-1000-80a9-000000000001", "d8ff74a1-0000-1000-80a9-000000000002"
METRICS = {
    "average_gfx_activity": 93,
    "average_umc_activity": 41,
    "accumulation_counter": 1000,
    "ppt_residency_acc": 100,
    "prochot_residency_acc": 0,
    "socket_thm_residency_acc": 0,
    "vr_thm_residency_acc": 0,
    "hbm_thm_residency_acc": 0,
    "xgmi_read_data_acc": [10, 20, "N/A"],
    "xgmi_write_data_acc": ["N/A"],
}


def gpu(uuid: str) -> dict:
    said = {"uuid": uuid, "name": "AMD Instinct MI300X", "memory_total": 192 << 30, "memory_used": 1 << 30}
    live = {"temperature": 51, "clock": 1700, "energy_ticks": 1000, "energy_growth": 10_000_000, "processes": []}
    return {**said, **live, "metrics": dict(METRICS)}


@pytest.fixture
def smi(monkeypatch):
    """The fake module with two GPUs; its STATE can be changed."""
    monkeypatch.setenv("AMD_GPUS", json.dumps({"gpus": [gpu(A), gpu(B)]}))
    spec = importlib.util.spec_from_file_location("amdsmi", FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    return module


class TestAmd(GpuSourceContract):
    @pytest.fixture
    def opener(self, smi):
        return AmdSmiSource


@pytest.fixture
def source(smi):
    source = AmdSmiSource()
    assert source.probe() is None
    yield source
    source.close()


def values(source: AmdSmiSource) -> dict[str, float]:
    names = [metric["name"] for metric in source.metrics()]
    return dict(zip(names, source.sample(), strict=False))


def test_activity_is_coarse_and_nothing_else_is_pretended(source):
    found = values(source)
    assert found["gpu_utilization_ratio"] == 0.93
    assert found["gpu_memory_busy_ratio"] == 0.41
    assert found["gpu_clock_sm_max_hertz"] == 2.1e9
    assert source.coarse
    assert source.missing["gpu_sm_ratio"] == "amdsmi has no counters of it"
    assert "not told" in source.missing["gpu_nvlink_transmit_bytes_per_second"]


def test_counters_become_rates(smi, source):
    metrics = smi.STATE["gpus"][0]["metrics"]
    metrics.update(accumulation_counter=2000, ppt_residency_acc=350, xgmi_read_data_acc=[1010, 20, "N/A"])
    found = values(source)
    assert found["gpu_throttle_power_ratio"] == pytest.approx(0.25)
    assert found["gpu_throttle_thermal_ratio"] == 0
    assert found["gpu_nvlink_receive_bytes_per_second"] > 0
    assert found["gpu_power_watts"] > 0


def test_without_an_energy_counter_power_is_that_of_the_moment(smi):
    for state in smi.STATE["gpus"]:
        del state["energy_ticks"]
        state["power"] = {"socket_power": "N/A", "current_socket_power": 420}
    source = AmdSmiSource()
    assert source.probe() is None
    assert values(source)["gpu_power_watts"] == 420


def test_what_fails_in_mid_run_is_missing_with_the_librarys_words(smi, source):
    smi.STATE["gpus"][0]["metrics"] = {"error": 10}
    found = values(source)
    assert found["gpu_utilization_ratio"] != found["gpu_utilization_ratio"]
    assert "AMDSMI_STATUS" in source.missing["gpu_utilization_ratio"]
    assert A in source.missing["gpu_utilization_ratio"]
    assert found["gpu_memory_used_bytes"] == 1 << 30


def test_a_look_shows_amds_gpus_where_there_is_no_nvml(smi):
    seen, _ = look()
    assert seen is not None
    assert [gpu.uuid for gpu in seen.devices] == [A, B]


def test_without_the_module_the_reason_is_told():
    assert "amdsmi is not installed" in (AmdSmiSource().probe() or "")
