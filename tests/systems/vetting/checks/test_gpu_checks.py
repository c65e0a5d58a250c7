"""GPUs that a fake NVML library shows: every fault is named with its GPU, and what cannot be asked is never healthy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import CHECKS, load_check
from support.nvml import FakeGpus

from .gpus import ask, ask_all, executable

NVML_CHECKS = sorted(name for name in CHECKS if name.startswith("gpu.") and name != "gpu.xid")
NVML_CHECKS = [name for name in NVML_CHECKS if hasattr(load_check(name), "parts")]
QUICK: dict[str, dict[str, Any]] = {"gpu.inventory": {"nvidia_smi": False}, "gpu.nvlink": {"seconds": 0.01}}
LOST, NO_PERMISSION, UNKNOWN, FUNCTION_NOT_FOUND = 15, 4, 999, 13


@pytest.fixture
def gpus(tmp_path: Path, fake_nvml: Path) -> FakeGpus:
    """Four healthy GPUs with NVLinks."""
    four = FakeGpus(tmp_path / "fake", count=4, library=fake_nvml)
    for index in range(4):
        four.links(index, 4)
    return four


def one(check: str, gpus: FakeGpus | None, parameters: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    return ask(check, gpus, {**QUICK.get(check, {}), **(parameters or {})}, **request)


def every(gpus: FakeGpus | None, **parameters: Any) -> list[dict[str, Any]]:
    """Return the results of all checks that ask the driver."""
    checks = [{"check": check, "parameters": {**QUICK.get(check, {}), **parameters}} for check in NVML_CHECKS]
    return ask_all(checks, gpus)


def device(result: dict[str, Any], index: int) -> dict[str, Any]:
    return next(entry for entry in result["facts"]["devices"] if entry["device"] == index)


def must_name(result: dict[str, Any], gpus: FakeGpus, index: int) -> None:
    assert f"GPU {index} ({gpus.uuid(index)})" in result["evidence"]
    others = [other for other in range(4) if other != index]
    assert not [other for other in others if gpus.uuid(other) in result["evidence"]]
    assert "fault" in device(result, index)
    assert not [other for other in others if "fault" in device(result, other)]


def test_healthy_gpus_pass(gpus):
    assert len(NVML_CHECKS) == 7
    for result in every(gpus):
        assert (result["status"], result["cause"]) == ("pass", None), result["evidence"]
        assert [entry["device"] for entry in result["facts"]["devices"]] == [0, 1, 2, 3]
        assert device(result, 3)["uuid"] == gpus.uuid(3)


@pytest.mark.parametrize(
    ("check", "values", "words"),
    [
        ("gpu.temperature", {"temperature": 95}, "95 °C; too hot from 85 °C"),
        ("gpu.temperature", {"temperature": 82, "temperature_slowdown": 80}, "where it slows itself down"),
        ("gpu.ecc", {"ecc_uncorrectable": 3}, "3 uncorrectable ECC errors"),
        ("gpu.ecc", {"remap_failure": 1}, "row remapping failed"),
        ("gpu.ecc", {"remap_pending": 1}, "row remapping is pending"),
        ("gpu.ecc", {"retired_single_bit": 2, "retired_double_bit": 1, "retired_pending": 1}, "retirement is pending"),
        ("gpu.ecc", {"sram_threshold_exceeded": 1}, "SRAM"),
        ("gpu.throttle", {"throttle_reasons": 0x8}, "the hardware has slowed it down"),
        ("gpu.throttle", {"throttle_reasons": 0x48}, "for heat"),
        ("gpu.throttle", {"throttle_reasons": 0x80}, "power supply"),
        ("gpu.residue", {"memory_used": 10 << 30}, "12.5% of its memory (10240 MiB) is in use"),
        ("gpu.pcie", {"pcie_width": 8}, "PCIe width 8 of 16 lanes"),
        ("gpu.pcie", {"pcie_generation": 3, "utilization_gpu": 60}, "PCIe generation 3 of 5 while it is busy (60%)"),
        ("gpu.inventory", {"recovery_action": 1}, "the driver asks to repair it: reset"),
        ("gpu.nvlink", {"fabric_state": 2, "fabric_status": 0}, "fabric manager"),
        ("gpu.nvlink", {"fabric_state": 3, "fabric_status": 0, "fabric_health_mask": 1}, "degraded bandwidth"),
    ],
)
def test_a_fault_names_its_gpu(check, values, words, gpus):
    gpus.device(2, **values)
    result = one(check, gpus)
    assert result["status"] == "fail"
    assert words in result["evidence"]
    must_name(result, gpus, 2)


@pytest.mark.parametrize(
    ("check", "values", "words"),
    [
        ("gpu.ecc", {"ecc_corrected": 5000}, "5000 corrected ECC errors"),
        ("gpu.ecc", {"remap_banks": "2560 2559 0 0 1"}, "1 banks of its memory have no spare row left"),
        ("gpu.ecc", {"retired_single_bit": 60, "retired_double_bit": 0}, "60 pages of its memory are retired"),
        ("gpu.ecc", {"ecc_mode": 0, "ecc_uncorrectable": None, "ecc_corrected": None}, "ECC is switched off"),
        ("gpu.throttle", {"throttle_reasons": 0x20}, "the driver has slowed it down for heat"),
    ],
)
def test_what_should_be_watched_is_warned_of(check, values, words, gpus):
    gpus.device(1, **values)
    result = one(check, gpus)
    assert result["status"] == "warn"
    assert words in result["evidence"]
    must_name(result, gpus, 1)


def test_a_power_cap_and_idle_clocks_are_no_fault(gpus):
    gpus.device(0, throttle_reasons=0x4).device(1, throttle_reasons=0x1)
    result = one("gpu.throttle", gpus)
    assert result["status"] == "pass"
    assert device(result, 0)["throttle_reasons"] == ["software power cap"]


def test_several_faults_are_all_told_the_gravest_first(gpus):
    gpus.device(0, ecc_corrected=5000).device(3, ecc_uncorrectable=1, remap_pending=1)
    result = one("gpu.ecc", gpus)
    assert result["status"] == "fail"
    assert result["evidence"].startswith("GPU 3")
    assert "GPU 0" in result["evidence"]
    assert result["value"] == 1


def test_an_idle_gpu_at_a_lower_generation_passes_unless_the_protocol_says_otherwise(gpus):
    gpus.device(2, pcie_generation=1)
    result = one("gpu.pcie", gpus)
    assert result["status"] == "pass"
    assert {"of": "slowest_generation", "kind": "same"}.items() <= result["compare"][1].items()
    assert result["facts"]["slowest_generation"] == 1
    result = one("gpu.pcie", gpus, {"min_generation": 4})
    assert result["status"] == "fail"
    must_name(result, gpus, 2)


def test_a_temperature_is_to_be_compared_with_other_nodes(gpus):
    gpus.device(1, temperature=60)
    result = one("gpu.temperature", gpus)
    assert (result["value"], result["unit"]) == (60, "°C")
    assert {"kind": "high", "of": "value", "margin": 15}.items() <= result["compare"][0].items()


def test_a_link_that_is_down_is_named(gpus):
    gpus.link(1, 3, active=0)
    result = one("gpu.nvlink", gpus)
    assert result["status"] == "fail"
    assert "NVLink 3 down (3 of 4 are up)" in result["evidence"]
    assert result["facts"]["links_down"] == ["GPU 1 NVLink 3"]
    must_name(result, gpus, 1)


@pytest.mark.parametrize("counter", ["replay", "recovery", "crc_flit", "crc_data"])
def test_errors_of_a_link_that_grow_are_named(counter, gpus):
    gpus.link(0, 2, **{counter: "100+7"})
    result = one("gpu.nvlink", gpus)
    assert result["status"] == "fail"
    assert f"NVLink 2: errors grow: {counter.replace('_', ' ')} +7" in result["evidence"]
    must_name(result, gpus, 0)


def test_old_errors_of_a_link_are_no_fault_and_some_growth_may_be_allowed(gpus):
    gpus.link(0, 2, crc_flit=100)
    assert one("gpu.nvlink", gpus)["status"] == "pass"
    gpus.link(0, 2, crc_flit="100+7")
    assert one("gpu.nvlink", gpus, {"max_errors": 10})["status"] == "pass"


def test_links_of_the_fifth_generation_tell_errors_by_fields(gpus, tmp_path, fake_nvml):
    newer = FakeGpus(tmp_path / "newer", count=1, library=fake_nvml)
    newer.link(0, 0, active=1).link(0, 1, active=1)
    newer.field(0, 208, 0).field(0, 208, "3+2", scope=1)
    result = one("gpu.nvlink", newer)
    assert "NVLink 1: errors grow: receive errors +2" in result["evidence"]


def test_gpus_without_links_are_skipped_unless_links_are_asked_for(tmp_path, fake_nvml):
    gpus = FakeGpus(tmp_path, count=2, library=fake_nvml)
    assert one("gpu.nvlink", gpus)["status"] == "skip"
    result = one("gpu.nvlink", gpus, {"links": 18})
    assert (result["status"], result["cause"]) == ("unknown", "absent")


def test_too_few_links_and_links_that_are_all_down(gpus):
    assert "4 of 6 NVLinks are up" in one("gpu.nvlink", gpus, {"links": 6})["evidence"]
    for link in range(4):
        gpus.link(0, link, active=0)
    assert one("gpu.nvlink", gpus)["status"] == "warn"


def test_three_of_four_gpus(tmp_path, fake_nvml):
    three = FakeGpus(tmp_path, count=3, library=fake_nvml)
    result = one("gpu.inventory", three, {"gpus_expected": 4})
    assert (result["status"], result["value"], result["threshold"]) == ("fail", 3, 4)
    assert result["evidence"].startswith("3 GPUs, expected 4; there: 0, 1, 2")
    by_slurm = one("gpu.inventory", three, env={"SLURM_GPUS_ON_NODE": "4", "PATH": "/bin"})
    assert "3 GPUs, expected 4 by Slurm" in by_slurm["evidence"]
    assert one("gpu.inventory", three, {"gpus_expected": 2})["status"] == "warn"


def test_no_gpu_where_some_are_expected(tmp_path, fake_nvml):
    none = FakeGpus(tmp_path, library=fake_nvml)
    assert one("gpu.inventory", none, {"gpus_expected": 4})["status"] == "fail"
    result = one("gpu.inventory", none)
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    result = one("gpu.ecc", none)
    assert (result["status"], result["cause"]) == ("unknown", "absent")


def test_without_an_expected_number_other_nodes_are_the_measure(gpus):
    result = one("gpu.inventory", gpus)
    assert {"kind": "same", "of": "value"}.items() <= result["compare"][-1].items()
    assert {comparison["of"] for comparison in result["compare"]} == {"value", "model"}
    assert result["facts"]["model"] == "NVIDIA H100 80GB HBM3 with 80 GiB"


def test_the_wrong_model_and_too_little_memory_are_named(gpus):
    gpus.device(1, name="NVIDIA A100-SXM4-40GB", memory_total=40 << 30)
    result = one("gpu.inventory", gpus, {"model": "H100"})
    assert "model NVIDIA A100-SXM4-40GB, expected H100" in result["evidence"]
    must_name(result, gpus, 1)
    result = one("gpu.inventory", gpus, {"min_memory_bytes": 80 << 30})
    assert "40.0 GiB of memory, expected at least 80.0" in result["evidence"]
    must_name(result, gpus, 1)


def test_a_lost_gpu_fails_every_check_by_name(gpus):
    gpus.error("*", LOST, device=3)
    for result in every(gpus):
        assert result["status"] == "fail"
        assert result["evidence"].startswith("GPU 3 (UUID not told): does not answer: GPU is lost")
        assert device(result, 3)["lost"] == "GPU is lost"


def test_a_gpu_that_is_lost_while_it_is_read_is_named_with_its_uuid(gpus):
    gpus.error("nvmlDeviceGetTemperature", LOST, device=2)
    result = one("gpu.temperature", gpus)
    assert result["status"] == "fail"
    must_name(result, gpus, 2)


def test_a_gpu_with_an_unknown_error_fails_the_inventory(gpus):
    gpus.error("nvmlDeviceGetHandleByIndex_v2", UNKNOWN, device=1)
    result = one("gpu.inventory", gpus)
    assert result["status"] == "fail"
    assert "GPU 1 (UUID not told): does not answer: Unknown Error" in result["evidence"]


@pytest.mark.parametrize(
    ("check", "function"),
    [
        ("gpu.temperature", "nvmlDeviceGetTemperature"),
        ("gpu.ecc", "nvmlDeviceGetTotalEccErrors"),
        ("gpu.throttle", "nvmlDeviceGetCurrentClocksEventReasons"),
        ("gpu.residue", "nvmlDeviceGetComputeRunningProcesses_v3"),
        ("gpu.pcie", "nvmlDeviceGetCurrPcieLinkWidth"),
        ("gpu.nvlink", "nvmlDeviceGetNvLinkState"),
    ],
)
@pytest.mark.parametrize(("code", "cause"), [(NO_PERMISSION, "closed"), (UNKNOWN, "error")])
def test_a_value_that_is_refused_is_unknown_with_its_reason(check, function, code, cause, gpus):
    gpus.error(function, code, device=0)
    result = one(check, gpus)
    assert (result["status"], result["cause"]) == ("unknown", cause)
    assert "Insufficient Permissions" in result["evidence"] or "Unknown Error" in result["evidence"]
    must_name(result, gpus, 0)


def test_a_fault_outweighs_what_is_unknown_of_another_gpu(gpus):
    gpus.error("nvmlDeviceGetTemperature", NO_PERMISSION, device=0).device(1, temperature=99)
    result = one("gpu.temperature", gpus)
    assert (result["status"], result["cause"]) == ("fail", None)


def test_an_older_driver_is_asked_by_the_older_name(gpus):
    gpus.error("nvmlDeviceGetCurrentClocksEventReasons", FUNCTION_NOT_FOUND).device(0, throttle_reasons=0x8)
    gpus.error("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND)
    assert one("gpu.throttle", gpus)["status"] == "fail"
    result = one("gpu.residue", gpus)
    assert result["status"] == "pass"
    assert result["value"] == pytest.approx(604 / 81920, abs=1e-3)


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        (18, "error", "version mismatch"),
        (9, "absent", "Driver Not Loaded"),
        (4, "closed", "Insufficient Permissions"),
        (999, "error", "Unknown Error"),
    ],
)
def test_a_driver_that_refuses_is_unknown_in_its_words(code, cause, words, gpus):
    gpus.error("nvmlInitWithFlags", code)
    for result in every(gpus):
        assert (result["status"], result["cause"]) == ("unknown", cause)
        assert words in result["evidence"]


def test_without_a_driver_a_gpu_check_is_unknown_and_skipped_where_no_gpu_is_needed():
    for result in every(None):
        assert (result["status"], result["cause"]) == ("unknown", "absent")
        assert "libnvidia-ml.so.1 is not there" in result["evidence"]
    assert {result["status"] for result in every(None, gpus_expected=0)} == {"skip"}


def test_a_library_that_hangs_is_killed_and_says_where_it_was(gpus):
    gpus.hang("nvmlDeviceGetTemperature", device=1)
    result = one("gpu.temperature", gpus, check_deadline_s=3)
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert "nvmlDeviceGetTemperature" in result["evidence"]
    assert any("machine/gpus/nvml" in line for line in result["facts"]["stack"])


def test_a_hang_of_one_thing_leaves_the_other_checks_alone(gpus):
    gpus.hang("nvmlDeviceGetTotalEccErrors")
    assert one("gpu.temperature", gpus)["status"] == "pass"


def test_gpus_that_a_container_hides_are_not_judged(gpus):
    gpus.error("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, device=0).device(0, temperature=99)
    result = one("gpu.temperature", gpus)
    assert result["status"] == "pass"
    assert [entry["device"] for entry in result["facts"]["devices"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "judged"),
    [("0,1", [0, 1]), ("2", [2]), ("{uuid3}", [3]), ("1,-1,2", [1]), ("0,9,1", [0]), ("MIG-1f", [0, 1, 2, 3])],
)
def test_only_the_gpus_of_the_job_are_judged(given, judged, gpus):
    env = {"CUDA_VISIBLE_DEVICES": given.format(uuid3=gpus.uuid(3)), "PATH": "/bin"}
    result = one("gpu.temperature", gpus, env=env)
    assert [entry["device"] for entry in result["facts"]["devices"]] == judged
    everything = one("gpu.temperature", gpus, {"devices": "all"}, env=env)
    assert len(everything["facts"]["devices"]) == 4


def test_a_job_that_sees_no_gpu_is_told_why(gpus):
    result = one("gpu.temperature", gpus, env={"CUDA_VISIBLE_DEVICES": "", "PATH": "/bin"})
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert "CUDA_VISIBLE_DEVICES=''" in result["evidence"]


def test_a_gpu_without_ecc_is_skipped(tmp_path, fake_nvml):
    names = ("ecc_mode", "ecc_corrected", "ecc_uncorrectable", "remap_failure", "retired_single_bit")
    gpus = FakeGpus(tmp_path, library=fake_nvml).device(0, **dict.fromkeys(names))
    assert one("gpu.ecc", gpus)["status"] == "skip"


def test_a_foreign_process_is_named_and_the_job_s_own_is_not(gpus):
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "SLURM_JOB_ID": "7"}) as own:
        with subprocess.Popen(["sleep", "61"], env={**os.environ, "SLURM_JOB_ID": "8"}) as other:
            gpus.process(0, own.pid, 8 << 30).device(0, memory_used=8 << 30)
            gpus.process(1, other.pid, 1 << 30)
            env = {"SLURM_JOB_ID": "7", "PATH": "/bin"}
            result = one("gpu.residue", gpus, env=env)
            allowed = one("gpu.residue", gpus, {"allow": ["sleep"]}, env=env)
            other.kill()
        own.kill()
    assert result["status"] == "fail"
    assert f"process {other.pid} (sleep) with 1024 MiB is not of this job" in result["evidence"]
    assert result["facts"]["processes"] == [{"device": 1, "pid": other.pid, "name": "sleep"}]
    must_name(result, gpus, 1)
    assert allowed["status"] == "pass"


def test_a_process_that_is_not_seen_is_foreign_and_a_desktop_is_warned_of(gpus):
    gpus.process(2, 2**22 + 5, 1 << 20)
    result = one("gpu.residue", gpus)
    assert "not seen from here" in result["evidence"]
    must_name(result, gpus, 2)


def test_a_desktop_on_the_gpu_is_warned_of(gpus):
    gpus.process(0, os.getpid(), 1 << 20, graphics=True)
    assert one("gpu.residue", gpus)["status"] == "warn"


def test_a_gpu_that_is_shared_out_is_not_judged_for_residue(gpus):
    for index in range(4):
        gpus.device(index, mig_mode=1, memory_used=40 << 30)
    assert one("gpu.residue", gpus)["status"] == "skip"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (None, "nvidia-smi is not on PATH"),
        ("#!/bin/sh\nexec sleep 600\n", "did not answer in time"),
        (
            "#!/bin/sh\necho Failed to initialize NVML: Driver/library version mismatch\nexit 18\n",
            "ended with 18: Failed",
        ),
    ],
)
@pytest.mark.usefixtures("real")
def test_nvidia_smi_that_is_missing_or_hangs_is_a_warning_or_a_fault(program, words, gpus, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    if program:
        executable(folder, "nvidia-smi", program)
    env = {"PATH": f"{folder}:/bin:/usr/bin" if program else str(folder)}
    for wanted, status in ((None, "warn"), (True, "fail"), (False, "pass")):
        result = ask("gpu.inventory", gpus, {"nvidia_smi": wanted}, env=env, check_deadline_s=5)
        assert result["status"] == status
        assert (words in result["evidence"]) == (status != "pass")


def test_nvidia_smi_that_answers_is_no_fault(gpus, tmp_path):
    folder = executable(tmp_path / "bin", "nvidia-smi", "#!/bin/sh\necho GPU 0: NVIDIA H100\n")
    result = ask("gpu.inventory", gpus, {"nvidia_smi": True}, env={"PATH": str(folder)})
    assert (result["status"], result["facts"]["nvidia_smi"]) == ("pass", "answers")


def test_nodes_of_one_vetting_have_gpus_of_their_own(gpus):
    gpus.on("node-2").device(1, temperature=97)
    assert one("gpu.temperature", gpus, process_env={"SLURMD_NODENAME": "node-1"})["status"] == "pass"
    assert one("gpu.temperature", gpus, process_env={"SLURMD_NODENAME": "node-2"})["status"] == "fail"


def test_nvml_is_asked_where_nvidia_ml_py_is_not_installed(gpus, tmp_path):
    from cordee.job.submit.bundle import write_node_zip

    write_node_zip(tmp_path / "node.zip")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'node.zip')!r})\nfrom cordee.systems.vetting.node.checks.__main__ import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input='{"checks": [{"check": "gpu.temperature"}]}',
        env={**os.environ, **gpus.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert '"status": "pass"' in done.stdout, done.stdout + done.stderr
