"""What a test has shown, held against what the job asks for."""

from __future__ import annotations

import pytest

from cordee.systems.steps.node.judge import JobRequest, judged, predicted
from cordee.systems.steps.node.learned import Learned

GB = 10**9
ASKED = JobRequest(1, 2, 0, 8 * GB, 3600.0, 3600.0, 120.0, 1, 600.0, 3, True)
SEEN = Learned(
    nodes=1,
    ranks=1,
    steps=20,
    step_s=1.0,
    start_s=10.0,
    memory_bytes=3 * GB,
    checkpoint_bytes=GB,
    save_s=5.0,
    free_bytes=50 * GB,
)


def test_a_request_that_fits_is_no_finding():
    assert judged(SEEN, ASKED, 2000) == []


@pytest.mark.parametrize(
    ("seen", "asked", "steps", "severity", "words"),
    [
        (SEEN._replace(memory_bytes=5 * GB), ASKED, 2000, "error", "memory is too small"),
        (SEEN._replace(memory_bytes=GB // 4), ASKED, 2000, "warn", "memory is far too large"),
        (SEEN, ASKED, 5000, "error", "the time is too short"),
        (SEEN, ASKED, 100, "warn", "the time is far too long"),
        (SEEN._replace(save_s=150.0), ASKED._replace(every_s=None), 2000, "error", "the grace is too short"),
        (SEEN._replace(free_bytes=2 * GB), ASKED, 2000, "error", "the disk is too full"),
        (SEEN._replace(gpus_unused=2), ASKED._replace(gpus_per_node=4), 2000, "warn", "2 GPUs were never used"),
        (
            SEEN._replace(gpus_unused=0, gpu_busy_ratio=0.01),
            ASKED._replace(gpus_per_node=4),
            2000,
            "warn",
            "busy for 1%",
        ),
    ],
)
def test_too_small_is_an_error_and_far_too_large_a_warning_with_numbers(seen, asked, steps, severity, words):
    (found,) = judged(seen, asked, steps)
    assert (found.severity, words in found.text) == (severity, True), found
    assert found.next


GPUS = ASKED._replace(gpus_per_node=4, gpu_memory_bytes=24 * GB)
HELD = SEEN._replace(gpu_busy_ratio=0.9, gpus_unused=0, gpu_total_bytes=80 * GB)


@pytest.mark.parametrize(
    ("seen", "asked", "severity", "words"),
    [
        (HELD._replace(gpu_memory_bytes=30 * GB), GPUS, "error", 'need.gpu = "memory >= 36GB"'),
        (HELD._replace(gpu_memory_bytes=60 * GB), GPUS, "warn", "XLA_PYTHON_CLIENT_PREALLOCATE"),
        (HELD._replace(gpu_memory_bytes=4 * GB), GPUS, "warn", 'need.gpu = "memory >= 5GB"'),
        (HELD._replace(gpu_memory_bytes=79 * GB), GPUS._replace(gpu_memory_bytes=None), "warn", "may not fit"),
    ],
)
def test_memory_of_gpus_is_held_against_the_request(seen, asked, severity, words):
    (found,) = judged(seen, asked, 2000)
    assert (found.severity, words in found.next) == (severity, True), found
    assert "a GPU of the test held" in found.text


def test_memory_of_gpus_that_fits_or_is_of_no_job_with_gpus_is_not_told():
    for seen, asked in (
        (HELD._replace(gpu_memory_bytes=20 * GB), GPUS),
        (HELD._replace(gpu_memory_bytes=30 * GB), GPUS._replace(gpus_per_node=0)),
        (HELD, GPUS),
    ):
        assert judged(seen, asked, 2000) == []


def test_memory_is_that_of_as_many_ranks_as_the_job_has_on_a_node():
    (found,) = judged(SEEN._replace(ranks=2, memory_bytes=9 * GB), ASKED, 2000)
    assert "4.5 GB each" in found.text
    assert "9 GB" in found.text


def test_total_and_segments_are_predicted_from_a_step_the_start_and_the_saves():
    asked = ASKED._replace(time_s=20000.0, limit_s=3600.0, every_s=1000.0)
    assert predicted(SEEN, asked, 10000) == {"total_s": 10 + 9999 + 50, "segments": 3, "steps": 10000}


def test_segments_of_a_script_that_cannot_continue_are_refused():
    (found,) = judged(SEEN, ASKED._replace(time_s=20000.0, resumes=False), 10000)
    assert found.severity == "error"
    assert "3 segments" in found.text


def test_what_was_not_seen_is_not_judged():
    assert judged(Learned(), ASKED, None) == []
    assert predicted(SEEN._replace(total=20), ASKED, None)["total_s"] is None
