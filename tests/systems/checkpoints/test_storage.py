"""What storage does to checkpoints is told before it happens: removal with age, files on too many or too few servers."""

from __future__ import annotations

import json
import os
import time

import pytest
from click.testing import CliRunner

import cordee
from cordee.machine.mounts import Mount
from cordee.systems.checkpoints import storage
from cordee.systems.checkpoints.cli import command

from ...job.plan.conftest import HEAD, make, site  # noqa: F401

DAY_S = 86400.0
SAVES = HEAD + '[checkpoint]\npath = "saved"\n'


@pytest.fixture
def saved(tmp_path, make):  # noqa: F811
    """Return a checkpoint on a tier that removes what nobody has used for 30 days, and a function that makes it old."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/local.toml").write_text(f'[storage.scratch]\npath = "{tmp_path}"\npurge = "30d"\n')
    path = cordee.checkpointer(folder=tmp_path / "job/saved").save(7)

    def age(days):
        for name in os.listdir(path):
            os.utime(os.path.join(path, name), (time.time() - days * DAY_S,) * 2)

    return age


def rules(findings):
    return {finding.rule: finding for finding in findings}


@pytest.mark.parametrize(
    ("days", "words"), [(10, None), (28, "step-000000007 will be removed from "), (31, "may be removed at any time")]
)
def test_a_tier_that_will_remove_the_newest_is_told_by_check_and_list(saved, make, tmp_path, days, words):  # noqa: F811
    saved(days)
    found = rules(make(SAVES)[2]).get("checkpoint-purge")
    document = json.loads(CliRunner().invoke(command, ["list", str(tmp_path / "job/saved"), "--json"]).stdout)
    if words is None:
        assert (found, document["purged"]) == (None, None)
        return
    assert words in found.text
    assert (found.severity, found.line) == ("warn", 4)
    assert words in document["purged"]


def test_one_file_that_is_used_too_rarely_decides(saved, tmp_path):
    saved(3)
    path = tmp_path / "job/saved/step-000000007"
    os.utime(path / "cordee.json", (time.time() - 29 * DAY_S,) * 2)
    assert storage.removed_at(str(path), 30 * DAY_S) == pytest.approx(time.time() + DAY_S, abs=60)


@pytest.mark.parametrize(("nodes", "layout"), [(1, "-E 256M -c 1 -E 4G"), (20, "-c 1 -S 4M")])
def test_on_lustre_it_is_told_how_to_spread_checkpoints(site, monkeypatch, tmp_path, nodes, layout):  # noqa: F811
    monkeypatch.setattr(storage, "read_mounts", lambda root: [Mount(str(tmp_path), "lustre", "mds:/x", True)])
    findings = site(f"nodes = {nodes}\nranks_per_node = 1", 'name = "alps"\nscheduler = "slurm"\n')[2]
    found = rules(findings)["checkpoint-striping"]
    assert f"lfs setstripe {layout}" in found.next
    monkeypatch.setattr(storage, "read_mounts", lambda root: [Mount(str(tmp_path), "ext4", "/dev/x", True)])
    assert storage.striping_advice(tmp_path, 4) is None


@pytest.mark.parametrize(("memory", "severity"), [("20MB", None), ("19MB", "warn")])
def test_memory_that_the_last_saves_would_not_fit_into_is_told_when_a_job_is_checked(
    make,  # noqa: F811
    tmp_path,
    memory,
    severity,
):
    folder = tmp_path / "job/saved/step-000000007"
    folder.mkdir(parents=True)
    sizes = {"files": {"__0_0.distcp": 2_000_000, "__1_0.distcp": 800_000}, "schema": "cordee.checkpoint/1"}
    (folder / "cordee.json").write_text(json.dumps(sizes))
    tiers = f'[need]\nnodes = 2\nmemory = "{memory}"\n[checkpoint]\npath = "saved"\ntiers = ["memory", "shared"]\n'
    findings = make(HEAD + tiers)[2]
    found = rules(findings).get("checkpoint-memory")
    assert (found and found.severity) == severity
    if found:
        assert (
            "saves may take up to 9.8 MB of the memory of each node: the last one had 2.8 MB, and 7 copies"
            in found.text
        )
