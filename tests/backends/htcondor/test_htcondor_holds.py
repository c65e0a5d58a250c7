"""Why HTCondor holds a job: what pools say, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from cordee.backends.htcondor.holds import hold_of
from cordee.backends.htcondor.queue import CondorJob

RUN = "t-20261128T120000Z-abcd"
FROM_STARTER = (
    "Transfer output files failure at execution point slot1_1@e1 while sending files to access point a1. Details: Error from "
    "slot1_1@e1: STARTER at 192.0.2.1 failed to send file(s) to <192.0.2.1:9618>: |Error: reading from file "
)

HOLDS = [
    # code, subcode, reason, rule, and a word of what is said
    (1, 0, "via condor_hold (by user ada)", "held-by-person", "by user ada"),
    (3, 70, "no Python of version 3.9 or later on the machine", "no-python", "3.9"),
    (
        3,
        0,
        "The job attribute PeriodicHold expression 'MemoryUsage > RequestMemory' evaluated to TRUE",
        "held",
        "PeriodicHold",
    ),
    (
        6,
        2,
        "Error from slot1_2@e1: Failed to execute '/x/htcondor.sh': (errno=2: 'No such file')",
        "not-started",
        "htcondor.sh",
    ),
    (12, 2, f"{FROM_STARTER}/e/dir_1/{RUN}: (errno 2) No such file or directory", "output-failed", "its whole folder"),
    (
        12,
        21,
        f"{FROM_STARTER}/e/dir_1/{RUN}/logs/a: (errno 21) Is a directory- Transfer of symlinks to directories is not supported.;",
        "output-link",
        "logs/a is a link to a folder",
    ),
    (
        12,
        28,
        "SHADOW failed to receive file(s): error writing to /home/a/x: (errno 28) No space left on device",
        "disk-full",
        "disk",
    ),
    (
        12,
        2,
        "Transfer output files failure at access point a1 while receiving files from execution point slot1_1@e1. Details: "
        f"writing to file /home/a/runs/{RUN}/code/made/x: (errno 2) No such file or directory",
        "output-failed",
        "code/made/x (No such file or directory)",
    ),
    (
        12,
        13,
        f"{FROM_STARTER}/e/dir_1/{RUN}/w: (errno 13) Permission denied|x",
        "output-failed",
        "w (Permission denied)",
    ),
    (
        13,
        2,
        "Details: reading from file /home/a/plan.json: (errno 2) No such file or directory",
        "input-missing",
        "/home/a/plan.json",
    ),
    (13, 28, "writing to file /e/x: (errno 28) No space left on device", "disk-full", "before all of it had arrived"),
    (
        14,
        2,
        "Cannot access initial working directory /home/a/runs: No such file or directory",
        "folder-gone",
        "/home/a/runs",
    ),
    (21, 102, "Error from slot1_1@e1: memory usage exceeded request_memory", "memory-exceeded", "768 MB"),
    (21, 104, "Error from slot1_1@e1: disk usage exceeded allocated disk", "disk-exceeded", "2 GB"),
    (21, 0, "Error from slot1_1@e1: the machine is for jobs with GPUs", "held", "for jobs with GPUs"),
    (26, 42, "memory usage exceeded request_memory", "memory-exceeded", "memory"),
    (26, 0, "disk usage exceeded", "disk-exceeded", "disk"),
    (26, 0, "Job exceeded the maximum walltime of this pool", "too-long", "walltime"),
    (26, 0, "the job was started more than 10 times", "held", "more than 10 times"),
    (26, 0, "ask for memory by request_memory in this pool", "held", "request_memory"),
    (32, 1, "Input transfer 900 MB is more than MAX_TRANSFER_INPUT_MB", "transfer-too-large", "MAX_TRANSFER_INPUT_MB"),
    (
        34,
        0,
        "Job has gone over cgroup memory limit of 256 megabytes. Last measured usage: 240 megabytes.",
        "memory-exceeded",
        "memory",
    ),
    (34, 104, "Job has gone over its limit of scratch", "disk-exceeded", "disk"),
    (35, 0, "Cannot pull image", "container-failed", "image"),
    (45, 0, "Test of singularity failed", "container-failed", "singularity"),
    (46, 0, "The job exceeded allowed job duration of 00:05", "too-long", "00:05"),
    (47, 0, "The job exceeded allowed execute duration of 00:05", "too-long", "00:05"),
    (48, 1, "Hook returned 1", "held", "Hook returned 1"),
    (99, 0, "", "held", "code 99"),
]


def held(code: int, sub: int, reason: str, **more: Any) -> CondorJob:
    ad = {"ClusterId": 7, "ProcId": 0, "JobStatus": 5, "CordeeRun": RUN, "RequestMemory": 245, "RequestDisk": 1 << 20}
    used = {"MemoryUsage": "/Expr(((ResidentSetSize + 1023) / 1024))/", "ResidentSetSize": 750000, "DiskUsage": 1953125}
    return CondorJob({**ad, **used, "HoldReasonCode": code, "HoldReasonSubCode": sub, "HoldReason": reason, **more})


@pytest.mark.parametrize(("code", "sub", "reason", "rule", "word"), HOLDS)
def test_a_code_and_what_the_pool_says_with_it_become_a_clause(code, sub, reason, rule, word):
    hold = hold_of(held(code, sub, reason))
    assert hold.rule == rule
    assert word in hold.text
    assert hold.next
    assert "{" not in hold.next


@pytest.mark.parametrize(
    ("code", "sub", "reason", "image", "line"),
    [
        (35, 0, "Error from slot1_1@e1: Unable to find image", "docker://a/b:1", '`image = "a/b:1"`'),
        (45, 0, "Test of singularity failed", "image.sif", "the line `image`"),
        (6, 2, "Error from slot1_2@e1: Failed to execute", "image.sif", "the line `image`"),
        (13, 2, "Transfer failed: osdf:///x/a.sif: no such object", "a.sif", "the line `image`"),
    ],
)
def test_an_image_that_fails_is_the_line_to_correct(code, sub, reason, image, line):
    hold = hold_of(held(code, sub, reason, ContainerImage=image))
    assert hold.rule == "container-failed"
    assert line in hold.next
    assert "condor_release 7.0" in hold.next


def test_a_python_that_is_missing_in_an_image_is_looked_for_there():
    assert "`image` of the EDF" in hold_of(held(3, 70, "no Python", ContainerImage="image.sif")).next


def test_more_memory_is_asked_for_than_was_seen_and_the_job_can_go_on_with_it():
    hold = hold_of(held(21, 102, "memory usage exceeded request_memory"))
    assert hold.change == {"need.memory": "1152MB"}
    assert hold.text == "it used more memory (768 MB) than the 257 MB that it had asked for"
    assert '[need] memory = "1152MB"' in hold.next
    assert "condor_qedit 7.0 RequestMemory 1099" in hold.next
    assert "condor_release 7.0" in hold.next


def test_memory_that_was_last_seen_below_the_limit_is_not_told_as_the_cause():
    hold = hold_of(held(26, 0, "memory usage exceeded request_memory", ResidentSetSize=1000))
    assert hold.text == "it used more memory than the 257 MB that it had asked for"
    assert hold.change == {"need.memory": "1000MB"}


def test_more_disk_is_asked_for_than_was_used():
    hold = hold_of(held(21, 104, "disk usage exceeded allocated disk"))
    assert hold.change == {"need.disk": "3GB"}
    assert "condor_qedit 7.0 RequestDisk 2929688" in hold.next


def test_only_holds_for_what_was_asked_for_name_a_line_of_the_document():
    changed = {rule for code, sub, reason, rule, _ in HOLDS if hold_of(held(code, sub, reason)).change}
    assert changed == {"memory-exceeded", "disk-exceeded", "disk-full"}
