"""What a plan is told about a real Slurm is what that Slurm says to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import SlurmError, run_command
from cordee.backends.slurm.script import options
from cordee.backends.slurm.site.discover import discover
from cordee.core.findings import Finding
from cordee.job.cluster import list_clusters, load_cluster
from cordee.runs.folder import RunFolder
from cordee.testing.slurm import DisposableSlurm

from .conftest import HEAD, NO_SCAN, Make


@pytest.fixture
def cluster(slurm: DisposableSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DisposableSlurm:
    """A real Slurm, with nothing remembered of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CORDEE_ON", "slurm")
    return slurm


def _errors(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.severity == "error"]


def _accepted(make: Make, need: str) -> tuple[list[str], bool]:
    """Return the errors that a plan gets, and whether sbatch takes the same request."""
    _, plan, findings = make(f"{HEAD}[need]\n{need}\n")
    asked = options(RunFolder(Path(plan.folder)), plan.document())
    try:
        run_command(["sbatch", "--test-only", *asked, "--output=/dev/null", "--wrap=true"])
    except SlurmError as error:
        if error.busy:
            raise
        return _errors(findings), False
    return _errors(findings), True


def test_a_profile_is_drafted_from_a_real_slurm(cluster: DisposableSlurm) -> None:
    draft = discover()
    normal, debug = draft.profile.partitions["normal"], draft.profile.partitions["debug"]
    assert (normal.nodes, normal.cores, normal.gpus, normal.default, normal.max_time) == (4, 8, 4, True, None)
    assert (debug.max_time, debug.default) == (1800, False)
    assert normal.memory == cluster.shape.memory_mb << 20
    assert draft.profile.slurm_cluster == "disposable"
    assert (draft.facts["preempt_mode"], draft.facts["cred_expire_s"], draft.facts["sacct"]) == ("REQUEUE", 5, False)
    assert draft.profile.accounts is None
    assert "accounts: sacctmgr does not say which you have" in [finding.text for finding in draft.findings]


def test_the_cluster_slurm_is_there_and_counts_drained_nodes_out(cluster: DisposableSlurm) -> None:
    assert "slurm" in list_clusters()
    assert load_cluster("slurm").partitions["normal"].up == 4
    cluster.drain("n2", "a test")
    assert load_cluster("slurm").partitions["normal"].up == 4, "remembered for a minute"
    discover()
    assert load_cluster("slurm").partitions["normal"].up == 3


def test_a_plan_for_a_real_slurm_is_whole(cluster: DisposableSlurm, make: Make) -> None:
    _, plan, findings = make(
        f'{HEAD}[need]\nnodes = 2\ngpus_per_node = 2\npartition = "debug"\ntime = "75min"\n{NO_SCAN}'
    )
    request, segment = plan.step.request, plan.step.segment
    assert (request.cpus_per_rank, request.scheduler.exclusive) == (2, False)
    assert (segment.limit_s, segment.max_segments, segment.next) == (1800, 3, "requeue")
    assert [finding.rule for finding in findings] == ["chain"]


@pytest.mark.parametrize(
    "need",
    [
        "nodes = 4",
        "nodes = 4\ngpus_per_node = 4",
        "nodes = 3\nspare_nodes = 1\nranks_per_node = 3",
        "nodes = 2\ngpus_per_node = 1\nmemory = '1GB'",
        "memory = '16000MiB'\ncpus_per_rank = 8",
        "partition = 'debug'\ntime = '2h'",
    ],
)
def test_what_a_plan_allows_slurm_takes(cluster: DisposableSlurm, make: Make, need: str) -> None:
    assert _accepted(make, need) == ([], True)


@pytest.mark.parametrize(
    ("need", "rule"),
    [
        ("nodes = 5", "too-many-nodes"),
        ("nodes = 4\nspare_nodes = 1", "too-many-nodes"),
        ("gpus_per_node = 5", "no-gpus"),
        ("memory = '16001MiB'\ncpus_per_rank = 1", "no-memory"),
        ("cpus_per_rank = 9", "no-cores"),
        ("ranks_per_node = 3\ncpus_per_rank = 3", "no-cores"),
        ("partition = 'nromal'", "unknown-partition"),
        ("constraint = 'nothing'", "unknown-feature"),
        ("reservation = 'nothing'", "unknown-reservation"),
    ],
)
def test_what_a_plan_refuses_slurm_refuses(cluster: DisposableSlurm, make: Make, need: str, rule: str) -> None:
    errors, taken = _accepted(make, need)
    assert taken is False
    assert errors == [rule]
