"""A time that is longer than one job may take becomes a chain; partition, class and share of a node are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import HEAD, Make

H = 3600
SITE = """
scheduler = "slurm"
requeue = "resubmit"
python = "/opt/python3.11"
network_interface = "hsn0"
network_trusted = true
release_held = false
[partitions.normal]
default = true
max_time = "24h"
default_time = "1h"
cores = 64
memory = "256GB"
nodes = 8
[partitions.gpu]
max_time = "12h"
cores = 72
gpus = 4
nodes = 4
[partitions.bare]
"""
CLASSES = """
[classes.short]
max_time = "2h"
partition = "gpu"
[classes.long]
max_time = "20h"
partition = "normal"
qos = "long"
"""


@pytest.mark.parametrize(
    ("need", "limit_s", "grace_s", "count"),
    [
        ('time = "24h"', 24 * H, 120, 1),
        ('time = "72h"', 24 * H, 120, 4),
        ('time = "1430min"', 1430 * 60, 120, 1),
        ('time = "2876min"', 24 * H, 120, 2),
        ('time = "2877min"', 24 * H, 120, 3),
        ('time = "36h"\npartition = "gpu"', 12 * H, 120, 4),
        ('time = "36h"\npartition = "bare"', 36 * H, 120, 1),
        ("", H, 120, 1),
        ('partition = "gpu"', 12 * H, 120, 1),
        ('partition = "bare"', None, 120, 1),
    ],
)
def test_a_time_over_the_limit_becomes_segments(
    site: Make, need: str, limit_s: float | None, grace_s: float, count: int
) -> None:
    _, plan, _ = site(need, SITE)
    segment = plan.step.segment
    assert (segment.limit_s, segment.grace_s, segment.max_segments) == (limit_s, grace_s, count)
    assert segment.next == "resubmit"


def test_the_grace_is_never_more_than_half_of_a_segment(site: Make) -> None:
    profile = SITE.replace('max_time = "24h"', 'max_time = "2min"').replace('default_time = "1h"', "")
    _, plan, _ = site('time = "10min"', profile)
    assert (plan.step.segment.limit_s, plan.step.segment.grace_s, plan.step.segment.max_segments) == (120, 60, 10)


def test_a_chain_is_announced_with_its_numbers(site: Make) -> None:
    _, _, findings = site('time = "72h"', SITE)
    (found,) = [finding for finding in findings if finding.rule == "chain"]
    assert found.severity == "info"
    assert found.text.startswith("3 d becomes a chain of up to 4 segments of 1 d, the limit of partition normal")
    assert found.text.endswith("then a new job is submitted")


def test_a_chain_that_would_begin_at_zero_each_time_is_an_error(site: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("")
    (found,) = [finding for finding in site('time = "72h"', SITE)[2] if finding.rule == "restart-from-zero"]
    assert found.severity == "error"
    assert found.text.endswith("each of the 4 segments of this chain would start training from scratch")
    assert str(found.next).endswith(", or ask for no more than 1 d")
    assert [f.severity for f in site('time = "2h"', SITE)[2] if f.rule == "restart-from-zero"] == ["warn"]


def test_a_time_over_the_limit_is_an_error_where_chains_are_forbidden(site: Make) -> None:
    _, plan, findings = site('time = "72h"', SITE.replace("resubmit", "forbidden"))
    (found,) = [finding for finding in findings if finding.rule == "too-long"]
    assert (found.severity, found.line, found.allowed) == ("error", 4, "at most 1 d")
    assert "1440min" in str(found.next)
    assert plan.step.segment.next == "forbidden"


def test_a_job_without_a_time_is_told_what_it_gets(site: Make) -> None:
    needs = ("", 'partition = "gpu"', 'partition = "bare"')
    texts = [finding.text for need in needs for finding in site(need, SITE)[2] if finding.rule == "no-time"]
    assert texts == [
        "no time is given: the job gets 1 h, the default of partition normal",
        "no time is given: the job gets 12 h, the limit of partition gpu",
        "no time is given, and no limit is known: the job runs until it ends by itself",
    ]


@pytest.mark.parametrize(
    ("need", "partition", "qos"),
    [
        ("", "normal", None),
        ('time = "1h"', "gpu", None),
        ('time = "3h"', "normal", "long"),
        ('time = "90h"', "normal", "long"),
        ('time = "1h"\npartition = "normal"', "normal", None),
        ('time = "1h"\nqos = "x"', "normal", "x"),
    ],
)
def test_the_shortest_class_that_holds_the_time_is_chosen(site: Make, need: str, partition: str, qos: str) -> None:
    _, plan, _ = site(need, SITE + CLASSES)
    assert (plan.step.request.scheduler.partition, plan.step.request.scheduler.qos) == (partition, qos)


def test_a_class_whose_nodes_cannot_hold_the_job_is_passed_over(site: Make) -> None:
    profile = SITE.replace("nodes = 8\n", "nodes = 8\ngpus = 0\n") + CLASSES
    request = site('time = "13h"\ngpus_per_node = 4', profile)[1].step.request
    assert request.scheduler.partition == "gpu"
    assert site('time = "1h"\nmemory = "1TB"', profile)[1].step.request.scheduler.partition == "gpu"


def test_the_class_that_was_chosen_is_said(site: Make) -> None:
    (found,) = [finding for finding in site('time = "3h"', SITE + CLASSES)[2] if finding.rule == "class"]
    assert found.text == "3 h is of class long: partition normal, QOS long"


def test_a_class_limits_its_segments(site: Make) -> None:
    _, plan, findings = site('time = "40h"', SITE + CLASSES)
    assert (plan.step.segment.limit_s, plan.step.segment.max_segments) == (20 * H, 3)
    assert any("the limit of class long" in finding.text for finding in findings)


LIMITS = """
[accounts.a1]
default = true
qos = ["normal", "wide"]
default_qos = "normal"
max_time = "6h"
[accounts.a2]
max_time = "5h"
[qos.normal]
max_time = "8h"
[qos.wide]
[qos.endless]
over_partition = true
max_time = "48h"
"""


@pytest.mark.parametrize(
    ("need", "hours"),
    [
        ("", 8),
        ('qos = "wide"', 6),
        ('account = "a2"', 5),
        ('account = "a2"\nqos = "endless"', 48),
    ],
)
def test_the_qos_goes_before_the_account_and_the_partition_limits_both(site: Make, need: str, hours: int) -> None:
    _, plan, _ = site(f'time = "90h"\n{need}', SITE + LIMITS)
    assert plan.step.segment.limit_s == hours * H


def test_the_qos_of_a_partition_goes_before_the_jobs(site: Make) -> None:
    profile = SITE.replace("default = true\n", 'default = true\nqos = "wide"\n') + LIMITS
    _, plan, _ = site('time = "90h"', profile.replace("[qos.wide]", '[qos.wide]\nmax_time = "3h"'))
    assert plan.step.segment.limit_s == 3 * H


@pytest.mark.parametrize(
    ("need", "cpus", "whole"),
    [
        ("", 64, True),
        ("ranks_per_node = 3", 21, True),
        ("ranks_per_node = 100", 1, True),
        ("cpus_per_rank = 64", 64, True),
        ("cpus_per_rank = 5", 5, False),
        ('partition = "gpu"\ngpus_per_node = 4', 18, True),
        ('partition = "gpu"\ngpus_per_node = 1', 18, False),
        ('partition = "gpu"\ngpus_per_node = 2\nranks_per_node = 1', 36, False),
        ('partition = "gpu"', 72, True),
        ('partition = "bare"', None, False),
        ('partition = "bare"\ncpus_per_rank = 3', 3, False),
    ],
)
def test_a_job_gets_its_share_of_the_cores(site: Make, need: str, cpus: int | None, whole: bool) -> None:
    request = site(need, SITE)[1].step.request
    assert (request.cpus_per_rank, request.scheduler.exclusive) == (cpus, whole)


def test_the_share_is_taken_of_the_smallest_node_that_can_hold_it(site: Make) -> None:
    groups = """
[[partitions.normal.groups]]
nodes = 2
cores = 16
gpus = 0
[[partitions.normal.groups]]
nodes = 2
cores = 128
gpus = 8
"""
    profile = SITE.replace('cores = 64\nmemory = "256GB"\nnodes = 8\n', "") + groups
    assert site("", profile)[1].step.request.cpus_per_rank == 16
    assert site("gpus_per_node = 2", profile)[1].step.request.cpus_per_rank == 16
    assert site("gpus_per_node = 8", profile)[1].step.request.cpus_per_rank == 16
    assert site("gpus_per_node = 1\nranks_per_node = 1", profile)[1].step.request.cpus_per_rank == 16


def test_what_the_profile_says_of_nodes_reaches_the_node_side(site: Make) -> None:
    _, plan, _ = site("", SITE)
    assert (plan.backend, plan.python, plan.network_interface) == ("slurm", "/opt/python3.11", "hsn0")
    assert plan.network_trusted
    assert plan.document()["release_held"] is False


def test_a_plan_for_this_machine_knows_nothing_of_segments(make: Make) -> None:
    _, plan, _ = make(HEAD + '[need]\ntime = "720h"\n')
    segment, request = plan.step.segment, plan.step.request
    assert (segment.limit_s, segment.max_segments) == (720 * H, 1)
    assert (request.cpus_per_rank, request.scheduler.partition, request.scheduler.exclusive) == (None, None, False)
