"""The programs of the GPU checks, with GPUs that torch's CPU simulates: several devices, each judged by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import run_checks
from support.hosts.simulated_gpus import SimulatedGpus

pytestmark = pytest.mark.usefixtures("real")

UUIDS = [f"GPU-{index:08d}-0000-0000-0000-000000000000" for index in range(2)]
QUICK: dict[str, dict[str, Any]] = {
    "gpu.gemm": {"seconds": 0.02, "size": 64},
    "gpu.memory_bandwidth": {"seconds": 0.05, "size": 1 << 20},
    "gpu.copy": {"seconds": 0.05, "size": 1 << 20},
    "gpu.allreduce": {"seconds": 0.05, "payload": 1 << 16},
    "gpu.cuda": {"count": 4096},
}


def one(gpus: SimulatedGpus, check: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    entry = {"check": check, "parameters": {**QUICK[check], **(parameters or {})}}
    document = {"checks": [entry], "deadline_s": 60, "python": str(gpus.python), "root": str(gpus.root)}
    (result,) = run_checks(document)
    assert json.loads(json.dumps(result)) == result
    return result


@pytest.mark.campaign
@pytest.mark.parametrize("check", sorted(QUICK))
def test_every_gpu_is_tested_and_named_by_its_uuid(check: str, tmp_path: Path) -> None:
    result = one(SimulatedGpus(tmp_path), check)
    assert result["status"] == "pass", result
    assert [(lane["device"], lane["uuid"]) for lane in result["facts"]["devices"]] == list(enumerate(UUIDS))
    assert all(lane["wrong"] == 0 for lane in result["facts"]["devices"])
    assert all(f"GPU {index} ({uuid})" in result["evidence"] for index, uuid in enumerate(UUIDS))
    if check != "gpu.cuda":
        ratio = {"gpu.gemm": 0.93, "gpu.allreduce": 0.88}.get(check, 0.90)
        assert result["compare"][0] == {"kind": "low", "of": "value", "ratio": ratio, "margin": None, "status": "fail"}


def test_the_slow_gpu_is_the_value_of_its_node(tmp_path: Path) -> None:
    result = one(SimulatedGpus(tmp_path, slow={1: 0.003}), "gpu.gemm")
    fast, slow = result["facts"]["devices"]
    assert fast["tflops"] == pytest.approx(2 * 64**3 / 1e12 / 0.001)
    assert slow["tflops"] == pytest.approx(2 * 64**3 / 1e12 / 0.004)
    assert result["value"] == slow["tflops"]


@pytest.mark.parametrize("check", ["gpu.gemm", "gpu.memory_bandwidth", "gpu.cuda"])
def test_a_gpu_that_computes_wrongly_fails_by_name_and_the_other_is_not_blamed(check: str, tmp_path: Path) -> None:
    result = one(SimulatedGpus(tmp_path, wrong=[1]), check)
    assert result["status"] == "fail", result
    assert f"GPU 1 ({UUIDS[1]})" in result["evidence"]
    assert "wrong" in result["evidence"]
    assert "GPU 0" not in result["evidence"]


@pytest.mark.campaign
def test_a_wrong_summand_spoils_the_sum_and_fails_the_node(tmp_path: Path) -> None:
    result = one(SimulatedGpus(tmp_path, wrong=[1]), "gpu.allreduce")
    assert result["status"] == "fail", result
    assert f"GPU 0 ({UUIDS[0]}): 1 results are wrong" in result["evidence"]


def test_a_gpu_that_gives_an_error_fails_in_the_words_of_its_driver(tmp_path: Path) -> None:
    result = one(SimulatedGpus(tmp_path, lost=[1]), "gpu.gemm")
    assert result["status"] == "fail"
    assert result["evidence"].startswith("CUDA error: uncorrectable ECC error encountered")


@pytest.mark.campaign
def test_a_driver_that_refuses_is_unknown_but_fails_the_check_of_just_that(tmp_path: Path) -> None:
    gpus = SimulatedGpus(tmp_path, refuses="driver version is insufficient for runtime version")
    speed = one(gpus, "gpu.gemm")
    assert (speed["status"], speed["cause"]) == ("unknown", "error")
    assert "CUDA 12.8 cannot use a GPU: driver version is insufficient" in speed["evidence"]
    cuda = one(gpus, "gpu.cuda")
    assert (cuda["status"], cuda["cause"]) == ("fail", None)


@pytest.mark.campaign
def test_a_gpu_without_free_memory_is_no_pass(tmp_path: Path) -> None:
    for check in ("gpu.gemm", "gpu.memory_bandwidth"):
        result = one(SimulatedGpus(tmp_path, free_bytes=1 << 20), check, {"size": None})
        assert (result["status"], result["cause"]) == ("unknown", "error")
        assert "only 1048576 of 68719476736 bytes of memory are free" in result["evidence"]


def test_one_gpu_has_nothing_to_sum_with(tmp_path: Path) -> None:
    assert one(SimulatedGpus(tmp_path, count=1), "gpu.allreduce")["status"] == "skip"
