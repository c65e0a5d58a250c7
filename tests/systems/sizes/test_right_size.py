"""What to ask for next time."""

from __future__ import annotations

from cordee.systems.sizes.right_size import right_size
from cordee.systems.sizes.used import RunUse

GB = 10**9
ASKED = {
    "nodes": 1,
    "ranks_per_node": 1,
    "gpus_per_node": 0,
    "cpus_per_rank": 16,
    "memory_bytes": 64 * GB,
    "time_s": 36000.0,
}


def use(**more) -> RunUse:
    return RunUse(
        "r",
        {**ASKED, **more.pop("request", {})},
        **{"finished": True, "seconds": 3600.0, "memory_bytes": 2.0 * GB, "cores": 2.0, **more},
    )


def test_one_run_halves_an_oversized_request_and_says_why():
    found = right_size([use()])
    assert found.request == {
        "nodes": 1,
        "ranks_per_node": 1,
        "gpus_per_node": 0,
        "cpus_per_rank": 8,
        "memory": "32GB",
        "time": "5h",
    }
    assert [reason.what for reason in found.reasons] == ["memory", "time", "cpus_per_rank"]
    assert "one run tells little" in found.reasons[0].text
    assert all(reason.risk for reason in found.reasons)


def test_from_three_runs_on_the_highest_peak_decides():
    found = right_size([use(), use(memory_bytes=5.0 * GB), use()])
    assert found.request["memory"] == "6.5GB"
    assert found.request["time"] == "78min"


def test_a_request_that_was_nearly_used_up_grows():
    found = right_size([use(memory_bytes=60.0 * GB, seconds=35000.0, cores=16.0)])
    assert found.request["memory"] == "78GB"
    assert found.request["time"] == "759min"


def test_runs_that_did_not_finish_say_nothing_of_time_and_unmeasured_ones_nothing_at_all():
    found = right_size([use(finished=False, memory_bytes=None, cores=None)])
    assert found.reasons == ()
    assert len(found.unknown) == 3


def test_runs_with_gpus_and_without_are_compared_by_time_wait_and_gpu_hours():
    gpus = use(request={"gpus_per_node": 4, "nodes": 2}, seconds=900.0, waited_s=7200.0)
    found = right_size([gpus, use(seconds=600.0, waited_s=1.0, finished=False), use(seconds=3600.0, waited_s=60.0)])
    assert found.document()["cpu_or_gpu"] == {
        "with": {"seconds": 900.0, "waited_s": 7200.0, "gpu_hours": 2.0},
        "without": {"seconds": 3600.0, "waited_s": 60.0, "gpu_hours": 0.0},
        "sooner": "without",
    }
    (line,) = [line for line in found.lines() if line.startswith("CPU or GPU")]
    assert line == (
        "CPU or GPU: with GPUs 15 min after 2 h in the queue, 2 GPU hours; without GPUs 1 h after 1 min in the queue: "
        "done sooner without"
    )
    assert right_size([gpus, gpus]).document()["cpu_or_gpu"] is None
    assert right_size([gpus, use()]).document()["cpu_or_gpu"] is None  # nobody knows for how long it waited


def test_gpus_that_did_nothing_are_not_asked_for_again():
    four = {"gpus_per_node": 4}
    (reason,) = [each for each in right_size([use(request=four, gpus=4, gpus_used=1)]).reasons if "gpu" in each.what]
    assert (reason.before, reason.after) == (4, 1)
    idle = use(request=four, gpus=4, gpus_used=4, gpu_busy_ratio=0.01)
    assert right_size([idle]).request["gpus_per_node"] == 0
