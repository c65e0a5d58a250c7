"""DCGM as a source, against a fake library: fields, blank values, a host engine that comes and goes."""

from __future__ import annotations

import math
import shutil

import pytest

from cordee.telemetry.node.samplers.gpu import dcgm as dcgm_module
from cordee.telemetry.node.samplers.gpu.dcgm import DcgmSource
from cordee.testing.samplers import GpuSourceContract
from support.dcgm import FakeHostEngine, build

A, B = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("fake-dcgm"))


@pytest.fixture
def engine(tmp_path, monkeypatch) -> FakeHostEngine:
    monkeypatch.setenv("FAKE_DCGM", str(tmp_path / "dcgm.txt"))
    busy = {"field_1001": "0.9", "field_1002": "0.8", "field_1004": "0.6", "field_1010": "2000000000"}
    return FakeHostEngine(tmp_path / "dcgm.txt").gpu(0, A, **busy).gpu(1, B, **busy)


@pytest.fixture
def opener(engine, built, tmp_path):
    library = str(shutil.copy(built, tmp_path / "libcordee-fake-dcgm.so"))
    return lambda wanted: DcgmSource([A, B] if wanted is None else wanted, library=library)


class TestDcgm(GpuSourceContract):
    @pytest.fixture
    def opener(self, opener):
        return opener


@pytest.fixture
def source(opener):
    source = opener(None)
    assert source.probe() is None
    yield source
    source.close()


def values(source: DcgmSource, device: int = 0) -> dict[str, float]:
    names = [metric["name"] for metric in source.metrics()]
    return dict(zip(names, source.sample()[device * len(names) :], strict=False))


def test_fields_become_standard_metrics(source):
    found = values(source)
    assert found["gpu_sm_ratio"] == 0.8
    assert found["gpu_pcie_receive_bytes_per_second"] == 2e9
    assert found["gpu_clock_sm_hertz"] == 345e6
    assert found["gpu_memory_used_bytes"] == 4 << 20
    assert found["gpu_throttle_power_ratio"] == 0
    assert source.facts()[A]["memory_bytes"] == 81559 << 20


@pytest.mark.parametrize(
    ("blank", "words"), [("blank+0", "no value yet"), ("blank+2", "not supported"), ("blank+3", "no permission")]
)
def test_blank_values_are_missing_with_their_reason(engine, source, blank, words):
    engine.set(**{"gpu.1.1004": blank, "gpu.1.150": blank})
    found = values(source, 1)
    assert math.isnan(found["gpu_tensor_ratio"])
    assert words in source.missing["gpu_tensor_ratio"]
    assert words in source.missing["gpu_temperature_celsius"]
    assert values(source, 0)["gpu_tensor_ratio"] == 0.6


def test_fields_that_are_not_watched_are_left_out_with_the_reason(engine, opener):
    engine.set(**{"error.dcgmWatchFields.1015": "-6"})
    source = opener(None)
    assert source.probe() is None
    assert "gpu_tensor_dfma_ratio" not in [metric["name"] for metric in source.metrics()]
    assert "not supported" in source.missing["gpu_tensor_dfma_ratio"]
    assert values(source)["gpu_sm_ratio"] == 0.8


def test_gpus_without_profiling_are_refused(engine, opener):
    engine.set(**{f"error.dcgmWatchFields.{field}": "-52" for field in range(1001, 1016)})
    reason = opener(None).probe()
    assert reason is not None
    assert "no profiling fields" in reason


def test_a_host_engine_that_goes_away_is_said_and_found_again(engine, source, monkeypatch):
    engine.set(**{"error.dcgmEntitiesGetLatestValues": "-21"})
    assert all(math.isnan(value) for value in source.sample())
    assert "connection" in source.missing["gpu_sm_ratio"]
    engine.set(**{"error.dcgmEntitiesGetLatestValues": None, "down": "1"})
    monkeypatch.setattr(dcgm_module, "_RETRY_S", 0.0)
    source._retry_at = 0.0
    assert math.isnan(values(source)["gpu_sm_ratio"])
    assert "nv-hostengine" in source.missing["gpu_sm_ratio"]
    engine.set(down=None)
    source._retry_at = 0.0
    assert values(source)["gpu_sm_ratio"] == 0.8


def test_a_lost_gpu_is_missing_while_the_other_goes_on(engine, source):
    engine.set(**{f"gpu.0.status.{field}": "-18" for field in (*range(1001, 1016), 155)})
    assert math.isnan(values(source, 0)["gpu_sm_ratio"])
    assert source.facts()[A]["lost"]
    assert values(source, 1)["gpu_sm_ratio"] == 0.8


def test_old_values_are_no_values(engine, source):
    engine.set(age_s="60")
    assert math.isnan(values(source)["gpu_sm_ratio"])
    assert " s ago" in source.missing["gpu_sm_ratio"]


def test_without_a_host_engine_or_library_the_reason_is_told(engine, opener):
    engine.set(down="1")
    assert "nv-hostengine" in (opener(None).probe() or "")
    assert "libdcgm.so.4" in (DcgmSource([A]).probe() or "")


def test_gpus_of_others_are_not_measured_when_ones_own_are_not_known(engine, opener):
    source = opener([])
    source.wanted = None
    assert "which are the job's is not known" in (source.probe() or "")
