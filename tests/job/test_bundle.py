"""The zip of the node side: made once for a version, shared by all its runs, and forgotten when nobody has used it for long."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import cordee
from cordee.job.submit.bundle import link_node_zip, write_node_zip

_DAY_S = 86_400.0


def test_copies_of_versions_that_nobody_uses_go_and_a_copy_in_use_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "cordee"
    kept.mkdir()
    for name, days in (("node-old.zip", 31), ("node-new.zip", 29), ("other.zip", 100)):
        (kept / name).touch()
        os.utime(kept / name, (0, time.time() - days * _DAY_S))
    write_node_zip(tmp_path / "node.zip")
    (made,) = (path for path in kept.iterdir() if path.stat().st_size)
    assert {path.name for path in kept.iterdir()} == {"node-new.zip", "other.zip", made.name}
    os.utime(made, (0, time.time() - 31 * _DAY_S))
    write_node_zip(tmp_path / "again.zip")
    assert time.time() - made.stat().st_mtime < _DAY_S
    assert "cordee/__init__.py" in zipfile.ZipFile(tmp_path / "again.zip").namelist()


def runs_of(tmp_path, number):
    """Return where the node side of some runs in one folder goes."""
    folders = [tmp_path / "runs" / f"r{each}" for each in range(number)]
    for folder in folders:
        folder.mkdir(parents=True)
    return [folder / "node.zip" for folder in folders]


def shared_of(tmp_path):
    (shared,) = (tmp_path / "runs").glob(".node-*")
    return shared


def test_runs_of_a_version_share_one_file_that_is_not_the_cache(tmp_path):
    first, second = runs_of(tmp_path, 2)
    unused = tmp_path / "runs" / f".node-0123-{os.getuid()}.zip"
    unused.touch()
    link_node_zip(first)
    link_node_zip(second)
    assert first.stat().st_ino == second.stat().st_ino == shared_of(tmp_path).stat().st_ino
    assert first.stat().st_nlink == 3
    assert "cordee/__init__.pyc" in zipfile.ZipFile(second).namelist()
    assert not unused.exists()


def written_into(shared):
    data = bytearray(shared.read_bytes())
    data[len(data) // 2] ^= 1
    shared.chmod(0o644)
    shared.write_bytes(data)
    shared.chmod(0o444)


def taken_by_another(shared):
    os.chown(shared, 65534, -1)


def writable(shared):
    shared.chmod(0o666)


def linked_elsewhere(shared):
    shared.unlink()
    shared.symlink_to("/etc/hostname")


@pytest.mark.parametrize("change", [written_into, taken_by_another, writable, linked_elsewhere])
def test_a_file_that_was_changed_or_can_be_is_no_copy_of_the_node_side(tmp_path, change):
    first, second = runs_of(tmp_path, 2)
    link_node_zip(first)
    right = first.read_bytes()
    before = first.stat().st_ino
    try:
        change(shared_of(tmp_path))
    except PermissionError:  # only root gives files away
        return
    link_node_zip(second)
    assert second.read_bytes() == right
    assert second.stat().st_ino != before


def test_a_file_system_without_links_holds_copies(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    first, second = runs_of(tmp_path, 2)
    link_node_zip(first)
    link_node_zip(second)
    assert first.read_bytes() == second.read_bytes()
    assert not list((tmp_path / "runs").glob(".node-*"))


def command(zipped, *words, flags=(), installed=True):
    """Return how a command of Cordée ends in a Python that has the node side first on its path."""
    path = [str(zipped), *([str(Path(cordee.__file__).parents[1])] if installed else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(
        [sys.executable, *flags, *words], env=env, cwd=zipped.parent, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "start", [("-m", "cordee"), ("-m", "cordee.cli"), ("-c", "from cordee.faces.cli import main; main()")]
)
def test_a_rank_that_calls_the_command_gets_the_installed_one(tmp_path, start):
    link_node_zip(tmp_path / "node.zip")
    done = command(tmp_path / "node.zip", *start, "-V")
    assert (done.returncode, done.stdout) == (0, f"cordee {cordee.__version__}\n"), done.stderr


def test_a_rank_whose_python_has_no_command_is_told_so(tmp_path):
    link_node_zip(tmp_path / "node.zip")
    done = command(tmp_path / "node.zip", "-m", "cordee", "scan", flags=["-S"], installed=False)
    assert done.returncode == 1
    assert "this Python has no cordee command" in done.stderr
    assert "pip install cordee" in done.stderr
