"""What a Slurm cluster cannot do is said before submission, with the nearest that it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.findings import Finding
from cordee.job.plan.render import render_plan
from cordee.job.plan.requirement import describe, meets
from cordee.job.profile import GpuModel

from .conftest import Make

SITE = """
scheduler = "slurm"
reservations = ["maintenance"]
[partitions.normal]
default = true
nodes = 6
up = 4
cores = 64
memory = "256GiB"
gpus = 0
features = ["fast", "nvme"]
max_nodes = 5
accounts = ["a1", "a2"]
[partitions.gpu]
allow_qos = ["normal", "long"]
[[partitions.gpu.groups]]
nodes = 3
up = 3
cores = 72
memory = "480GB"
gpus = 4
gpu_model = "a100"
[[partitions.gpu.groups]]
nodes = 2
up = 1
cores = 32
memory = "128GB"
gpus = 2
gpu_model = "v100"
[partitions.closed]
state = "drain"
cores = 1
[partitions.off]
state = "down"
cores = 1
[accounts.a1]
default = true
qos = ["normal", "long"]
[accounts.a2]
partitions = ["gpu"]
[accounts.a3]
[qos.normal]
max_gpus = 12
[qos.long]
max_nodes = 1
"""
GPU = 'partition = "gpu"\n'


def _said(findings: list[Finding], *severities: str) -> list[Finding]:
    return [finding for finding in findings if finding.severity in (severities or ("error",))]


def _one(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


@pytest.mark.parametrize(
    ("need", "rule", "line", "given", "allowed", "what"),
    [
        ('partition = "nromal"', "unknown-partition", 4, "nromal", ["closed", "gpu", "normal", "off"], "did you mean normal?"),
        ('partition = "zzz"', "unknown-partition", 4, "zzz", ["closed", "gpu", "normal", "off"], "name one of these"),
        ('partition = "closed"', "partition-closed", 4, "closed", ["gpu", "normal"], "choose another, or wait"),
        ("nodes = 7\n", "over-limit", 4, 7, "at most 5 nodes in one job", "ask for fewer, or choose another partition or QOS"),
        (f"{GPU}nodes = 6", "too-many-nodes", 5, 6, "at most 5", "nodes = 5"),
        (f"{GPU}nodes = 4\nspare_nodes = 2", "too-many-nodes", 6, 2, "at most 5 with the spares", "spare_nodes = 1"),
        (f"{GPU}gpus_per_node = 4\nnodes = 4\naccount = 'a3'", "too-many-nodes", 6, 4, "at most 3", "nodes = 3"),
        (f"{GPU}gpus_per_node = 4\nnodes = 4\nqos = 'normal'", "over-limit", 5, 4, "at most 12 GPUs in one job", "ask for fewer, or choose another partition or QOS"),
        (f"{GPU}gpus_per_node = 8", "no-gpus", 5, 8, "at most 4 per node", "gpus_per_node = 4 with nodes = 2"),
        ("gpus_per_node = 1", "no-gpus", 4, 1, "at most 0 per node", 'gpus_per_node = 0, or partition = "gpu"'),
        ('memory = "300GiB"', "no-memory", 4, 300 << 30, "at most 275 GB per node", 'memory = "262144MiB", or partition = "gpu"'),
        (f'{GPU}memory = "1TB"', "no-memory", 5, 10**12, "at most 480 GB per node", 'memory = "457763MiB"'),
        ("cpus_per_rank = 65", "no-cores", 4, 65, "at most 64 cores per node", 'cpus_per_rank = 64, or partition = "gpu"'),
        ("ranks_per_node = 80", "no-cores", 4, 80, "at most 64 cores per node", "ranks_per_node = 64"),
        ('constraint = "fsat"', "unknown-feature", 4, "fsat", ["fast", "nvme"], 'name a feature that nodes have, or partition = "gpu"'),
        (f"{GPU}gpus_per_node = 1\ngpu = 'memory >= 90GB'", "gpu-requirement", 6, "memory >= 90GB",
         ["a100 (42.9 GB to 85.9 GB, capability 8.0)", "v100 (17.2 GB to 34.4 GB, capability 7.0)"], "ask for less"),
        (f"{GPU}gpus_per_node = 1\nnodes = 4\ngpu = 'model = a100'", "too-many-nodes", 6, 4, "at most 3", "nodes = 3"),
        ('account = "a11"', "unknown-account", 4, "a11", ["a1", "a2", "a3"], "did you mean a1?"),
        ('account = "a3"', "account-not-allowed", 4, "a3", ["a1", "a2"], "choose another account or partition"),
        ('account = "a2"', "account-not-allowed", 4, "a2", ["gpu"], "choose another account or partition"),
        ('qos = "logn"', "unknown-qos", 4, "logn", ["long", "normal"], "did you mean long?"),
        (f'{GPU}qos = "x"\naccount = "a3"', "unknown-qos", 5, "x", ["long", "normal"], "name one of these"),
        ('qos = "long"\nnodes = 2', "over-limit", 5, 2, "at most 1 node in one job", "ask for fewer, or choose another partition or QOS"),
        ('reservation = "maintenence"', "unknown-reservation", 4, "maintenence", ["maintenance"], "did you mean maintenance?"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_met_is_an_error_with_the_nearest(
    site: Make, tmp_path: Path, need: str, rule: str, line: int, given: object, allowed: object, what: str
) -> None:
    found = _one(_said(site(need, SITE)[2]))
    assert (found.rule, found.line, found.given, found.allowed, found.next) == (rule, line, given, allowed, what)
    assert found.file == str(tmp_path / "job/cordee.toml")


@pytest.mark.parametrize(
    "need",
    [
        "",
        "nodes = 4",
        f"{GPU}nodes = 4\nmemory = '100GB'",
        f"{GPU}nodes = 3\ngpus_per_node = 4\nmemory = '480GB'",
        f"{GPU}gpus_per_node = 4\ngpu = 'capability >= 8.0, memory >= 40GB'",
        'constraint = "fast&nvme"',
        'constraint = "fast|zzz"',
        'reservation = "maintenance"',
        f'{GPU}qos = "long"',
        f'{GPU}account = "a2"',
    ],
)
def test_a_request_that_can_be_met_has_neither_error_nor_warning(site: Make, need: str) -> None:
    assert [finding.rule for finding in _said(site(need, SITE)[2], "error", "warn")] == ["no-slurm"]


def test_a_qos_that_the_partition_does_not_take_is_refused(site: Make) -> None:
    profile = SITE.replace('allow_qos = ["normal", "long"]', 'allow_qos = ["normal"]')
    found = _one(_said(site(f'{GPU}qos = "long"', profile)[2]))
    assert (found.rule, found.given, found.allowed) == ("qos-not-allowed", "long", ["normal"])


def test_a_limit_is_told_with_whose_it_is(site: Make) -> None:
    profile = SITE.replace("[accounts.a1]\n", "[accounts.a1]\nmax_nodes = 2\nmax_cpus = 100\n")
    found = _one(_said(site("nodes = 3\ncpus_per_rank = 1", profile)[2]))
    assert found.text == "the job asks for 3 nodes, and account a1 allows one job 2"
    found = _one(_said(site("nodes = 2", profile)[2]))
    assert found.text == "the job asks for 128 cores, and account a1 allows one job 100"


def test_nodes_that_are_down_are_a_warning(site: Make) -> None:
    found = _one([finding for finding in site("nodes = 5", SITE)[2] if finding.rule == "nodes-down"])
    assert found.severity == "warn"
    assert found.text == "4 of 6 nodes in partition normal are up: the job waits until 5 are"
    found = _one(
        [f for f in site(f"{GPU}nodes = 2\ngpus_per_node = 2\ngpu = 'model = v100'", SITE)[2] if "up" in f.text]
    )
    assert found.text == "1 of 2 such nodes in partition gpu are up: the job waits until 2 are"


def test_a_partition_that_is_down_is_a_warning(site: Make) -> None:
    found = _one([finding for finding in site('partition = "off"', SITE)[2] if finding.rule == "partition-closed"])
    assert (found.severity, found.text) == ("warn", "partition off is down: jobs wait until it is up")


def test_a_cluster_without_a_default_partition_wants_one(site: Make) -> None:
    found = _one(_said(site("", SITE.replace("default = true\nnodes", "nodes"))[2]))
    assert (found.rule, found.text) == ("no-partition", "alps has no default partition, and none is named")
    assert found.next == 'add partition = "closed" to [need]'


def test_a_person_without_an_account_is_told(site: Make) -> None:
    profile = 'scheduler = "slurm"\n[partitions.p]\ncores = 1\n[accounts]\n'
    found = _one(_said(site("", profile)[2]))
    assert (found.rule, found.allowed, found.next) == (
        "unknown-account",
        "you have no account here",
        "ask the site for one",
    )


def test_only_some_gpus_meet_a_requirement_so_their_type_is_asked_for(site: Make) -> None:
    need = f"{GPU}gpus_per_node = 2\ngpu = 'capability >= 8.0'"
    _, plan, _ = site(need, SITE)
    assert plan.step.request.scheduler.gpu_type == "a100"
    assert "gpu type    a100" in render_plan(plan, "")
    assert site(need.replace("8.0", "6.0"), SITE)[1].step.request.scheduler.gpu_type is None
    assert site(need.replace("8.0", "9.0"), SITE)[1].step.request.scheduler.gpu_type is None


def test_a_requirement_that_cannot_be_judged_is_a_warning(site: Make) -> None:
    need = f"{GPU}gpus_per_node = 4\ngpu = 'memory >= 60GB'"
    found = _one([finding for finding in site(need, SITE)[2] if finding.rule == "gpu-unknown"])
    assert (found.severity, found.next) == (
        "warn",
        "say it in the cluster's profile: [gpu.a100] memory and capability",
    )
    told = SITE + '[gpu.A100]\nmemory = "80GB"\ncapability = 8.0\n'
    assert not [finding for finding in site(need, told)[2] if finding.rule == "gpu-unknown"]
    unnamed = SITE.replace('gpu_model = "a100"\n', "").replace('gpu_model = "v100"\n', "")
    assert [finding.rule for finding in site(need, unnamed)[2]].count("gpu-unknown") == 1


def test_cores_that_nobody_knows_are_a_warning(site: Make) -> None:
    profile = 'scheduler = "slurm"\n[partitions.p]\nnodes = 1\n'
    rules = [finding.rule for finding in _said(site("", profile)[2], "warn")]
    assert rules == ["no-slurm", "unknown-cores"]
    assert [f.rule for f in _said(site("cpus_per_rank = 2", profile)[2], "warn")] == ["no-slurm"]


def test_srun_starts_ranks_where_slurm_is(site: Make) -> None:
    _, plan, findings = site("", SITE, rest='launch = "srun"\n')
    assert (plan.step.tasks.launch, _said(findings)) == ("srun", [])


@pytest.mark.parametrize(
    ("option", "word", "instead"),
    [
        ("--nodes=3", "--nodes=3", "[need] nodes"),
        ("-N 3", "-N", "[need] nodes"),
        ("-N3", "-N3", "[need] nodes"),
        ("--signal=B:USR1@60", "--signal=B:USR1@60", "[checkpoint] grace and signal"),
        ("--comment=x", "--comment=x", "nothing: Cordée sets it itself"),
        ("--output=/dev/null", "--output=/dev/null", "nothing: `cordee logs` shows what the ranks print"),
        ("--array=1-3", "--array=1-3", "[sweep], or one run for each"),
        ("--requeue", "--requeue", "`requeue` in the cluster's profile"),
        ("--gres=gpu:2", "--gres=gpu:2", "[need] gpus_per_node"),
        ("--gres=nvme:1,gpu:a100:2", "--gres=nvme:1,gpu:a100:2", "[need] gpus_per_node"),
        ("--job-n=x", "--job-n=x", "name"),
        ("--exclude=n1 --export=NONE", "--export=NONE", "[env]"),
        ("--mem=0", "--mem=0", "[need] memory"),
    ],
)
def test_options_that_would_undo_the_plan_are_refused_by_name(site: Make, option: str, word: str, instead: str) -> None:
    found = _one(_said(site("", SITE, rest=f'slurm = {{ options = ["{option}"] }}\n')[2]))
    assert (found.rule, found.line, found.given) == ("own-option", 3, option)
    assert (found.text, found.next) == (f"{word} would undo what the plan says", f"use {instead}")


@pytest.mark.parametrize("option", ["nodes=3", "--x '", "", "--exclude=n1\\n#SBATCH --nodes=9"])
def test_what_is_no_option_is_refused(site: Make, option: str) -> None:
    found = _one(
        [f for f in site("", SITE, rest=f'slurm = {{ options = ["{option}"] }}\n')[2] if f.rule == "bad-option"]
    )
    assert found.severity == "error"


def test_other_options_pass(site: Make) -> None:
    options = '["--exclude=n1", "--mail-type=END", "--gres=nvme:1", "--dependency=afterok:1", "--exclusive", "-x n3"]'
    _, plan, findings = site("", SITE, rest=f"slurm = {{ options = {options} }}\n")
    assert _said(findings) == []
    assert len(plan.step.request.scheduler.options) == 6


def test_whole_nodes_by_an_option_have_their_memory_too(site: Make) -> None:
    _, plan, _ = site("cpus_per_rank = 1", SITE, rest='slurm = { options = ["--exclusive"] }\n')
    assert plan.step.request.scheduler.exclusive
    assert not site("cpus_per_rank = 1", SITE)[1].step.request.scheduler.exclusive


def test_a_profile_for_another_slurm_is_refused(site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = f"{SITE}\n".replace('scheduler = "slurm"', 'scheduler = "slurm"\nslurm_cluster = "a"\nanswering = "b"')
    found = _one(_said(site("", profile)[2]))
    assert (found.rule, found.given, found.allowed) == ("other-cluster", "a", "b")


def test_check_shows_where_a_job_goes_and_its_segments(site: Make) -> None:
    profile = SITE.replace("default = true\n", 'default = true\nmax_time = "1h"\n')
    _, plan, _ = site('time = "2h"\naccount = "a1"\nqos = "normal"\nconstraint = "fast"', profile)
    lines = render_plan(plan, "").splitlines()
    for line in (
        "partition   normal",
        "account     a1",
        "qos         normal",
        "constraint  fast",
        "cores       64 per rank",
        "share       whole nodes, with all their memory",
        "time        2 h",
        "segments    3 of 1 h; each saves 2 min before its end and is requeued",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("requirement", "model", "answer"),
    [
        (None, "a100", True),
        ("memory >= 40GB", "a100", True),
        ("memory >= 60GB", "a100", None),
        ("memory >= 60GB", "nvidia_a100-sxm4-80gb", True),
        ("memory >= 60GB", "a100_40gb", False),
        ("memory >= 100GB", "a100", False),
        ("capability >= 8.0", "a100", True),
        ("capability >= 9.0", "a100", False),
        ("capability >= 8.0", "mi300x", None),
        ("memory >= 1GB", "unheard-of", None),
        ("memory >= 1GB", None, None),
        ("model = A100", "a100", True),
        ("model = h100, memory >= 1GB", "a100", False),
        ("memory >= 24GiB", "l4", True),
        ("memory >= 24GB", "special", True),
        ("capability >= 8.0", "special", None),
    ],
)
def test_a_gpu_meets_a_requirement_or_not_or_that_is_unknown(
    requirement: str | None, model: str | None, answer: bool | None
) -> None:
    known = {"Special": GpuModel(memory=48 * 10**9)}
    assert meets(requirement, model, known) is answer


def test_a_model_is_described_with_what_is_known() -> None:
    assert describe("h200", {}) == "h200 (151 GB, capability 9.0)"
    assert describe("unheard-of", {}) == "unheard-of (nothing known of it)"
