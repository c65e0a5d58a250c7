"""A pool of HTCondor drafts a profile; its answers were recorded from a real one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cordee.backends.htcondor.site import discover, values_here
from cordee.backends.profile_draft import draft_profile
from cordee.core.errors import UsageError
from cordee.job.cluster import load_cluster

RECORDED = json.loads((Path(__file__).parent / "recorded/pool.json").read_text())
COMMANDS = tuple(RECORDED)
MIB = 1 << 20


class FakePool:
    """Executables on PATH that print what the real ones printed in a case."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "CORDEE_CLUSTERS_PATH": str(folder / "clusters")}
        for command in COMMANDS:
            self.say(command, "answers")

    def say(self, command: str, case: str) -> None:
        answer = RECORDED[command][case]
        for name in ("stdout", "stderr"):
            (self.bin / f"{command}.{name}").write_text(answer[name])
        text = f'#!/bin/sh\ncat "$0.stdout"\ncat "$0.stderr" >&2\nexit {answer["code"]}\n'
        (self.bin / command).write_text(text)
        (self.bin / command).chmod(0o755)


@pytest.fixture
def pool(tmp_path: Path) -> FakePool:
    return FakePool(tmp_path)


def test_kinds_of_machines_are_groups_of_one_partition(pool):
    document = tomllib.loads(discover(None, pool.environ).text)
    assert (document["name"], document["scheduler"]) == ("htcondor", "htcondor")
    partition = document["partitions"]["pool"]
    assert {key: partition[key] for key in ("nodes", "cores", "memory", "gpus", "max_nodes")} == {
        "nodes": 3,
        "cores": 8,
        "memory": "16GiB",
        "gpus": 2,
        "max_nodes": 1,
    }
    assert {group.get("gpu_model") for group in partition["groups"]} == {"a100-sxm4-40gb", "l40s", None}
    assert document["gpu"]["a100-sxm4-40gb"] == {"memory": "40354MiB", "capability": 8.0}


def test_what_no_pool_says_is_said_and_what_has_no_key_is_a_comment(pool):
    draft = discover("chtc", pool.environ)
    assert [finding.text.partition(":")[0] for finding in draft.findings][-1] == "how long a job may take"
    assert any("whose model the pool does not say" in finding.text for finding in draft.findings)
    assert "# HTCondor:            23.9.6" in draft.text
    assert "# time to end:         10 s between TERM and KILL" in draft.text
    assert draft.facts["machines"] == 1
    assert draft.path.name == "chtc.toml"


def test_machines_that_are_alike_make_no_groups(pool):
    pool.say("condor_status", "alike")
    partition = values_here(pool.environ, 0.0)["partitions"]["pool"]
    assert "groups" not in partition
    assert (partition["nodes"], partition["cores"], partition["memory"]) == (3, 2, 4096 * MIB)


def test_a_pool_without_machines_answers_nothing_and_is_a_pool(pool):
    pool.say("condor_status", "empty")
    draft = discover(None, pool.environ)
    assert draft.profile.partitions["pool"].nodes == 0
    assert "shows no machines now" in draft.text


@pytest.mark.parametrize(
    ("command", "case", "words"),
    [
        ("condor_status", "away", "Failed to connect to"),
        ("condor_config_val", "unset", "CONDOR_CONFIG environment variable"),
    ],
)
def test_where_no_pool_answers_it_says_so_in_htcondors_words(pool, command, case, words):
    pool.say(command, case)
    with pytest.raises(UsageError, match="no pool of HTCondor answers here") as caught:
        values_here(pool.environ, 0.0)
    assert words in caught.value.text
    assert "access point" in (caught.value.next or "")


def test_without_its_commands_there_is_no_pool(tmp_path):
    with pytest.raises(UsageError, match="condor_config_val is not on PATH"):
        values_here({"PATH": str(tmp_path)}, 0.0)


def test_a_profile_lies_over_what_the_pool_says(pool, tmp_path):
    discover("mine", pool.environ).write()
    live, mine = load_cluster("htcondor", pool.environ), load_cluster("mine", pool.environ)
    assert mine.gpu_models == live.gpu_models
    shapes = [
        [shape.model_copy(update={"up": None}) for shape in one.partitions["pool"].shapes] for one in (mine, live)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("cm.chtc.example.edu:9618?sock=collector", "chtc"),
        ("pool.local", "pool"),
        ("10.0.0.1:9618", "htcondor"),
        ("cm1.hep.example.org, cm2.hep.example.org", "hep"),
    ],
)
def test_a_pool_is_called_as_its_collector_says(pool, host, name):
    (pool.bin / "condor_config_val.stdout").write_text(host + "\n")
    assert discover(None, pool.environ).name == name


def test_where_several_schedulers_answer_the_first_is_drafted_and_the_others_are_named(pool, monkeypatch):
    assert draft_profile(None, None, pool.environ)[0].name == "htcondor"
    monkeypatch.setattr("cordee.backends.slurm.site.discover.discover", lambda name, environ: "of slurm")
    assert draft_profile(None, None, pool.environ) == ("of slurm", ["htcondor"])
    assert draft_profile(None, "htcondor", pool.environ)[0].name == "htcondor"
    with pytest.raises(UsageError, match="no profile can be drafted") as caught:
        draft_profile(None, "pbs", pool.environ)
    assert caught.value.allowed == ["slurm", "htcondor"]


def test_where_nothing_answers_both_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"no Slurm answers here.*no pool of HTCondor answers here"):
        draft_profile(None, None, {"PATH": str(tmp_path)})
