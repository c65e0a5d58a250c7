"""What is below a path is counted once and whole, whatever lies there and whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.survey import scan as scanning
from cordee.systems.data.survey import worker
from cordee.systems.data.survey.path_survey import last_survey, survey
from cordee.systems.data.survey.scan import Scan
from cordee.systems.data.survey.totals import SurveyState

# A scan that writes its state down after every folder: something to kill.
SLOW = """
import sys
from cordee.systems.data.survey import scan
scan._ALONE_S, scan._BUDGET_S, scan._SAVE_EVERY_S, scan._FOLDERS_AT_ONCE = 0.0, 0.0, 0.0, 1
scan.Scan(sys.argv[1], resume=len(sys.argv) > 2).run()
"""


def make(folder: Path, folders: int, files: int) -> None:
    for number in range(folders):
        inner = folder / f"class-{number % 7}" / f"part-{number}"
        inner.mkdir(parents=True)
        for name in range(files):
            (inner / f"{name}.jpg").write_bytes(b"x" * (name + 1))


def test_files_bytes_and_folders_are_those_of_find(tree):
    make(tree, 40, 5)
    (tree / "empty").mkdir()
    (tree / "nothing.txt").touch()
    found = survey(str(tree))
    sizes = [int(line) for line in find(tree, "-type", "f", "-printf", r"%s\n").split()]
    assert (found.files, found.bytes) == (len(sizes), sum(sizes)) == (201, 40 * 15)
    assert found.folders == len(find(tree, "-type", "d").splitlines())
    assert found.depth == 2
    assert found.empty_files == 1
    assert found.complete
    assert sum(each.files for each in found.sizes) == 201
    assert [(each.below_bytes, each.files) for each in found.sizes] == [(1, 1), (2, 40), (4, 80), (8, 80)]


def test_many_processes_count_what_one_does(tree, monkeypatch):
    make(tree, 60, 3)
    alone = survey(str(tree))
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    monkeypatch.setattr(scanning, "_BUDGET_S", 0.0)
    together = survey(str(tree), workers=3)
    for name in ("files", "bytes", "folders", "depth", "sizes", "allocated_bytes", "ages"):
        assert getattr(together, name) == getattr(alone, name), name


@pytest.mark.parametrize(("told_s", "processes"), [(0.0, 4), (1000.0, 1)])
def test_more_processes_look_while_storage_lets_them_wait_for_long_enough_to_tell(tree, monkeypatch, told_s, processes):
    make(tree, 200, 1)
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    monkeypatch.setattr(scanning, "_BUDGET_S", 0.0)
    monkeypatch.setattr(scanning, "_FOLDERS_AT_ONCE", 1)
    monkeypatch.setattr(scanning, "_MOSTLY_WAITING", -1.0)
    monkeypatch.setattr(scanning, "_TELLING_S", told_s)
    scan = Scan(str(tree), workers=4)
    monkeypatch.setattr(scan, "_cores", 1)
    started = []
    start = scan._start
    monkeypatch.setattr(scan, "_start", lambda selector: (started.append(1), start(selector)))
    assert scan.run().part["files"] == 200
    assert len(started) == processes


def test_a_file_of_several_names_counts_once_in_bytes(tree, monkeypatch):
    monkeypatch.setattr(scanning, "_BUDGET_S", 0.0)
    (tree / "a").mkdir()
    (tree / "a" / "one").write_bytes(b"x" * 5000)
    os.link(tree / "a" / "one", tree / "two")
    os.link(tree / "a" / "one", tree / "three")
    found = survey(str(tree))
    assert (found.files, found.names_more, found.bytes) == (3, 2, 5000)
    assert (found.named_bytes, found.formats[0].bytes) == (15_000, 15_000)


def test_links_are_counted_and_never_followed(tree, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 100_000)
    (tree / "inner").mkdir()
    (tree / "inner" / "file").write_bytes(b"x")
    (tree / "inner" / "loop").symlink_to(tree)
    (tree / "beside").symlink_to("inner/file")
    (tree / "out").symlink_to(outside)
    (tree / "away").symlink_to("../outside/big")
    (tree / "broken").symlink_to("nowhere")
    found = survey(str(tree))
    assert (found.files, found.bytes, found.links, found.links_out) == (1, 1, 5, 2)


def test_a_link_to_the_data_set_is_what_it_leads_to(tree, tmp_path):
    make(tree, 2, 2)
    (tmp_path / "link").symlink_to(tree)
    assert survey(str(tmp_path / "link")).path == str(tree)
    assert survey(str(tmp_path / "link")).files == 4


def test_a_single_file_is_a_data_set(tree):
    (tree / "train.bin").write_bytes(b"x" * 10)
    found = survey(str(tree / "train.bin"))
    assert (found.files, found.bytes, found.folders) == (1, 10, 0)


def test_names_of_any_bytes_are_counted_and_told_as_json(tree):
    for name in (b"new\nline.jpg", b"latin-\xe9.jpg", b"tab\t.jpg", " \N{SNOWMAN}.jpg".encode()):
        (tree / os.fsdecode(name)).write_bytes(b"x")
    (tree / os.fsdecode(b"folder-\xff\n")).mkdir()
    (tree / os.fsdecode(b"folder-\xff\n") / "x").write_bytes(b"x")
    found = survey(str(tree))
    assert found.files == 5
    json.loads(json.dumps(found.document()))


def test_sparse_files_are_told_by_what_is_allocated(tree):
    with open(tree / "sparse", "wb") as file:
        file.truncate(20_000_000_000)
    found = survey(str(tree))
    assert found.bytes == 20_000_000_000
    assert found.allocated_bytes < 1_000_000
    assert found.sparse_files == 1


def test_a_file_without_blocks_is_never_read_as_it_may_lie_on_tape(tree):
    with open(tree / "archived.h5", "wb") as file:
        file.truncate(1_000_000)
    (tree / "here.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert survey(str(tree)).samples == (str(tree / "here.h5"),)


def test_any_time_of_a_file_can_be_told(tree):
    for number, seconds in enumerate((0, 1e11, -1e11)):
        (tree / str(number)).touch()
        os.utime(tree / str(number), (seconds, seconds))
    found = survey(str(tree))
    assert found.oldest_s < 1
    assert found.document()["oldest"].startswith("1970-01-01")


def test_what_is_no_file_is_counted_and_never_opened(tree, monkeypatch):
    os.mkfifo(tree / "pipe")
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        found = survey(str(tree))
    assert (found.files, found.other_files) == (0, 2)


def test_a_folder_that_cannot_be_read_is_named_and_makes_the_survey_partial(tree, monkeypatch):
    make(tree, 3, 2)
    closed = str(tree / "class-1")
    opened = os.open

    def refusing(path, *arguments, **more):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **more)

    monkeypatch.setattr(worker.os, "open", refusing)
    found = survey(str(tree))
    assert not found.complete
    assert found.unreadable == (f"{closed}: Permission denied",)
    assert found.files == 4


def test_what_goes_away_meanwhile_is_tolerated(tree, monkeypatch):
    make(tree, 3, 2)
    gone = str(tree / "class-1" / "part-1")
    scandir = os.scandir

    def late(descriptor):
        listing = scandir(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}") == os.path.dirname(gone):
            for name in os.listdir(gone):
                os.remove(f"{gone}/{name}")
            listed = list(listing)
            os.rmdir(gone)
            return _Closing(listed)
        return listing

    monkeypatch.setattr(worker.os, "scandir", late)
    found = survey(str(tree))
    assert found.vanished == 1
    assert found.complete
    assert found.files == 4


class _Closing(list):
    def __enter__(self):
        return iter(self)

    def __exit__(self, *error):
        return None


def test_a_folder_that_is_a_link_by_then_is_not_followed(tree, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "big").write_bytes(b"x" * 100_000)
    (tree / "inner").symlink_to(tmp_path / "outside")
    part = looker(tree).look([(str(tree), 0, ""), (str(tree / "inner"), 1, "")], 60.0)
    assert (part["files"], part["folders"], part["vanished"]) == (0, 1, 1)


def test_a_folder_whose_names_are_all_that_may_be_seen_is_not_whole(tree, monkeypatch):
    (tree / "open").write_bytes(b"x")
    ask = worker.Looker._ask

    def refusing(self, descriptor, listed):
        names, columns, _ = ask(self, descriptor, listed)
        return names[1:], [column[1:] for column in columns], [PermissionError(13, "Permission denied")]

    make(tree, 1, 2)
    monkeypatch.setattr(worker.Looker, "_ask", refusing)
    found = survey(str(tree))
    assert not found.complete
    assert found.vanished == 0
    assert f"{tree}: Permission denied" in found.unreadable


def test_columns_count_what_a_loop_over_files_would(tree):
    names = [
        "a.jpg",
        "b.JPG",
        ".jpg",
        "jpg",
        "a.tar.gz",
        "b.gz",
        "c.csv.gz",
        ".gz",
        "x.0",
        "y.17",
        "z.",
        "none",
        "noon",
        ".hidden.txt",
        "a.very-long-suffix",
    ]
    now_s = time.time()
    for number, name in enumerate(names):
        size = (0, 1, 4095, 4096, 70_000)[number % 5]
        (tree / name).write_bytes(b"x" * size)
        os.utime(tree / name, (now_s - number * 50_000, now_s - 86_400 * 3 + number * 10_000))
    with open(tree / "hole.bin", "wb") as file:
        file.truncate(1 << 20)
    os.link(tree / "a.jpg", tree / "again.jpg")
    part = looker(tree, now_s).look([(str(tree), 0, "")], 60.0)
    expected = {"sizes": {}, "ages": {}, "suffixes": {}}
    used = []
    for entry in os.scandir(tree):
        status = entry.stat()
        used.append(int(max(status.st_atime, status.st_mtime)))
        keys = {"sizes": status.st_size.bit_length(), "ages": int((now_s - used[-1]) // 86_400)}
        for name, key in {**keys, "suffixes": worker.suffix_of(entry.name)}.items():
            kept = expected[name].setdefault(key, [0, 0, *([0] if name == "suffixes" else [])])
            kept[:2] = [kept[0] + 1, kept[1] + status.st_size]
            if name == "suffixes":
                kept[2] = max(kept[2], status.st_size)
    assert {name: part[name] for name in expected} == expected
    assert set(part["suffixes"]) == {"jpg", "", "tar.gz", "gz", "csv.gz", "#", "txt", "bin"}
    assert part["oldest_s"] == min(used)
    assert (part["files"], part["empty"], part["sparse"]) == (len(names) + 2, 4, 1)
    assert [each[2:4] for each in part["hard_links"]] == [(2, 0), (2, 0)]


@pytest.mark.parametrize("alike", [False, True])
def test_every_way_of_asking_says_the_same(tree, alike):
    for number in range(40):
        (tree / f"{number}.jpg").write_bytes(b"x" * number * 300)
        os.utime(tree / f"{number}.jpg", (-5.5, number * 1e6))
    (tree / os.fsdecode(b"latin-\xe9 \xff.png")).write_bytes(b"x" * 70_000)
    if not alike:
        os.link(tree / "5.jpg", tree / "linked.jpg")
        (tree / "inner").mkdir()
        (tree / "link").symlink_to("inner")
        os.mkfifo(tree / "pipe")
    parts = []
    for statx, slow in ((True, False), (False, False), (False, True)):
        looks = looker(tree)
        assert looks._statx is not None
        looks._statx, looks._slow = looks._statx if statx else None, slow
        part = looks.look([(str(tree), 0, "")], 60.0)
        assert (looks._pool is not None) == slow
        for name in ("hard_links", "todo"):
            part[name].sort()
        del part["samples"]
        parts.append(part)
    assert parts[0]["files"] == (41 if alike else 42)
    assert parts[0] == parts[1] == parts[2]


def test_statx_says_of_a_file_what_stat_says(tree):
    (tree / "one").write_bytes(b"x" * 5000)
    os.link(tree / "one", tree / "two")
    (tree / "inner").mkdir()
    names = ["one", "inner", "two"]
    descriptor = os.open(tree, os.O_RDONLY)
    try:
        columns = worker.Statx(3).columns(descriptor, names)
        assert worker.Statx(3).columns(descriptor, ["one", "gone"]) is None
    finally:
        os.close(descriptor)
    expected = worker._columns([os.lstat(tree / name) for name in names])
    assert [list(column) for column in columns] == [list(column) for column in expected]


def test_a_c_library_without_statx_is_no_fault(tree, monkeypatch):
    def missing(most):
        raise AttributeError("undefined symbol: statx")

    make(tree, 3, 2)
    monkeypatch.setattr(worker, "Statx", missing)
    assert survey(str(tree)).files == 6


def test_files_that_one_may_not_read_are_told_by_their_rights(tree, monkeypatch):
    for name, mode in (("mine", 0o600), ("closed", 0o000), ("write-only", 0o200)):
        (tree / name).write_bytes(b"x")
        (tree / name).chmod(mode)
    looks = looker(tree)
    looks._user = os.geteuid() or 1
    monkeypatch.setattr(worker.os, "access", lambda path, mode: False)
    if os.geteuid() == 0:
        for name in ("mine", "closed", "write-only"):
            os.chown(tree / name, 1, 1)
    part = looks.look([(str(tree), 0, "")], 60.0)
    assert part["unreadable_files"] == 2
    assert sorted(part["unreadable_names"]) == [str(tree / "closed"), str(tree / "write-only")]


def looker(tree, now_s: float = 0.0) -> worker.Looker:
    status = os.lstat(tree)
    return worker.Looker({"top": str(tree), "device": status.st_dev, "cross": False, "mounts": [], "now_s": now_s})


def test_other_file_systems_are_not_crossed_unless_asked(tree, monkeypatch):
    make(tree, 3, 2)
    point = str(tree / "class-1")
    mounts = [scanning_mount(point)]
    monkeypatch.setattr(scanning, "read_mounts", lambda root: mounts)
    found = survey(str(tree))
    assert (found.files, found.not_crossed_count, found.not_crossed) == (4, 1, (point,))
    assert survey(str(tree), cross=True).files == 6


def scanning_mount(point: str):
    from cordee.machine.mounts import Mount

    return Mount(point, "ext4", "/dev/other", True)


def test_a_mount_that_shows_a_folder_above_is_a_loop(tree):
    (tree / "inner").mkdir()
    assert worker._is_above(os.lstat(tree), str(tree / "inner" / "mount"))
    assert not worker._is_above(os.lstat(tree / "inner"), str(tree / "inner"))


def test_nothing_at_the_path_is_said(tree):
    with pytest.raises(UsageError, match="nothing at this path"):
        survey(str(tree / "missing"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [("", "nothing at this path"), ("round", "leads to itself"), ("pipe", "neither a folder nor a file")],
)
def test_what_is_no_data_set_is_said(tree, monkeypatch, given, problem):
    (tree / "round").symlink_to("back")
    (tree / "back").symlink_to("round")
    os.mkfifo(tree / "pipe")
    monkeypatch.chdir(tree)
    with pytest.raises(UsageError, match=problem):
        survey(given)


def test_a_file_is_found_where_its_folder_may_not_be_listed(tree, monkeypatch):
    (tree / "train.bin").write_bytes(b"x" * 10)

    def refusing(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(worker.os, "scandir", refusing)
    assert survey(str(tree / "train.bin")).files == 1


def test_a_path_that_may_not_be_looked_at_is_not_called_missing(tree, monkeypatch):
    lstat = os.lstat

    def refusing(path, **more):
        if str(path).endswith("closed/set"):
            raise PermissionError(13, "Permission denied")
        return lstat(path, **more)

    monkeypatch.setattr(os, "lstat", refusing)
    with pytest.raises(DataError, match="cannot be looked at"):
        survey(str(tree / "closed" / "set"))


def test_resume_needs_an_interrupted_survey(tree):
    with pytest.raises(UsageError, match="no interrupted survey"):
        survey(str(tree), resume=True)
    survey(str(tree))
    with pytest.raises(UsageError, match="no interrupted survey"):
        survey(str(tree), resume=True)


def test_the_last_survey_is_shown_without_another_look(tree):
    assert last_survey(str(tree)) is None
    make(tree, 3, 2)
    first = survey(str(tree))
    make(tree / "more", 3, 2)
    kept = last_survey(str(tree))
    assert kept.kept
    assert (kept.files, kept.bytes, kept.sizes, kept.began_s) == (first.files, first.bytes, first.sizes, first.began_s)


def test_one_that_was_interrupted_goes_on_and_leaves_the_last_whole_one_as_it_is(tree, monkeypatch):
    make(tree, 10, 2)
    whole = survey(str(tree))
    make(tree / "more", 10, 2)
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(scanning, "WORKER", tree / "missing.py")
        with pytest.raises(DataError, match="have ended"):
            survey(str(tree))
    assert last_survey(str(tree)).files == whole.files == 20
    found = survey(str(tree), resume=True)
    assert (found.files, found.resumed, last_survey(str(tree)).files) == (40, True, 40)
    with pytest.raises(UsageError, match="no interrupted survey"):
        survey(str(tree), resume=True)


def test_a_scan_that_goes_on_for_longer_can_be_resumed_from_its_beginning(tree, monkeypatch):
    make(tree, 10, 2)
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    state = SurveyState(str(tree))
    kept = []
    monkeypatch.setattr(scanning.Scan, "_together", lambda scan: kept.append(state.read(state.under_way)))
    Scan(str(tree)).run()
    assert kept[0]["todo"] == [[str(tree), 0, ""]]


def test_a_damaged_state_is_no_state(tree):
    survey(str(tree))
    SurveyState(str(tree)).whole.write_text('{"schema": "cordee.data-sur')
    assert last_survey(str(tree)) is None
    assert survey(str(tree)).files == 0


def test_a_cache_that_cannot_be_written_is_told_and_the_survey_goes_on(tree, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make(tree, 3, 2)
    found = survey(str(tree))
    assert found.files == 6
    assert "file/cordee" in found.unsaved


def test_a_survey_killed_at_any_moment_goes_on_and_counts_everything_once(tree):
    make(tree, 60, 3)
    os.link(tree / "class-0" / "part-0" / "0.jpg", tree / "linked")
    expected = survey(str(tree))
    kept = SurveyState(str(tree))
    state = kept.under_way
    kept.whole.unlink()
    resumed, seen = [], -1
    while not kept.whole.exists():
        child = subprocess.Popen([sys.executable, "-c", SLOW, str(tree), *resumed])
        seen = _wait_for_folders(state, seen + 11, child)
        child.send_signal(signal.SIGKILL)
        child.wait()
        resumed = ["resume"]
        assert len(list(state.parent.glob("*.json"))) == 1
        assert seen <= expected.folders
    found = last_survey(str(tree))
    for name in ("files", "bytes", "folders", "depth", "sizes", "allocated_bytes", "names_more"):
        assert getattr(found, name) == getattr(expected, name), name


def _folders(state: Path) -> int:
    """Return how many folders are counted, 0 where it is not under way."""
    try:
        return json.loads(state.read_text())["counted"]["folders"]
    except FileNotFoundError:
        return 0


def _wait_for_folders(state: Path, folders: int, child: subprocess.Popen) -> int:
    """Return how many folders are counted, when they are so many or the child has ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended = child.poll() is not None
        counted = _folders(state)
        if ended or counted >= folders:
            return counted
        time.sleep(0.005)
    raise AssertionError("the survey does not go on")


def test_the_folders_of_a_process_that_is_killed_are_looked_at_by_the_others(tree, monkeypatch):
    make(tree, 80, 2)
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    monkeypatch.setattr(scanning, "_BUDGET_S", 0.0)
    monkeypatch.setattr(scanning, "_FOLDERS_AT_ONCE", 2)
    scan = Scan(str(tree), workers=2)
    killed = []
    give = scanning._Worker.give

    def kill_one(self, folders):
        give(self, folders)
        if len(scan._workers) == 2 and not killed and scan.totals.part["folders"] > 10:
            killed.append(self)
            self._process.kill()

    monkeypatch.setattr(scanning._Worker, "give", kill_one)
    monkeypatch.setattr(scan, "_cores", 2)
    assert scan.run().part["files"] == 160
    assert killed


def test_the_end_of_all_processes_is_an_error_and_what_is_left_is_kept(tree, monkeypatch):
    make(tree, 10, 2)
    monkeypatch.setattr(scanning, "_ALONE_S", 0.0)
    monkeypatch.setattr(scanning, "WORKER", tree / "missing.py")
    with pytest.raises(DataError, match="have ended"):
        Scan(str(tree)).run()
    state = SurveyState(str(tree))
    assert state.read(state.under_way)["todo"] == [[str(tree), 0, ""]]


def find(folder: Path, *arguments: str) -> str:
    return subprocess.run(["find", str(folder), *arguments], check=True, capture_output=True, text=True).stdout
