"""A profile drafted from what Slurm says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import SlurmError
from cordee.backends.slurm.site.discover import discover
from cordee.core.errors import UsageError
from cordee.job.cluster import load_cluster

from .conftest import FakeSlurm

MIB = 1 << 20


def test_a_draft_has_what_slurm_says(fake_slurm: FakeSlurm) -> None:
    document = tomllib.loads(discover(None, fake_slurm.environ).text)
    assert (document["name"], document["scheduler"], document["slurm_cluster"]) == ("h1", "slurm", "h1")
    assert document["requeue"] == "requeue"
    assert document["partitions"]["debug"]["max_time"] == "30min"
    assert document["partitions"]["limited"] == {
        "default_time": "10min",
        "max_nodes": 1,
        "nodes": 2,
        "cores": 8,
        "memory": "16000MiB",
        "gpus": 4,
        "gpu_model": "a100",
        "features": ["fast", "nvme"],
        "qos": "part",
        "accounts": ["test"],
        "allow_qos": ["normal", "long"],
    }
    assert document["partitions"]["normal"]["default"] is True
    assert [group["gpu_model"] for group in document["partitions"]["normal"]["groups"]] == ["a100", "v100"]
    assert document["accounts"]["test"]["max_time"] == "12h"
    assert document["qos"]["long"] == {
        "max_time": "2d",
        "max_nodes": 2,
        "max_gpus": 4,
        "max_submit": 3,
        "over_partition": True,
    }


def test_what_has_no_key_is_in_comments_and_facts(fake_slurm: FakeSlurm) -> None:
    draft = discover(None, fake_slurm.environ)
    lines = [" ".join(line.split()) for line in draft.text.splitlines()]
    assert "# Slurm: 22.05.8" in lines
    assert "# preemption: preempt/partition_prio, REQUEUE" in lines
    assert "# credentials expire: after 5 s: a requeued job waits so long" in lines
    assert any(line.startswith("# network_interface = ") for line in lines)
    assert any("JobRequeue=0, which sbatch --requeue overrides" in line for line in lines)
    assert "# 4 of 4 nodes are up; the partition is up; preemption REQUEUE" in lines
    facts = draft.facts
    assert (facts["sacct"], facts["job_comments_kept"], facts["cred_expire_s"], facts["min_job_age_s"]) == (
        True,
        True,
        5,
        300,
    )


def test_a_draft_is_a_profile_that_plans_the_same(fake_slurm: FakeSlurm) -> None:
    live = load_cluster("slurm", fake_slurm.environ)
    draft = discover("mine", fake_slurm.environ)
    draft.write()
    assert draft.path == Path(fake_slurm.environ["CORDEE_CLUSTERS_PATH"]) / "mine.toml"
    for environ in (fake_slurm.environ, {**fake_slurm.environ, "PATH": ""}):
        profile = load_cluster("mine", environ)
        assert (profile.accounts, profile.qos, profile.requeue) == (live.accounts, live.qos, live.requeue)
        for name, partition in live.partitions.items():
            assert profile.partitions[name].max_time == partition.max_time
            kinds = [shape.model_dump(exclude={"up"}) for shape in profile.partitions[name].shapes]
            assert kinds == [shape.model_dump(exclude={"up"}) for shape in partition.shapes]


def test_a_profile_that_is_there_is_not_overwritten(fake_slurm: FakeSlurm) -> None:
    fake_slurm.profile("# mine\n", "h1")
    draft = discover(None, fake_slurm.environ)
    with pytest.raises(UsageError, match="there is a profile h1 already") as caught:
        draft.write()
    assert "--force" in str(caught.value.next)
    assert draft.path.read_text() == "# mine\n"
    draft.write(force=True)
    assert draft.path.read_text() == draft.text


def test_a_folder_that_cannot_be_written_is_told(fake_slurm: FakeSlurm) -> None:
    fake_slurm.clusters.write_text("")
    with pytest.raises(UsageError, match="cannot write the profile"):
        discover(None, fake_slurm.environ).write()


def test_what_could_not_be_found_out_is_said(fake_slurm: FakeSlurm) -> None:
    for name, words in (("user", "no database"), ("qos", "no database"), ("sacct", "disabled")):
        fake_slurm.fail(name, words)
    fake_slurm.edit("nodes", "limited|2|idle|8|16000|gpu:a100:4|", "limited|2|idle|8|1|gpu:4|")
    draft = discover(None, fake_slurm.environ)
    texts = [finding.text for finding in draft.findings]
    assert texts == [
        "accounts: sacctmgr does not say which you have",
        "QOS and their limits: sacctmgr does not say",
        "sacct does not answer: the end of a job that squeue has forgotten is read from the run's own journal",
        "partition limited: the memory of its nodes is not configured",
        "partition limited: its GPUs have no model in Slurm; add gpu_model and [gpu.MODEL]",
    ]
    assert {finding.severity for finding in draft.findings} == {"info"}
    assert all(f"# - {text}" in draft.text for text in texts)
    assert "memory" not in tomllib.loads(draft.text)["partitions"]["limited"]
    assert draft.profile.accounts is None


def test_limits_that_are_not_enforced_are_only_comments(fake_slurm: FakeSlurm) -> None:
    fake_slurm.edit("config", "associations,limits,qos", "none")
    draft = discover(None, fake_slurm.environ)
    assert (draft.profile.accounts, draft.profile.qos) == (None, None)
    assert "# [accounts.test]\n" in draft.text
    assert '# max_time = "2d"\n' in draft.text


def test_names_that_toml_must_quote_are_quoted(fake_slurm: FakeSlurm) -> None:
    fake_slurm.edit("nodes", "debug|", 'de"b ug.1|')
    fake_slurm.edit("partitions", "PartitionName=debug", 'PartitionName=de"b ug.1')
    draft = discover(None, fake_slurm.environ)
    assert 'de"b ug.1' in tomllib.loads(draft.text)["partitions"]


@pytest.mark.parametrize("name", ["local", "a/b", ""])
def test_a_name_that_is_none_is_refused(fake_slurm: FakeSlurm, name: str) -> None:
    if name:
        with pytest.raises(UsageError, match="this cannot be the name of a cluster"):
            discover(name, fake_slurm.environ)
    else:
        fake_slurm.edit("config", "ClusterName             = h1", "ClusterName             = a b")
        assert discover(None, fake_slurm.environ).name == "slurm"


def test_the_document_has_profile_facts_and_text(fake_slurm: FakeSlurm) -> None:
    document = discover(None, fake_slurm.environ).document(written=False)
    assert document["schema"] == "cordee.discovery/1"
    assert document["profile"]["partitions"]["limited"]["gpus"] == 4
    assert document["toml"].startswith("# Cluster profile of h1")
    assert (document["written"], document["findings"]) == (False, [])


def test_no_slurm_is_told(fake_slurm: FakeSlurm) -> None:
    with pytest.raises(UsageError, match="no Slurm answers here"):
        discover(None, {**fake_slurm.environ, "PATH": ""})


def test_a_refusal_is_not_taken_for_a_busy_controller(fake_slurm: FakeSlurm) -> None:
    fake_slurm.fail("partitions", "slurm_load_partitions: Access/permission denied")
    with pytest.raises(UsageError, match="Access/permission denied"):
        discover(None, fake_slurm.environ)


def test_a_controller_that_stays_busy_is_no_fault_of_the_person(
    fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordee.backends.slurm.site.discover._PATIENCE_S", 0.0)
    for name in ("nodes", "config"):
        fake_slurm.fail(name, "Unable to contact slurm controller (connect failure)")
    with pytest.raises(SlurmError) as caught:
        discover(None, fake_slurm.environ)
    assert (caught.value.exit_code, caught.value.next) == (5, "try again when its controller answers")
