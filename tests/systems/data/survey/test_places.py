"""What is known of each place: declared in the profile, measured here, or assumed and said to be."""

from __future__ import annotations

import os

import pytest

from cordee.job.profile import ClusterProfile
from cordee.systems.data.survey import quota as asking
from cordee.systems.data.survey.places import machine_of
from cordee.systems.data.survey.quota import Quota, quotas, read_quota
from cordee.systems.data.survey.speed import measure


def profile_of(tmp_path, **tier: object) -> ClusterProfile:
    values = {"path": str(tmp_path), **tier}
    return ClusterProfile.model_validate({"name": "alps", "memory": 64_000_000_000, "storage": {"scratch": values}})


def test_what_the_profile_declares_is_taken(tmp_path):
    profile = profile_of(tmp_path, opens_per_s=3000, node_bandwidth="20GB", quota_files=1000, purge="30d", size="1PB")
    machine = machine_of(profile, str(tmp_path / "set"))
    place = machine.data_place
    assert place.name == "scratch"
    assert (place.opens.low, place.opens.basis) == (3000, "profile")
    assert (place.read.high, place.read.basis) == (20e9, "profile")
    assert (place.quota_files, place.purge_s, place.size_bytes) == (1000, 30 * 86400, 10**15)
    assert place.free_bytes <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert machine.memory_bytes == 64_000_000_000
    assert {each.kind for each in machine.places} >= {"memory", "shared"}


def test_the_bandwidth_of_a_whole_file_system_is_not_that_of_one_node(tmp_path):
    place = machine_of(profile_of(tmp_path, bandwidth="1TB"), str(tmp_path)).data_place
    assert place.read.basis == "assumed"
    assert place.read.high < 1e12
    slow = machine_of(profile_of(tmp_path, bandwidth="100MB"), str(tmp_path)).data_place
    assert slow.read.high == 100e6


def test_what_is_not_declared_is_measured_where_the_data_lies_and_assumed_elsewhere(tmp_path):
    paths = []
    for number in range(20):
        (tmp_path / str(number)).write_bytes(os.urandom(1000))
        paths.append(str(tmp_path / str(number)))
    machine = machine_of(profile_of(tmp_path, kind="shared"), str(tmp_path), paths)
    assert machine.data_place.opens.basis == "measured"
    assert machine.data_place.read.basis == "assumed"
    assert all(each.opens.basis == "assumed" for each in machine.places if not each.holds_data)


def test_bytes_are_measured_by_large_files_only(tmp_path):
    (tmp_path / "large").write_bytes(os.urandom(8 << 20))
    opens, read = measure([str(tmp_path / "large"), str(tmp_path / "gone")])
    assert opens > 0
    assert read > 0
    assert measure([str(tmp_path / "gone")]) == (None, None)


def test_places_of_other_machines_are_not_looked_at(tmp_path):
    values = {
        "name": "alps",
        "nodes_elsewhere": True,
        "storage": {"nvme": {"path": "/tmp", "kind": "node", "size": "1TB"}},
    }
    machine = machine_of(ClusterProfile.model_validate(values), str(tmp_path))
    nvme = next(each for each in machine.places if each.name == "nvme")
    assert (nvme.free_bytes, nvme.room_bytes) == (None, 10**12)
    assert machine.memory_bytes is None


def test_an_address_of_a_store_is_a_place_of_its_own():
    machine = machine_of(ClusterProfile.model_validate({"name": "alps"}), "s3://bucket/set")
    assert machine.data_place.kind == "shared"
    assert machine.data_place.free_bytes is None


def test_memory_of_a_node_is_the_default_partitions_smallest():
    partitions = {
        "debug": {"memory": "32GB"},
        "normal": {"memory": "512GB", "default": True, "groups": [{"memory": "256GB"}, {"memory": "1TB"}]},
    }
    profile = ClusterProfile.model_validate({"name": "alps", "partitions": partitions})
    assert machine_of(profile, "/").memory_bytes == 256 * 10**9


LUSTRE = "     /scratch  1200*   1000   2000   6d23h   990000  0  1000000       -\n"
QUOTA = """Disk quotas for user me (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home 500 1000 0 0 20 0 0 0
/dev/vdb 0 0 0 0 0 0 0 0
"""


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        (LUSTRE, "/scratch", Quota("t", 1200 * 1024, 2000 * 1024, 990_000, 1_000_000)),
        (QUOTA, "server:/home", Quota("t", 500 * 1024, 1000 * 1024, 20, None)),
        (QUOTA, "/dev/vdb", Quota("t", 0, None, 0, None)),
        (QUOTA, "/dev/sda", None),
        (LUSTRE.replace("1200*", "[1200]"), "/scratch", None),
        ("/scratch is not a Lustre file system", "/scratch", None),
        ("", "/scratch", None),
    ],
)
def test_quotas_are_read_from_what_the_tools_print(text, source, expected):
    assert read_quota(text, source, "t") == expected


def test_the_tool_of_the_file_system_is_asked(tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "quota").write_text(f"#!/bin/sh\ncat <<'E'\n{QUOTA}E\n")
    (tools / "quota").chmod(0o755)
    (tools / "lfs").write_text('#!/bin/sh\nfor last; do :; done\necho "$last 10 0 20 - 5 0 6 -"\n')
    (tools / "lfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    place = machine_of(profile_of(tmp_path, quota_files=10), str(tmp_path)).data_place
    found = quotas(place, str(tmp_path), ("nfs4", "server:/home"))
    assert [each.source for each in found] == ["profile", "quota"]
    found = quotas(place, str(tmp_path), ("lustre", "mgs@tcp:/scratch"))
    assert found[1] == Quota("lfs quota", 10240, 20480, 5, 6)


def test_a_tool_that_hangs_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "quota").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "quota").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(asking, "_PATIENCE_S", 0.2)
    place = machine_of(profile_of(tmp_path), str(tmp_path)).data_place
    assert quotas(place, str(tmp_path), ("ext4", "/dev/vda")) == ()


def test_the_folder_of_ones_own_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "me")
    (tmp_path / "me").mkdir()
    place = machine_of(profile_of(tmp_path), str(tmp_path / "set")).data_place
    assert place.own_path == str(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).endswith("/me"))
    machine = machine_of(profile_of(tmp_path), str(tmp_path / "set"))
    assert machine.data_place.own_path == str(tmp_path / "me")
    assert not machine.beside_writable
