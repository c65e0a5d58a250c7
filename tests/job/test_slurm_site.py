"""What Slurm says becomes the facts of a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordee.backends.slurm.node.commands import SlurmError
from cordee.backends.slurm.site.ask import ask_slurm
from cordee.backends.slurm.site.values import duration_of, gpus_of, site_values
from cordee.core.errors import UsageError
from cordee.job.cluster import list_clusters, load_cluster
from cordee.job.load import load_job

from .conftest import FakeSlurm

H = 3600
MIB = 1 << 20


def test_the_cluster_slurm_needs_no_file_where_slurm_answers(fake_slurm: FakeSlurm) -> None:
    profile = load_cluster("slurm", fake_slurm.environ)
    assert (profile.name, profile.scheduler, profile.answering, profile.slurm_version) == (
        "slurm",
        "slurm",
        "h1",
        "22.05.8",
    )
    assert list(profile.partitions) == ["normal", "debug", "limited"]
    assert list_clusters(fake_slurm.environ) == ["local", "slurm"]


def test_a_partition_has_its_limits(fake_slurm: FakeSlurm) -> None:
    limited = load_cluster("slurm", fake_slurm.environ).partitions["limited"]
    assert (limited.max_time, limited.default_time, limited.max_nodes, limited.default) == (None, 600, 1, False)
    assert (limited.qos, limited.accounts, limited.allow_qos) == ("part", ("test",), ("normal", "long"))
    debug = load_cluster("slurm", fake_slurm.environ).partitions["debug"]
    assert (debug.max_time, debug.qos, debug.accounts, debug.state) == (1800, None, None, "up")


def test_nodes_that_are_alike_are_the_partitions_own_facts(fake_slurm: FakeSlurm) -> None:
    limited = load_cluster("slurm", fake_slurm.environ).partitions["limited"]
    assert (limited.nodes, limited.up, limited.cores, limited.memory) == (2, 2, 8, 16000 * MIB)
    assert (limited.gpus, limited.gpu_model, limited.features, limited.groups) == (4, "a100", ("fast", "nvme"), ())


def test_nodes_that_differ_are_groups_without_what_the_system_keeps(fake_slurm: FakeSlurm) -> None:
    normal = load_cluster("slurm", fake_slurm.environ).partitions["normal"]
    assert (normal.nodes, normal.cores, normal.memory, normal.gpus) == (4, 8, 16000 * MIB, 2)
    assert (normal.gpu_model, normal.features) == (None, ("fast",))
    small, large = normal.shapes
    assert (small.nodes, small.cores, small.gpus, small.gpu_model) == (3, 8, 4, "a100")
    assert (large.nodes, large.cores, large.memory, large.gpu_model) == (1, 14, 31000 * MIB, "v100")


def test_accounts_and_qos_of_this_person_have_their_limits(fake_slurm: FakeSlurm) -> None:
    profile = load_cluster("slurm", fake_slurm.environ)
    assert profile.accounts is not None
    assert profile.qos is not None
    assert profile.accounts["root"].default
    test = profile.accounts["test"]
    assert (test.default, test.default_qos, test.max_time, set(test.qos)) == (
        False,
        "normal",
        12 * H,
        {"normal", "long", "part"},
    )
    long = profile.qos["long"]
    assert (long.max_time, long.max_submit, long.max_nodes, long.max_gpus, long.over_partition) == (
        48 * H,
        3,
        2,
        4,
        True,
    )


def test_what_accounting_does_not_enforce_is_no_limit(fake_slurm: FakeSlurm) -> None:
    fake_slurm.edit("config", "associations,limits,qos", "none")
    profile = load_cluster("slurm", fake_slurm.environ)
    assert (profile.accounts, profile.qos) == (None, None)


def test_accounting_that_does_not_answer_leaves_accounts_unknown(fake_slurm: FakeSlurm) -> None:
    fake_slurm.fail("user", "sacctmgr: error: Problem talking to the database: Connection refused")
    profile = load_cluster("slurm", fake_slurm.environ)
    assert (profile.accounts, profile.partitions["debug"].max_time) == (None, 1800)


@pytest.mark.parametrize(
    ("state", "up"),
    [("mixed", 3), ("idle*", 0), ("down", 0), ("drained", 0), ("draining", 0), ("allocated+", 3), ("planned", 3), ("idle~", 3)],
)  # fmt: skip
def test_nodes_that_take_no_jobs_are_counted_out(fake_slurm: FakeSlurm, state: str, up: int) -> None:
    fake_slurm.edit("nodes", "normal|3|idle|", f"normal|3|{state}|")
    normal = load_cluster("slurm", fake_slurm.environ).partitions["normal"]
    assert (normal.nodes, normal.up) == (4, up + 1)


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("(null)", (0, None)),
        ("gpu:4", (4, None)),
        ("gpu:a100:4", (4, "a100")),
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:a100:2(S:0,1),gpu:v100:2", (4, None)),
        ("nvme:1,gpu:gh200:4(IDX:0-3),shard:8", (4, "gh200")),
        ("gpu", (1, None)),
        ("tmpdisk:900G", (0, None)),
    ],
)
def test_gpus_are_read_from_gres(gres: str, found: tuple[int, str | None]) -> None:
    assert gpus_of(gres) == found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("UNLIMITED", None), ("NONE", None), ("", None), ("1-00:00:00", 86400), ("00:30:00", 1800), ("n/a", None)],
)
def test_time_limits_are_read_as_slurm_writes_them(text: str, seconds: float | None) -> None:
    assert duration_of(text) == seconds


def test_limits_on_one_nodes_cores_and_memory_are_honoured(fake_slurm: FakeSlurm) -> None:
    fake_slurm.edit("partitions", "MaxCPUsPerNode=UNLIMITED", "MaxCPUsPerNode=6")
    fake_slurm.edit("partitions", "MaxMemPerNode=UNLIMITED", "MaxMemPerNode=9000")
    limited = load_cluster("slurm", fake_slurm.environ).partitions["limited"]
    assert (limited.cores, limited.memory) == (6, 9000 * MIB)


def test_memory_that_nobody_configured_is_unknown(fake_slurm: FakeSlurm) -> None:
    fake_slurm.edit("nodes", "limited|2|idle|8|16000|", "limited|2|idle|8|1|")
    assert load_cluster("slurm", fake_slurm.environ).partitions["limited"].memory is None


def test_answers_are_remembered_for_a_minute(fake_slurm: FakeSlurm) -> None:
    for _ in range(3):
        load_cluster("slurm", fake_slurm.environ)
    assert fake_slurm.calls.read_text().splitlines().count("sinfo nodes") == 1
    assert len(fake_slurm.calls.read_text().splitlines()) == 7
    fake_slurm.forget()
    load_cluster("slurm", fake_slurm.environ)
    assert fake_slurm.calls.read_text().splitlines().count("sinfo nodes") == 2
    ask_slurm(fake_slurm.environ, fresh=True)
    assert fake_slurm.calls.read_text().splitlines().count("sinfo nodes") == 3


def test_accounting_is_asked_seldom_and_only_where_it_is_enforced(fake_slurm: FakeSlurm) -> None:
    for _ in range(2):
        assert load_cluster("slurm", fake_slurm.environ).accounts
        fake_slurm.forget()
    assert fake_slurm.calls.read_text().splitlines().count("sacctmgr user") == 1
    ask_slurm(fake_slurm.environ, fresh=True)
    assert fake_slurm.calls.read_text().splitlines().count("sacctmgr user") == 2
    fake_slurm.edit("config", "associations,limits,qos", "none")
    shutil.rmtree(fake_slurm.environ["XDG_CACHE_HOME"])
    load_cluster("slurm", fake_slurm.environ)
    assert fake_slurm.calls.read_text().splitlines().count("sacctmgr user") == 2


def test_a_memory_that_is_torn_or_cannot_be_written_only_costs_the_commands(fake_slurm: FakeSlurm) -> None:
    load_cluster("slurm", fake_slurm.environ)
    (kept,) = Path(fake_slurm.environ["XDG_CACHE_HOME"]).rglob("slurm-*.json")
    kept.write_text('{"texts": ')
    assert load_cluster("slurm", fake_slurm.environ).answering == "h1"
    (fake_slurm.answers / "file").touch()
    blocked = {**fake_slurm.environ, "XDG_CACHE_HOME": str(fake_slurm.answers / "file")}
    assert load_cluster("slurm", blocked).answering == "h1"


def test_a_busy_controller_is_bridged_by_what_was_known(fake_slurm: FakeSlurm) -> None:
    load_cluster("slurm", fake_slurm.environ)
    fake_slurm.forget()
    fake_slurm.fail("nodes", "slurm_load_node: Unable to contact slurm controller (connect failure)")
    for _ in range(2):
        assert load_cluster("slurm", fake_slurm.environ).partitions["debug"].max_time == 1800
    assert fake_slurm.calls.read_text().splitlines().count("sinfo nodes") == 2, "it is not waited for again"


def test_a_busy_controller_that_nothing_is_known_of_is_an_error(fake_slurm: FakeSlurm) -> None:
    for name in ("nodes", "config"):
        fake_slurm.fail(name, "Unable to contact slurm controller (connect failure)")
    with pytest.raises(SlurmError) as caught:
        ask_slurm(fake_slurm.environ)
    assert caught.value.busy


def test_no_slurm_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_cluster("slurm", {"PATH": str(tmp_path), "CORDEE_CLUSTERS_PATH": str(tmp_path)})
    error = caught.value
    assert error.text == "no Slurm answers here: not found: Slurm's commands are not on PATH"
    assert (error.given, error.allowed) == ("slurm", ["local"])
    assert "--on local" in str(error.next)


def test_a_configuration_that_is_not_there_is_said_at_once(fake_slurm: FakeSlurm) -> None:
    with pytest.raises(UsageError, match="SLURM_CONF names /nowhere"):
        load_cluster("slurm", {**fake_slurm.environ, "SLURM_CONF": "/nowhere"})
    assert not fake_slurm.calls.exists()


def test_a_slurm_without_a_configuration_is_none(fake_slurm: FakeSlurm) -> None:
    fake_slurm.fail("nodes", "sinfo: fatal: Could not establish a configuration source")
    with pytest.raises(UsageError, match="Could not establish a configuration source"):
        load_cluster("slurm", fake_slurm.environ)
    assert list_clusters(fake_slurm.environ) == ["local"]


def test_a_profile_lies_over_what_slurm_says(fake_slurm: FakeSlurm) -> None:
    fake_slurm.profile(
        'requeue = "resubmit"\n[partitions.debug]\nmax_time = "10min"\n[partitions.normal]\ngpu_model = "x1"\n'
    )
    profile = load_cluster("slurm", fake_slurm.environ)
    assert (profile.requeue, profile.partitions["debug"].max_time, profile.partitions["debug"].nodes) == (
        "resubmit",
        600,
        4,
    )
    assert {shape.gpu_model for shape in profile.partitions["normal"].shapes} == {"x1"}
    assert {shape.cores for shape in profile.partitions["normal"].shapes} == {8, 14}


def test_a_profile_alone_is_enough_where_no_slurm_answers(fake_slurm: FakeSlurm) -> None:
    fake_slurm.profile("[partitions.debug]\n")
    profile = load_cluster("slurm", {**fake_slurm.environ, "PATH": ""})
    assert (profile.scheduler, profile.answering, list(profile.partitions)) == ("slurm", None, ["debug"])


def test_every_profile_for_slurm_has_the_facts_of_the_slurm_here(fake_slurm: FakeSlurm) -> None:
    fake_slurm.profile('scheduler = "slurm"\n', "alps")
    assert load_cluster("alps", fake_slurm.environ).partitions["debug"].max_time == 1800
    fake_slurm.profile('scheduler = "slurm"\nslurm_cluster = "daint"\n', "alps")
    profile = load_cluster("alps", fake_slurm.environ)
    assert (profile.answering, profile.slurm_cluster, profile.partitions) == ("h1", "daint", {})


def test_a_profile_for_another_scheduler_asks_no_slurm(fake_slurm: FakeSlurm) -> None:
    fake_slurm.profile('scheduler = "htcondor"\n', "pool")
    assert load_cluster("pool", fake_slurm.environ).partitions == {}
    assert not fake_slurm.calls.exists()


def test_a_slurm_of_nothing_is_no_error(fake_slurm: FakeSlurm) -> None:
    for name in ("nodes", "partitions", "samples"):
        (fake_slurm.answers / f"{name}.txt").write_text("")
    assert site_values(ask_slurm(fake_slurm.environ))["partitions"] == {}
    fake_slurm.edit("config", "ClusterName", "Nothing")
    fake_slurm.forget()
    assert load_cluster("slurm", fake_slurm.environ).answering == "unknown"


ON = """
name = "a"
run = "x"
[need]
nodes = 1
account = "plain"
[on.slurm]
need = { nodes = 2, account = "slurms" }
[on.alps]
need = { nodes = 3 }
[on.local]
need = { nodes = 4 }
"""


@pytest.mark.parametrize(
    ("cluster", "nodes", "account"),
    [
        ("slurm", 2, "slurms"),
        ("alps", 3, "slurms"),
        ("daint", 2, "slurms"),
        ("local", 4, "plain"),
    ],
)
def test_what_holds_on_slurm_holds_on_every_slurm_below_its_own_table(
    fake_slurm: FakeSlurm, tmp_path: Path, cluster: str, nodes: int, account: str
) -> None:
    for name in ("alps", "daint"):
        fake_slurm.profile('scheduler = "slurm"\n', name)
    (tmp_path / "cordee.toml").write_text(ON)
    loaded = load_job(tmp_path, cluster=cluster, environ=fake_slurm.environ)
    assert (loaded.job.need.nodes, loaded.job.need.account) == (nodes, account)
    line = {"plain": 6, "slurms": 8}[account]
    assert str(loaded.provenance["need.account"]) == f"document {tmp_path}/cordee.toml:{line}"
