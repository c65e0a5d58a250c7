from __future__ import annotations

import numpy as np
import pytest

from cordee.systems.score.cli.text import score_lines
from cordee.systems.score.diagnosis.rules import PACKAGE_FILE, read_rules
from cordee.systems.score.roofs import read_caps
from cordee.systems.score.score import score
from cordee.systems.score.trace.model import LoggedTotals, ScoredDevice

RULES, CAPS = read_rules(PACKAGE_FILE), read_caps(environ={"XDG_CONFIG_HOME": "/nowhere"})
COMPUTE = {"graphics": 0.98, "sm": 0.95, "tensor": 0.8, "fp32": 0.1, "fp64": 0.0, "dram": 0.3}
REST = {"graphics": 0.2, "sm": 0.15, "tensor": 0.1, "fp32": 0.0, "fp64": 0.0, "dram": 0.05}


def job(made, *levels, seconds=60, host=None, **more):
    """Return a scored trace in which device i has levels[i], all the time or second by second, and host values by rank metric."""
    names = levels[0]
    columns = {
        f"gpu_{name}_ratio": np.stack([np.broadcast_to(of[name], seconds) for of in levels], axis=1).astype(np.float32)
        for name in names
    }
    links = {f"gpu_pcie_{way}_bytes_per_second": 1e8 for way in ("transmit", "receive")}
    more["gpu"] = {**links, **more.get("gpu", {})}
    columns.update({name: np.full((seconds, len(levels)), value) for name, value in more.pop("gpu", {}).items()})
    ranks = {str(at): "n0" for at in range(len(levels))}
    host = {
        "cpu_cores_ratio": 1.0,
        "cpu_share_cores": 16.0,
        "thread_busiest_ratio": 0.5,
        "processes": 1.0,
        **(host or {}),
    }
    host.setdefault("io_read_bytes_per_second", 0.0)
    host.setdefault("io_write_bytes_per_second", 0.0)
    rank = made.around({name: np.full((seconds, len(levels)), value) for name, value in host.items()}, ranks)
    node = made.around({"pressure_io_ratio": np.full((seconds, 1), more.pop("io", 0.0))}, {"n0": "n0"})
    trace = made.trace(columns, rank=rank, node=node, **more)
    return score(trace, rules=RULES, caps=CAPS)


def rules_of(found):
    return {flag.rule for flag in found.flags}


def test_waiting_for_workers_is_input_with_evidence_advice_and_the_most_it_could_gain(made):
    found = job(made, REST, host={"cpu_cores_ratio": 15.5})
    cause = found.diagnosis[0]
    assert (cause.name, cause.share) == ("input", pytest.approx(1.0))
    assert "GPU 0 of n0 (rank 0)" in cause.evidence[0]
    assert "graphics 0.20" in cause.evidence[1]
    assert "cpu 0.97" in cause.evidence[1]
    assert "workers" in cause.advice[0]
    assert cause.gain == pytest.approx(5.0, rel=1e-3)


def test_workers_count_against_themselves_where_a_rank_has_many_idle_cores(made):
    host = {"cpu_cores_ratio": 8.0, "cpu_share_cores": 72.0, "processes": 9.0}
    assert job(made, REST, host=host).diagnosis[0].name == "input"


def test_a_wait_that_no_counter_explains_is_said_and_a_logged_wait_is_input(made):
    found = job(made, REST)
    assert found.diagnosis[0].name == "mixed"
    assert any("data_wait_s" in sentence for sentence in found.diagnosis[0].evidence)
    logged = {"data_wait_s": LoggedTotals(made.T0 + np.arange(60.0), np.full(60, 0.7))}
    assert job(made, REST, logged=logged).diagnosis[0].name == "input"


def test_what_others_wait_for_on_a_shared_machine_is_not_said_of_a_job_that_reads_and_writes_nothing(made):
    asleep = dict.fromkeys(REST, 0.0)

    def cause(pressure_of, **host):
        facts = {"node": {"n0": {"devices": {"n0": {"pressure_of": pressure_of}}}}}
        return job(made, asleep, io=0.5, facts=facts, host={"cpu_cores_ratio": 0.0, **host}).diagnosis[0].name

    assert cause("the whole machine") == "idle"
    assert cause("the whole machine", io_read_bytes_per_second=5e6) == "input"
    assert cause("/sys/fs/cgroup/job_7") == "input"


def test_classes_change_over_time_with_the_work(made):
    seconds = 120
    half = np.r_[np.ones(60), np.zeros(60)][:, None]
    columns = {f"gpu_{name}_ratio": (half * level).astype(np.float32) for name, level in COMPUTE.items()}
    ranks = {
        "cpu_cores_ratio": 0.1,
        "cpu_share_cores": 16.0,
        "io_write_bytes_per_second": 0.0,
        "thread_busiest_ratio": 0.1,
    }
    rank = made.around({name: np.full((seconds, 1), value) for name, value in ranks.items()}, {"0": "n0"})
    node = made.around({"pressure_io_ratio": np.zeros((seconds, 1))}, {"n0": "n0"})
    found = score(made.trace(columns, rank=rank, node=node), rules=RULES, caps=CAPS)
    assert found.windows.length_s == 10
    assert found.windows.classes[:, 0].tolist() == [6] * 6 + [2] * 6
    assert {cause.name: round(cause.share, 3) for cause in found.diagnosis} == {"compute": 0.5, "idle": 0.5}
    assert found.devices[0].classes == {"idle": 0.5, "compute": 0.5}


def test_a_short_run_is_one_window(made):
    assert len(job(made, COMPUTE, seconds=5).windows.starts) == 1


def test_samples_without_host_metrics_leave_low_use_unknown_and_say_what_is_lacking(made):
    columns = {f"gpu_{name}_ratio": np.full((60, 1), level) for name, level in REST.items()}
    cause = score(made.trace(columns), rules=RULES, caps=CAPS).diagnosis[0]
    assert cause.name == "unknown"
    assert "cpu" in cause.evidence[0]
    assert cause.evidence[-1].endswith("it would be mixed 100 %")


def test_a_missing_tensor_pipe_leaves_the_roof_open(made):
    levels = {**COMPUTE, "tensor": float("nan")}
    found = job(made, levels)
    assert found.diagnosis[0].name == "unknown"
    assert any("tensor pipe not measured" in reason for reason in found.confidence_reasons)
    assert found.confidence < job(made, COMPUTE).confidence


def test_fp32_without_tensor_cores_is_flagged(made):
    assert "fp32-without-tensor-cores" in rules_of(job(made, {**COMPUTE, "tensor": 0.01, "fp32": 0.7}))
    assert "fp32-without-tensor-cores" not in rules_of(job(made, COMPUTE))


def test_heat_power_and_empty_memory_are_flagged(made):
    gpu = {
        "gpu_throttle_thermal_ratio": 0.3,
        "gpu_throttle_power_ratio": 0.6,
        "gpu_memory_used_bytes": 20e9,
        "gpu_memory_total_bytes": 80e9,
    }
    found = rules_of(job(made, COMPUTE, gpu=gpu))
    assert {"gpu-throttled-heat", "gpu-power-capped", "gpu-memory-half-empty"} <= found
    assert not rules_of(job(made, COMPUTE, gpu=dict.fromkeys(gpu, float("nan"))))


def test_an_idle_gpu_and_unequal_work_are_named(made):
    found = job(made, COMPUTE, COMPUTE, dict.fromkeys(COMPUTE, 0.0), COMPUTE)
    assert {"device-idle", "imbalance"} <= rules_of(found)
    assert "GPU 2 of n0 (rank 2)" in next(flag.text for flag in found.flags if flag.rule == "device-idle")
    assert found.balance == pytest.approx(0.75)


def test_the_one_slow_rank_is_named_where_the_others_wait_in_communication(made):
    wait = {"graphics": 0.99, "sm": 0.2, "tensor": 0.1, "fp32": 0.0, "fp64": 0.0, "dram": 0.05}
    slow = {**wait, "sm": 0.33, "tensor": 0.16}
    found = job(made, wait, wait, wait, slow, wait, wait)
    assert found.diagnosis[0].name == "communication"
    assert any("GPU 3 of n0 (rank 3) works at 0.17" in sentence for sentence in found.diagnosis[0].evidence)
    assert "slow-rank" in rules_of(found)


def test_a_device_that_is_slow_in_one_part_of_the_time_alone_is_no_straggler(made):
    wait = {"graphics": 0.99, "sm": 0.2, "tensor": 0.1, "fp32": 0.0, "fp64": 0.0, "dram": 0.05}
    burst = np.where(np.arange(60) < 15, 0.9, 0.2)
    found = job(made, *([wait] * 5), {**wait, "sm": burst}, seconds=60)
    assert "slow-rank" not in rules_of(found)
    always = job(made, *([wait] * 5), {**wait, "sm": np.full(60, 0.37)}, seconds=60)
    assert "slow-rank" in rules_of(always)
    (flag,) = [flag for flag in always.flags if flag.rule == "slow-rank"]
    assert flag.evidence["ranks"] == [5]


def test_devices_at_the_same_place_are_compared(made):
    wait = {"graphics": 0.99, "sm": 0.2, "tensor": 0.1, "fp32": 0.0, "fp64": 0.0, "dram": 0.05}
    stages = [{**wait, "sm": 0.2 if at % 2 else 0.6} for at in range(10)]
    stages[3] = {**wait, "sm": 0.35}
    places = {str(at): {"place": {"pp": at % 2, "dp": at // 2}, "sizes": {}} for at in range(10)}
    assert "slow-rank" not in rules_of(job(made, *stages))
    found = job(made, *stages, facts={"rank": {"n0": {"devices": places}}})
    assert [flag.evidence["ranks"] for flag in found.flags if flag.rule == "slow-rank"] == [[3]]


def test_models_that_differ_are_flagged(made):
    devices = [ScoredDevice("GPU-0", "n0", 0, made.H100, (0,)), ScoredDevice("GPU-1", "n0", 1, "NVIDIA H200", (1,))]
    assert "models-mixed" in rules_of(job(made, COMPUTE, COMPUTE, devices=devices))


def test_mfu_is_what_was_logged_over_the_peak_of_all_gpus(made):
    logged = {"flops": LoggedTotals(made.T0 + np.arange(60.0), np.full(60, 2 * 400e12))}
    found = job(made, COMPUTE, COMPUTE, logged=logged)
    assert found.mfu == pytest.approx(400 / 756)
    by_token = {
        "tokens": LoggedTotals(made.T0 + np.arange(60.0), np.full(60, 2e4)),
        "flops_per_token": LoggedTotals(made.T0 + np.arange(1.0), np.array([2 * 2e10])),
    }
    facts = {"logged_ranks": {"flops_per_token": 2}}
    assert job(made, COMPUTE, COMPUTE, logged=by_token, facts=facts).mfu == pytest.approx(200 / 756)
    assert job(made, COMPUTE).mfu is None


def test_energy_is_power_over_time_and_is_not_made_up_where_it_is_missing(made):
    found = job(made, COMPUTE, gpu={"gpu_power_watts": 500.0})
    assert found.energy_joules == pytest.approx(500 * 60)
    assert job(made, COMPUTE).energy_joules is None


WAITING = {"graphics": 1.0, "sm": 0.08, "tensor": 0.0, "fp32": 0.0, "fp64": 0.0, "dram": 0.005}
ABSENT = {"graphics": 0.0, "sm": 0.0, "tensor": 0.0, "fp32": 0.0, "fp64": 0.0, "dram": 0.0}
TRAINING = {"graphics": 0.99, "sm": 0.9, "tensor": 0.5, "fp32": 0.05, "fp64": 0.0, "dram": 0.33}


@pytest.mark.parametrize("spinning", [WAITING, {**WAITING, "sm": 1.0}])
def test_gpus_that_wait_in_a_kernel_for_a_minute_hang_and_the_one_that_is_missing_is_named(made, spinning):
    found = job(made, *[spinning] * 3, ABSENT, seconds=120, host={"thread_busiest_ratio": 1.0})
    cause = found.diagnosis[0]
    assert (cause.name, cause.gain) == ("hang", None)
    assert any("GPU 3 of n0 (rank 3) (in use 0.00)" in sentence for sentence in cause.evidence), cause.evidence


def test_a_wait_shorter_than_a_minute_is_communication_and_one_gpu_alone_waits_for_nobody(made):
    assert job(made, WAITING, WAITING, seconds=40).diagnosis[0].name == "communication"
    assert job(made, WAITING, seconds=120).diagnosis[0].name != "hang"


def test_gpus_whose_pipes_or_memory_nobody_measured_are_not_said_to_hang(made):
    partly = {name: value for name, value in WAITING.items() if name != "dram"}
    assert job(made, partly, partly, seconds=120).diagnosis[0].name == "unknown"


def test_an_ordinary_training_of_a_language_model_is_not_told_to_change_its_access(made):
    cause = job(made, *[TRAINING] * 4, seconds=120, host={"thread_busiest_ratio": 1.0}).diagnosis[0]
    assert (cause.name, cause.share) == ("compute", pytest.approx(1.0))
    assert "normal" in cause.advice[0]


def test_hot_work_between_pauses_for_input_is_input_and_not_compute(made):
    hot = {**COMPUTE, "graphics": 0.7, "sm": 0.68, "tensor": 0.6}
    cause = job(made, hot, host={"cpu_cores_ratio": 15.8}).diagnosis[0]
    assert (cause.name, cause.gain) == ("input", pytest.approx(1 / 0.7, rel=1e-3))


def test_an_idle_job_is_not_promised_to_become_faster(made):
    assert [(cause.name, cause.gain) for cause in job(made, ABSENT).diagnosis] == [("idle", None)]


def test_a_few_seconds_of_samples_get_no_score_and_say_why(made):
    found = job(made, COMPUTE, seconds=2)
    assert (found.shares.score, found.devices[0].shares.score, found.confidence) == (None, None, 0.0)
    assert found.diagnosis == []
    assert found.confidence_reasons == ["only 2.0 s were sampled: a score needs at least 5 s"]
    assert any("only 2.0 s were sampled" in line for line in score_lines(found))
    assert job(made, COMPUTE, seconds=5).shares.score is not None
