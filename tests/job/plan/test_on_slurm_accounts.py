"""Accounts, QOS and kinds of GPUs: what a plan is told is what a real Slurm with accounting enforces."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import WAITING_STATES, SlurmError, job_record, run_command
from cordee.backends.slurm.script import options
from cordee.backends.slurm.site.discover import discover
from cordee.runs.folder import RunFolder
from cordee.testing.daemons import wait_until
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.configuration import user_name

from .conftest import HEAD, Make

pytestmark = pytest.mark.usefixtures("real")

H = 3600
SET_UP = (
    ("sacctmgr", "-i", "add", "qos", "short", "set", "MaxWall=01:00:00"),
    ("sacctmgr", "-i", "add", "qos", "narrow", "set", "MaxTRES=node=1", "MaxWall=06:00:00"),
    ("sacctmgr", "-i", "add", "account", "others", "Cluster=disposable"),
    ("sacctmgr", "-i", "modify", "account", "research", "set", "qos=normal,narrow"),
    ("sacctmgr", "-i", "modify", "user", user_name(), "set", "DefaultAccount=research"),
    ("scontrol", "create", "PartitionName=limited", "Nodes=ALL", "MaxTime=12:00:00", "QOS=short"),
    ("scontrol", "create", "PartitionName=closed", "Nodes=ALL", "AllowAccounts=others"),
)


@pytest.fixture(scope="module")
def enforcing() -> Iterator[DisposableSlurm]:
    """A real Slurm that enforces accounts, QOS and their limits."""
    cluster = DisposableSlurm(
        Path(tempfile.mkdtemp(prefix="cordee-slurm-")),
        nodes=2,
        accounting=True,
        partitions={"normal": {"Default": "YES", "MaxTime": "12:00:00"}},
        settings={"AccountingStorageEnforce": "associations,limits,qos"},
    )
    with cluster:
        for command in SET_UP:
            cluster.command(*command)
        yield cluster


@pytest.fixture
def cluster(enforcing: DisposableSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DisposableSlurm:
    """The same, with nothing remembered of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CORDEE_ON", "slurm")
    for name, value in enforcing.env.items():
        monkeypatch.setenv(name, value)
    return enforcing


def _errors_and_refused(make: Make, need: str) -> tuple[list[str], bool]:
    _, plan, findings = make(f"{HEAD}[need]\n{need}\n")
    asked = options(RunFolder(Path(plan.folder)), plan.document())
    errors = [finding.rule for finding in findings if finding.severity == "error"]
    try:
        job = run_command(["sbatch", "--parsable", *asked, "--output=/dev/null", "--wrap=true"]).strip()
    except SlurmError as error:
        if error.busy:
            raise
        return errors, True
    refused = False

    def decided() -> bool:
        nonlocal refused
        record = job_record(job) or {}
        refused = "Limit" in record["Reason"] or "permitted" in record["Reason"]
        return refused or record["JobState"] not in WAITING_STATES

    assert wait_until(decided, 60.0)
    run_command(["scancel", job])
    return errors, refused


def test_accounts_and_qos_are_drafted(cluster: DisposableSlurm) -> None:
    draft = discover()
    assert draft.profile.accounts is not None
    assert draft.profile.qos is not None
    assert set(draft.profile.accounts["research"].qos) == {"normal", "narrow"}
    assert draft.profile.accounts["research"].default
    assert (draft.profile.qos["short"].max_time, draft.profile.qos["narrow"].max_nodes) == (H, 1)
    assert (draft.profile.partitions["limited"].qos, draft.profile.partitions["closed"].accounts) == (
        "short",
        ("others",),
    )
    assert (draft.facts["sacct"], draft.findings) == (True, ())


@pytest.mark.parametrize(
    ("need", "rule"),
    [
        ('account = "nobody"', "unknown-account"),
        ('account = "others"', "unknown-account"),
        ('qos = "nothing"', "unknown-qos"),
        ('qos = "short"', "unknown-qos"),
        ('partition = "closed"', "account-not-allowed"),
        ('qos = "narrow"\nnodes = 2', "over-limit"),
    ],
)
@pytest.mark.gate
def test_what_accounting_refuses_a_plan_refuses(cluster: DisposableSlurm, make: Make, need: str, rule: str) -> None:
    assert _errors_and_refused(make, need) == ([rule], True)


@pytest.mark.parametrize(
    ("need", "hours", "count"),
    [
        ('time = "13h"', 12, 2),
        ('time = "13h"\naccount = "research"\nqos = "narrow"', 6, 3),
        ('time = "3h"\npartition = "limited"', 1, 4),
        ('time = "3h"\npartition = "limited"\nqos = "narrow"', 1, 4),
    ],
)
def test_the_limit_that_slurm_enforces_cuts_the_chain(
    cluster: DisposableSlurm, make: Make, need: str, hours: int, count: int
) -> None:
    _, plan, _ = make(f"{HEAD}[need]\n{need}\n")
    assert (plan.step.segment.limit_s, plan.step.segment.max_segments) == (hours * H, count)
    assert _errors_and_refused(make, need) == ([], False)
