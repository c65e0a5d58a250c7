"""Cluster profiles and what this machine is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordee.core.documents.config_paths import profile_folders
from cordee.core.errors import DocumentError
from cordee.job.cluster import list_clusters, load_cluster
from cordee.job.machine import this_machine

SITE = """
scheduler = "slurm"
network_interface = "hsn0"
network_trusted = true
requeue = "forbidden"
[partitions.normal]
max_time = "24h"
gpus = 4
gpu_model = "gh200"
[partitions.debug]
max_time = "30min"
[gpu.gh200]
memory = "96GB"
capability = 9.0
[storage.scratch]
path = "/scratch"
size = "10TB"
purge = "30d"
quota_files = 1000000
[classes.long]
max_time = "7d"
qos = "long"
[switches]
s0 = "nid[001-100]"
[defaults.need]
account = "a1"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    for name in ("site", "user"):
        (tmp_path / name).mkdir()
    (tmp_path / "site/alps.toml").write_text(SITE)
    return {"CORDEE_CLUSTERS_PATH": f"{tmp_path}/site{os.pathsep}{tmp_path}/user"}


def test_a_profile_is_read_with_all_its_tables(environ: dict[str, str]) -> None:
    profile = load_cluster("alps", environ)
    assert (profile.name, profile.scheduler, profile.network_interface) == ("alps", "slurm", "hsn0")
    assert profile.network_trusted
    assert profile.partitions["normal"].max_time == 86400
    assert profile.gpu_models["gh200"].memory == 96_000_000_000
    assert profile.storage["scratch"].purge == 30 * 86400
    assert profile.classes["long"].qos == "long"


def test_the_persons_values_lie_over_the_sites(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "user/alps.toml").write_text('network_interface = "lo"\n[partitions.normal]\ngpus = 2\n')
    profile = load_cluster("alps", environ)
    assert profile.network_interface == "lo"
    assert (profile.partitions["normal"].gpus, profile.partitions["normal"].max_time) == (2, 86400)
    assert "debug" in profile.partitions


def test_a_fault_names_the_file_it_is_in(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "user/alps.toml").write_text("[partitions.normal]\ngpu = 2\n")
    with pytest.raises(DocumentError) as caught:
        load_cluster("alps", environ)
    error = caught.value
    assert (error.file, error.line) == (str(tmp_path / "user/alps.toml"), 2)
    assert (error.text, error.given) == ("[partitions.normal] has no key gpu", "gpu")
    assert error.next == "did you mean gpus?"
    assert "max_time" in error.allowed


def test_clusters_are_listed_with_local_first(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "user/aaa.toml").write_text("")
    assert list_clusters(environ) == ["local", "aaa", "alps"]


def test_profiles_are_looked_for_at_the_site_then_at_the_person(tmp_path: Path) -> None:
    folders = profile_folders({"XDG_CONFIG_HOME": str(tmp_path)})
    assert folders == [Path("/etc/cordee/clusters"), tmp_path / "cordee/clusters"]


def test_local_is_this_machine_unless_a_profile_says_otherwise(environ: dict[str, str], tmp_path: Path) -> None:
    profile = load_cluster("local", environ)
    assert profile.cores == this_machine()["cores"]
    assert profile.memory
    (tmp_path / "user/local.toml").write_text("cores = 1000\n")
    assert load_cluster("local", environ).cores == 1000


def test_the_machine_is_read_from_files(tmp_path: Path) -> None:
    for name in ("proc/self", "dev", "sys/fs/cgroup/slice/job"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       2000000 kB\nMemFree: 1 kB\n")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    cores = len(os.sched_getaffinity(0))
    assert this_machine(tmp_path) == {"cores": cores, "memory": 2_048_000_000, "gpus": 2}
    (tmp_path / "proc/self/cgroup").write_text("0::/slice/job\n")
    (tmp_path / "sys/fs/cgroup/slice/job/memory.max").write_text("1000000000\n")
    (tmp_path / "sys/fs/cgroup/slice/job/cpu.max").write_text("50000 100000\n")
    assert this_machine(tmp_path) == {"cores": 1, "memory": 1_000_000_000, "gpus": 2}
    (tmp_path / "sys/fs/cgroup/slice/job/cpu.max").write_text("max 100000\n")
    assert this_machine(tmp_path)["cores"] == cores


def test_a_machine_without_any_of_the_files_has_no_gpus(tmp_path: Path) -> None:
    assert this_machine(tmp_path)["gpus"] == 0
