"""Folders that compute nodes cannot see are said before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan
from cordee.job.plan.examine import storage
from cordee.job.plan.examine.storage import local_kind

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:40 / /home rw - nfs4 server:/home rw
24 22 0:41 / /scratch rw shared:3 - lustre mds:/scratch rw
25 22 0:42 / /tmp rw - tmpfs tmpfs rw
26 23 0:43 / /home/my\\040disk rw - xfs /dev/sdb rw
27 22 0:44 / /odd rw - fuse.something x rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    return tmp_path / "mountinfo"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homes/me", "ext4"),
        ("/home/me/runs", None),
        ("/scratch/not/there/yet", None),
        ("/tmp/runs", "tmpfs"),
        ("/home/my disk/runs", "xfs"),
        ("/odd/runs", None),
    ],
)
def test_only_file_systems_that_are_surely_local_are_named(mounts, path, kind):
    assert local_kind(Path(path), mounts, Path("/nowhere")) == kind


def test_what_this_machine_exports_is_shared(mounts, tmp_path):
    (tmp_path / "etab").write_text("/export/home\t*(rw,sync)\n\n")
    assert local_kind(Path("/export/home/me/runs"), mounts, tmp_path / "etab") is None
    assert local_kind(Path("/export/homes"), mounts, tmp_path / "etab") == "ext4"


def test_nothing_is_known_without_a_table_of_mounts(tmp_path):
    assert local_kind(Path("/tmp"), tmp_path / "missing", tmp_path / "missing") is None


@pytest.fixture
def findings(tmp_path, monkeypatch):
    """Return the findings on the folders of a job whose paths lie on the given kinds of file system."""
    for name in ("job", "clusters"):
        (tmp_path / name).mkdir()
    (tmp_path / "job/cordee.toml").write_text('name = "t"\nrun = "python t.py"\n[checkpoint]\npath = "saved"\n')

    def of(elsewhere: str, **kinds: str) -> list:
        profile = f'scheduler = "slurm"\n{elsewhere}'
        (tmp_path / "clusters/centre.toml").write_text(profile)
        environ = {"XDG_CONFIG_HOME": str(tmp_path), "CORDEE_CLUSTERS_PATH": str(tmp_path / "clusters")}
        loaded = load_job(tmp_path / "job", cluster="centre", environ=environ)
        monkeypatch.setattr(storage, "local_kind", lambda path: kinds.get(path.name))
        _, found = make_plan(loaded, run_id="t-20260101T000000Z-abcd", run_folder=tmp_path / "run")
        return [finding for finding in found if finding.rule == "local-folder"]

    return of


def test_a_run_folder_of_this_machine_alone_is_warned_of(findings, tmp_path):
    [finding] = findings("nodes_elsewhere = true", run="tmpfs")
    assert (finding.severity, finding.given) == ("warn", str(tmp_path / "run"))
    assert (
        "the run folder lies on this machine's own disk (tmpfs), and centre has nodes on other machines" in finding.text
    )
    assert "--runs DIR, CORDEE_RUNS, or `runs` in the cluster's profile" in finding.next


def test_several_folders_are_one_warning(findings):
    [finding] = findings("nodes_elsewhere = true", run="ext4", job="ext4", saved="xfs")
    assert "the run folder, the job folder and the checkpoint folder lie on" in finding.text
    assert "(ext4, xfs)" in finding.text
    assert "keep the job" in finding.next


def test_a_cluster_on_this_machine_or_of_unknown_nodes_is_not_warned_of(findings):
    assert findings("nodes_elsewhere = false", run="tmpfs") == []
    assert findings("", run="tmpfs") == []
    assert findings("nodes_elsewhere = true") == []
