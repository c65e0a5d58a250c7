"""Checks of file systems: on this machine, on full ones, on read-only ones, and on one that never answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.limited import HangingError, answers_within
from cordee.machine.mounts import mount_of, read_mounts
from cordee.systems.vetting.node import checks
from cordee.systems.vetting.node.checks import run_checks
from support.hosts.host_tree import HostTree

SOURCE = str(Path(checks.__file__).parents[5])
# In a world of its own, where this person may mount; nobody else sees what is mounted there.
ELSEWHERE = ["unshare", "--map-root-user", "--mount"]
HANGING = [*ELSEWHERE, sys.executable, "-m", "support.hosts.hanging"]


def one(
    check: str, root: Path | str = "/", workdir: Path | str = "/", deadline_s: float = 20, **parameters: Any
) -> Any:
    (result,) = run_checks(
        {
            "checks": [{"check": check, "parameters": parameters}],
            "deadline_s": deadline_s,
            "root": str(root),
            "workdir": str(workdir),
            "env": {"PATH": os.environ["PATH"], "TMPDIR": str(workdir)},
        }
    )
    assert result["evidence"]
    assert json.loads(json.dumps(result)) == result
    return result


def elsewhere(prefix: list[str], check: str, deadline_s: float, **parameters: Any) -> Any:
    request = {"checks": [{"check": check, "parameters": parameters}], "deadline_s": deadline_s, "workdir": "/"}
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "cordee.systems.vetting.node.checks"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    folder = tmp_path / "hung"
    folder.mkdir()
    return folder


def test_a_folder_of_this_machine_is_mounted_and_has_room(tmp_path: Path) -> None:
    result = one("storage.mount", workdir=tmp_path)
    assert result["status"] == "pass"
    assert f"{tmp_path} (" in result["evidence"]
    free = one("storage.free", workdir=tmp_path, min_free=0.0001, min_free_files=0.0)
    assert free["status"] == "pass"
    assert 0 < free["value"] <= 1


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    result = one("storage.mount", paths=[str(gone), str(tmp_path)])
    assert result["status"] == "fail"
    assert str(gone) in result["evidence"]
    assert result["evidence"].endswith("cannot be used: No such file or directory")
    free = one("storage.free", paths=[str(gone)])
    assert (free["status"], free["cause"]) == ("unknown", "absent")


def test_the_kind_of_file_system_can_be_demanded() -> None:
    assert one("storage.mount", paths=["/proc"], types=["proc"], writable=False)["status"] == "pass"
    result = one("storage.mount", paths=["/proc"], types=["lustre", "nfs*"], writable=False)
    assert (result["status"], result["evidence"]) == (
        "fail",
        "/proc (proc from proc) is of another kind than lustre, nfs*",
    )


def test_a_file_system_that_is_not_mounted_is_told_from_a_folder_of_that_name(tmp_path: Path) -> None:
    host = HostTree(tmp_path / "host")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    missing = one("storage.mount", host.root, paths=[str(scratch)], mounted=True)
    assert missing["evidence"].endswith("is not mounted: it lies on the file system of /")
    host.mount(str(scratch), "lustre", "10.0.0.1@o2ib:/scratch")
    assert one("storage.mount", host.root, paths=[str(scratch)], mounted=True, types=["lustre"])["status"] == "pass"


def test_a_read_only_file_system_fails_where_it_must_take_files(tmp_path: Path) -> None:
    host = HostTree(tmp_path / "host")
    host.mount(str(tmp_path), "nfs4", "server:/export", options="ro")
    result = one("storage.mount", host.root, paths=[str(tmp_path)])
    assert (result["status"], result["evidence"]) == (
        "fail",
        f"{tmp_path} (nfs4 from server:/export) is mounted read-only",
    )
    assert one("storage.mount", host.root, paths=[str(tmp_path)], writable=False)["status"] == "pass"


def test_a_mount_table_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    result = one("storage.mount", tmp_path / "no-host", paths=["/"], types=["xfs"])
    assert (result["status"], result["cause"]) == ("unknown", "closed")


def test_the_file_system_of_a_path_is_found_by_its_name(tmp_path: Path) -> None:
    host = HostTree(tmp_path)
    host.mount("/scratch\\040space", "lustre", "a")
    host.mount("/scratch", "nfs4", "b")
    host.mount("/scratch", "tmpfs", "c")
    mounts = read_mounts(str(tmp_path))
    kinds = {
        path: getattr(mount_of(path, mounts), "source", None)
        for path in ("/scratch space/x", "/scratch/x", "/scratchy")
    }
    assert kinds == {"/scratch space/x": "a", "/scratch/x": "c", "/scratchy": "/dev/sda1"}
    assert mount_of("/x", []) is None


def test_a_file_system_that_hangs_is_named_and_does_not_hold_the_check(hung: Path) -> None:
    result = elsewhere([*HANGING, str(hung)], "storage.mount", 10, paths=["/", str(hung)], patience=0.3, writable=False)
    assert result["status"] == "fail"
    assert result["evidence"] == f"{hung} (fuse from hanging) hangs: no answer within 0.3 s"
    assert result["facts"]["hanging"] == [str(hung)]


def test_room_on_a_file_system_that_hangs_is_unknown_by_name(hung: Path) -> None:
    result = elsewhere([*HANGING, str(hung)], "storage.free", 0.8, paths=[str(hung)])
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert str(hung) in result["evidence"]


def test_reading_from_a_file_system_that_hangs_fails_by_name(hung: Path) -> None:
    result = elsewhere([*HANGING, str(hung)], "storage.read", 0.8, file=f"{hung}/data")
    assert result["status"] == "fail"
    assert f"{hung}/data hangs" in result["evidence"]


def test_a_full_file_system_fails_with_its_share(hung: Path) -> None:
    fill = f'mount -t tmpfs -o size=1m none {hung} && head -c 1030000 /dev/zero > {hung}/big; exec "$@"'
    result = elsewhere([*ELSEWHERE, "sh", "-c", fill, "sh"], "storage.free", 10, paths=[str(hung)])
    assert result["status"] == "fail"
    assert f"{hung}: " in result["evidence"]
    assert "5.0% needed" in result["evidence"]
    assert result["value"] < 0.05


def test_a_file_system_without_inodes_fails(hung: Path) -> None:
    fill = f'mount -t tmpfs -o nr_inodes=3 none {hung} && touch {hung}/1 {hung}/2; exec "$@"'
    result = elsewhere([*ELSEWHERE, "sh", "-c", fill, "sh"], "storage.free", 10, paths=[str(hung)])
    assert result["status"] == "fail"
    assert f"{hung}: 0 of 3 files (inodes) left" in result["evidence"]


def test_too_few_bytes_fail_whatever_their_share(tmp_path: Path) -> None:
    result = one("storage.free", workdir=tmp_path, min_bytes=1 << 60, min_free=0.0)
    assert "1.15e+03 PB needed" in result["evidence"]


def test_reading_is_timed_past_the_cache_and_leaves_nothing_behind(tmp_path: Path) -> None:
    result = one("storage.read", workdir=tmp_path, bytes=8 << 20, max_seconds=60)
    assert result["status"] == "pass"
    assert result["facts"]["bytes"] == 8 << 20
    assert result["value"] == pytest.approx((8 << 20) / result["facts"]["seconds"], rel=0.01)
    assert result["compare"] == [{"kind": "low", "of": "value", "ratio": 0.5, "margin": None, "status": "fail"}]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_given_is_read_to_its_end_at_most(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(5_000_001))
    result = one("storage.read", workdir=tmp_path, file="data", max_seconds=60)
    assert (result["status"], result["facts"]["bytes"]) == ("pass", 5_000_001)
    (tmp_path / "empty").touch()
    assert one("storage.read", workdir=tmp_path, file="empty")["cause"] == "absent"
    assert one("storage.read", workdir=tmp_path, file="none")["cause"] == "absent"


def test_storage_that_reads_too_slowly_fails_with_both_speeds(tmp_path: Path) -> None:
    result = one("storage.read", workdir=tmp_path, bytes=1 << 20, max_seconds=1e-9)
    assert result["status"] == "fail"
    assert result["evidence"].endswith("needed")
    assert result["value"] < result["threshold"]


@pytest.mark.usefixtures("real")
def test_a_pipe_that_nobody_writes_to_hangs_and_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = one("storage.read", workdir=tmp_path, file="pipe", deadline_s=12.0)
    assert result["status"] == "fail"
    assert f"{tmp_path}/pipe hangs" in result["evidence"]


def test_answers_errors_and_silence_are_told_apart() -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied")

    answers = answers_within(
        3.0, {"good": lambda: [1, "a"], "closed": refuse, "slow": lambda: time.sleep(60), "dies": lambda: os._exit(1)}
    )
    assert answers["good"] == [1, "a"]
    assert isinstance(answers["closed"], PermissionError)
    assert isinstance(answers["slow"], HangingError)
    assert isinstance(answers["dies"], OSError)
