"""Forecast, purge and advice are pure functions: checked against tables."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace

import pytest

from cordee.systems.data.survey.advice import advise
from cordee.systems.data.survey.chunks import chunks_of
from cordee.systems.data.survey.findings import findings_of
from cordee.systems.data.survey.forecast import forecast, shards_of
from cordee.systems.data.survey.model import Folder, SizeBin, Survey, SurveyedFormat
from cordee.systems.data.survey.places import Rate, ReadingNode, StoragePlace
from cordee.systems.data.survey.purge import DAY_S, purge_of
from cordee.systems.data.survey.quota import Quota
from cordee.systems.data.survey.shown_paths import quoted, shown

GB = 1_000_000_000
NOW_S = 1_800_000_000.0


def place(name: str, kind: str, path: str, *, opens: float = 1000.0, read: float = 1e9, **more: object) -> StoragePlace:
    return StoragePlace(name, kind, path, Rate(opens, opens, "profile"), Rate(read, read, "profile"), **more)


MEMORY = place("memory", "memory", "/dev/shm")
NODE = place("nvme", "node", "/local", size_bytes=900 * GB)
SCRATCH = place(
    "scratch", "shared", "/scratch", free_bytes=10**15, own_path="/scratch/me", declared=True, holds_data=True
)
MACHINE = ReadingNode("alps", 512 * GB, (MEMORY, NODE, SCRATCH))


def survey_of(files: int, size: int, name: str = "image", path: str = "/scratch/me/set", **more: object) -> Survey:
    values = dict.fromkeys(
        ("depth", "links", "links_out", "names_more", "other_files", "empty_files", "sparse_files", "vanished"), 0
    )
    formats = (SurveyedFormat(name, files, size, "content", examples=(f"{path}/a",)),)
    return Survey(
        **{
            **values,
            "path": path,
            "files": files,
            "bytes": size,
            "allocated_bytes": size,
            "folders": 10,
            "unreadable_count": 0,
            "unreadable_files": 0,
            "unreadable": (),
            "unreadable_names": (),
            "not_crossed_count": 0,
            "not_crossed": (),
            "sizes": (SizeBin(1 << 60, files, size),),
            "formats": formats,
            "largest_folders": (),
            "file_system": "lustre",
            "began_s": NOW_S,
            "seconds": 1.0,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("files", "size", "name", "kind", "command"),
    [
        (1_000_000, 9 * GB // 2, "image", "memory", "cordee data pack /scratch/me/set --to /scratch/me/set-packed"),
        (1_000_000, 60 * GB, "image", "node", "cordee data pack /scratch/me/set --to /scratch/me/set-packed"),
        (1_000_000, 900 * GB, "image", "shared", "cordee data pack /scratch/me/set --to /scratch/me/set-packed"),
        (20, 9 * GB, "packed", "memory", None),
        (20, 60 * GB, "packed", "node", None),
        (2000, 2000 * GB, "packed", "shared", None),
        (100, 60 * GB, "webdataset", "node", "cordee data pack --index-only /scratch/me/set"),
        (10, 60 * GB, "parquet", "node", None),
        (4, 60 * GB, "hdf5", "node", None),
        (3, 60 * GB, "compressed", "node", "cordee data pack /scratch/me/set --to /scratch/me/set-packed"),
        (3, 60 * GB, "tar", "node", "cordee data pack /scratch/me/set --to /scratch/me/set-packed"),
        (22_806, 6 * GB, "python environment", "memory", "cordee env pack /scratch/me/set/a"),
        (300_000, 6 * GB, "zarr", "memory", "cordee data pack /scratch/me/set/a --to /scratch/me/set/a-packed"),
        (500, 60 * GB, "zarr", "node", None),
        (50_000, 60 * GB, "parquet", "node", None),
        (500, GB // 100, "image", "memory", None),
        (0, 0, "image", "memory", None),
    ],
)  # fmt: skip
def test_the_tier_is_chosen_by_size_and_the_form_says_the_command(files, size, name, kind, command):
    advice = advise(survey_of(files, size, name), MACHINE)
    assert (advice.kind, advice.command) == (kind, command)
    assert advice.action == (command or "nothing: read where it is")
    assert advice.reason


@pytest.mark.parametrize(
    ("size", "changes", "kind", "word"),
    [
        (9 * GB, {"memory_bytes": 512 * GB}, "memory", "fit into the memory"),
        (9 * GB, {"memory_bytes": 16 * GB}, "node", "over half of a node's 16 GB"),
        (9 * GB, {"memory_bytes": None}, "node", "memory of a node is not known"),
        (11 * GB, {"memory_bytes": 512 * GB}, "node", "over the 10 GB"),
        (101 * GB, {}, "shared", "over the 100 GB"),
        (50 * GB, {"places": (MEMORY, replace(NODE, size_bytes=None), SCRATCH)}, "shared", "its size is not known"),
        (50 * GB, {"places": (MEMORY, replace(NODE, free_bytes=GB), SCRATCH)}, "shared", "only 1 GB are free"),
        (50 * GB, {"places": (replace(SCRATCH),)}, "shared", "read from the shared file system (/scratch)"),
        (5 * GB, {"places": (replace(MEMORY, free_bytes=GB), SCRATCH)}, "shared", "only 1 GB are free"),
        (50 * GB, {"places": (replace(NODE, holds_data=True),)}, "node", "already"),
        (50 * GB, {"places": (replace(NODE, holds_data=True), SCRATCH), "elsewhere": True}, "shared", "do not see"),
    ],
)
def test_a_nearer_place_must_have_room_that_is_known(size, changes, kind, word):
    advice = advise(survey_of(20, size, "packed"), replace(MACHINE, **changes))
    assert advice.kind == kind
    assert word in advice.reason


def test_nothing_is_said_to_fit_where_there_are_no_files_or_none_could_be_seen():
    assert advise(survey_of(0, 0), MACHINE).reason == "There are no files"
    unseen = advise(survey_of(0, 0, unreadable_count=1), MACHINE)
    assert unseen.reason == "No files could be seen. Not all of it could be looked at, so it may be more"


def test_the_packed_copy_goes_to_shared_storage_with_room():
    data = survey_of(10**6, 50 * GB, path="/home/me/set")
    home = place("here", "node", "/home", free_bytes=GB, holds_data=True)
    machine = ReadingNode("alps", None, (home, replace(SCRATCH, holds_data=False)))
    assert advise(data, machine).command == "cordee data pack /home/me/set --to /scratch/me/set-packed"
    full = ReadingNode("alps", None, (home, replace(SCRATCH, holds_data=False, free_bytes=GB)))
    assert advise(data, full).command == "cordee data pack /home/me/set --to /home/me/set-packed"
    common = survey_of(10**6, 50 * GB, path="/scratch/common/set")
    closed = replace(MACHINE, beside_writable=False)
    assert advise(common, closed).command == "cordee data pack /scratch/common/set --to /scratch/me/set-packed"


def test_hdf5_with_chunks_that_fit_badly_is_repacked():
    lies = chunks_of("/scratch/me/set/a", "/x", (1000, 512, 512), (1000, 8, 8), 4)
    advice = advise(survey_of(1, 9 * GB, "hdf5", chunks=(lies,)), MACHINE)
    assert advice.command == "cordee data pack /scratch/me/set/a --to /scratch/me/set/a-packed"


@pytest.mark.parametrize("name", [b"plain", b"two words", b"it's", b"\xff\n'\\", "ü ß".encode()])
def test_a_path_in_a_command_is_taken_by_a_shell_as_it_is(name):
    path = os.fsdecode(name)
    taken = subprocess.run(["bash", "-c", f"printf %s {quoted(path)}"], capture_output=True, check=True).stdout
    assert taken == name
    assert quoted(path).isprintable()
    assert shown(path).isprintable()
    if name.isalpha():
        assert shlex.split(quoted(path)) == [path]


@pytest.mark.parametrize(
    ("path", "name", "target"),
    [
        ("/scratch/me/set.tar.gz", "compressed", "/scratch/me/set-packed"),
        ("/scratch/me/set.zip", "zip", "/scratch/me/set-packed"),
        ("/scratch/me/set.v1", "zip", "/scratch/me/set.v1-packed"),
    ],
)
def test_an_archive_is_packed_to_its_name_without_the_ending(path, name, target):
    advice = advise(survey_of(1, GB, name, path=path, folders=0), MACHINE)
    assert advice.command == f"cordee data pack {path} --to {target}"


def test_a_zarr_store_below_the_path_is_what_is_written_anew():
    stores = (
        SurveyedFormat(
            "zarr", 10_000, GB, "structure", examples=("/scratch/me/sets/a.zarr", "/scratch/me/sets/a.zarr/x")
        ),
    )
    advice = advise(survey_of(10_000, GB, "zarr", path="/scratch/me/sets", formats=stores), MACHINE)
    assert advice.command == ("cordee data pack /scratch/me/sets/a.zarr --to /scratch/me/sets/a-packed")


def test_an_epoch_costs_opens_and_bytes_and_packing_makes_few_of_many():
    (memory, _, shared) = forecast(50_000, 2_540_000_000, MACHINE)
    assert shared.as_it_is.opens == 50_000
    assert shared.as_it_is.metadata_operations == 150_000
    assert shared.as_it_is.seconds == (52.54, 52.54)
    assert shared.packed.opens == 7
    assert shared.packed.seconds[0] == pytest.approx(2.6, abs=0.01)
    assert memory.tier == "memory"


def test_a_range_of_rates_is_a_range_of_times():
    scratch = replace(SCRATCH, opens=Rate(100.0, 1000.0, "assumed"), read=Rate(1e8, 1e9, "assumed"))
    (only,) = forecast(1000, 10**9, ReadingNode("alps", None, (scratch,)))
    assert only.as_it_is.seconds == (2.0, 20.0)
    assert (only.opens_basis, only.read_basis) == ("assumed", "assumed")


@pytest.mark.parametrize(("size", "shards"), [(0, 1), (1, 1), (512_000_000, 1), (512_000_001, 2), (10**12, 1954)])
def test_shards_are_half_a_gigabyte(size, shards):
    assert shards_of(size) == shards


def test_purges_are_told_by_when_files_were_last_used():
    ages = {0: (5, 50), 22: (3, 30), 23: (2, 20), 40: (1, 10)}
    purge = purge_of(ages, NOW_S - 40.5 * DAY_S, NOW_S, 30 * DAY_S, within_days=7)
    assert (purge.soon_files, purge.soon_bytes) == (3, 30)
    assert purge.first_s == NOW_S - 10.5 * DAY_S
    assert purge_of(ages, NOW_S, NOW_S, None) is None
    assert purge_of({}, None, NOW_S, 30 * DAY_S) is None
    assert purge_of(ages, NOW_S - 40.5 * DAY_S, NOW_S, 90 * DAY_S).soon_files == 0


def rules(data: Survey, *quotas: Quota, machine: ReadingNode = MACHINE, purge: object = None) -> list[tuple[str, str]]:
    return [(each.rule, each.severity) for each in findings_of(data, machine, quotas, purge)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"unreadable_count": 2, "unreadable": ("/a: Permission denied",)}, [("unreadable", "warn")]),
        ({"unreadable_files": 1, "unreadable_names": ("/a/b",)}, [("unreadable-files", "warn")]),
        ({"links": 3, "links_out": 2}, [("links-out", "info")]),
        ({"links": 300, "links_out": 200}, [("links-out", "warn")]),
        ({"not_crossed_count": 1, "not_crossed": ("/a",)}, [("other-file-system", "info")]),
        ({"vanished": 1}, [("vanished", "info")]),
        ({"largest_folders": (Folder("/a", 20_000),)}, [("crowded-folder", "info")]),
        ({"empty_files": 1}, [("empty-files", "info")]),
        ({"sparse_files": 1}, [("sparse", "info")]),
        ({"unsaved": "/cache: Disk quota exceeded"}, [("unsaved", "warn")]),
        ({"chunks_unknown": "h5py is not installed"}, [("chunks-unknown", "info")]),
    ],
)
def test_what_is_worth_a_warning(changes, expected):
    assert rules(survey_of(100, 10**12, "parquet", **changes)) == expected


def test_a_crowded_folder_of_small_files_is_a_warning():
    data = survey_of(60_000, GB, largest_folders=(Folder("/scratch/me/set/all", 60_000),))
    assert rules(data) == [("crowded-folder", "warn")]


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (Quota("profile", limit_files=1_000_000), [("quota", "warn")]),
        (Quota("profile", limit_files=2_000_000), [("quota", "info")]),
        (Quota("profile", limit_files=10_000_000), []),
        (Quota("lfs quota", used_files=990, limit_files=1000), [("quota", "warn")]),
        (Quota("quota", used_bytes=95 * 10**12, limit_bytes=100 * 10**12), [("quota", "warn")]),
        (Quota("quota", used_bytes=5 * 10**12), []),
    ],
)
def test_a_quota_that_is_nearly_used_or_mostly_this_is_said(quota, expected):
    assert rules(survey_of(600_000, 5 * 10**12), quota) == expected


def test_a_purge_is_a_warning_with_its_first_date():
    purge = purge_of({29: (2, 20)}, NOW_S - 29.5 * DAY_S, NOW_S, 30 * DAY_S)
    assert rules(survey_of(100, 10**12, "parquet"), purge=purge) == [("purge", "warn")]
    (finding,) = findings_of(survey_of(100, 10**12, "parquet"), MACHINE, (), purge)
    assert "2 files, 20 B, will be purged within 7 days, the first on 2027-01-15" in finding.text
