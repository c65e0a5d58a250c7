"""Whatever ends a pack before it is whole leaves nothing: no file, no half file, no process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.machine.squashfs.errors import PackError
from cordee.systems.environments.venv_image import write
from cordee.systems.environments.venv_image.packing import pack
from cordee.testing.patience import wait_until

COMMAND = [sys.executable, "-m", "cordee.faces.cli", "env", "pack", "--no-verify"]
# Says who it is, stops, and when it is continued goes on as the real one does: until its input ends.
STOPS = """#!/bin/sh
echo $$ > "$MARK.new" && mv "$MARK.new" "$MARK"
kill -STOP $$
exec {real} "$@"
"""


wait_for = wait_until


def process_state(pid: int) -> str:
    """Return the letter of /proc/PID/stat; Z when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_a_pack_that_is_killed_leaves_nothing(venv, tmp_path, monkeypatch):
    fakes, out, mark = tmp_path / "fakes", tmp_path / "out", tmp_path / "mark"
    fakes.mkdir()
    out.mkdir()
    real = subprocess.check_output(["which", "mksquashfs"], text=True).strip()
    (fakes / "mksquashfs").write_text(STOPS.format(real=real))
    (fakes / "mksquashfs").chmod(0o755)
    env = {**os.environ, "PATH": f"{fakes}:{os.environ['PATH']}", "MARK": str(mark)}
    child = subprocess.Popen([*COMMAND, venv.folder, "-o", out / "train.sqsh"], env=env)
    wait_for(mark.exists)
    pid = int(mark.read_text())
    wait_for(lambda: process_state(pid) == "T")
    child.kill()
    child.wait()
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: process_state(pid) == "Z")
    assert list(out.iterdir()) == []
    assert pack(venv.folder, out / "train.sqsh").file.exists()


def test_a_full_disk_is_named_and_left_as_it_was(venv, tmp_path):
    venv.add("site/thing/noise.bin", os.urandom(2_000_000))
    out = tmp_path / "out"
    out.mkdir()
    command = " ".join(map(str, [*COMMAND, venv.folder, "-o", out / "train.sqsh"]))
    script = f"mount -t tmpfs -o size=512k none {out} && {command}; echo code $?; ls -A {out}"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "code 1\n"
    assert "there is no room" in done.stderr
    assert "bytes free" in done.stderr


class Refusal:
    """A file system without nameless files."""

    def __init__(self) -> None:
        self.open = os.open

    def __call__(self, path, flags, *more, **named):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return self.open(path, flags, *more, **named)


def test_without_nameless_files_a_half_one_is_taken_over_and_never_shared(venv, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", Refusal())
    half = tmp_path / ".train.sqsh.part"
    half.write_text("left by one that was killed" * 1000)
    packed = pack(venv.folder, tmp_path / "train.sqsh")
    assert packed.file.stat().st_size == packed.packed_bytes
    assert not half.exists()
    lock = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    holder = [sys.executable, "-c", lock, half]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(PackError, match="another process"):
            pack(venv.folder, tmp_path / "train.sqsh", force=True)
        other.communicate("\n")
    assert packed.file.stat().st_size == packed.packed_bytes


def test_a_file_that_vanishes_meanwhile_is_named(venv, tmp_path, monkeypatch):
    gone = venv.add("site/thing/gone.txt", "x")
    compilers = write.Compilers

    def meanwhile(*arguments):
        gone.unlink()
        return compilers(*arguments)

    monkeypatch.setattr(write, "Compilers", meanwhile)
    with pytest.raises(PackError, match="cannot be read: No such file") as caught:
        pack(venv.folder, tmp_path / "train.sqsh")
    assert str(gone) in str(caught.value)
    assert not (tmp_path / "train.sqsh").exists()


def test_without_squashfs_tools_it_says_what_to_install(venv, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackError, match="mksquashfs is not installed") as caught:
        pack(venv.folder, tmp_path / "train.sqsh")
    assert "squashfs-tools" in str(caught.value)


def test_a_mksquashfs_too_old_for_tar_streams_is_named(venv, tmp_path, monkeypatch):
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    (fakes / "mksquashfs").write_text("#!/bin/sh\necho 'mksquashfs: invalid option' >&2\nexit 1\n")
    (fakes / "mksquashfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fakes}:{os.environ['PATH']}")
    with pytest.raises(PackError, match="invalid option") as caught:
        pack(venv.folder, tmp_path / "train.sqsh")
    assert "4.5" in str(caught.value)


def test_a_file_that_appears_meanwhile_is_not_replaced(venv, tmp_path, monkeypatch):
    compilers = write.Compilers

    def meanwhile(*arguments):
        (tmp_path / "train.sqsh").write_text("precious")
        return compilers(*arguments)

    monkeypatch.setattr(write, "Compilers", meanwhile)
    with pytest.raises(PackError, match="appeared"):
        pack(venv.folder, tmp_path / "train.sqsh")
    assert (tmp_path / "train.sqsh").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["envs", "train.sqsh"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("printf x | dd of=$2 bs=1 seek=5000 conv=notrunc status=none", "1 files were written wrongly"),
        ("truncate -s 4096 $2", "cannot be read back"),
    ],
)
def test_what_was_written_is_read_back_before_it_gets_its_name(venv, tmp_path, monkeypatch, damage, text):
    fakes, out = tmp_path / "fakes", tmp_path / "out"
    fakes.mkdir()
    out.mkdir()
    real = subprocess.check_output(["which", "mksquashfs"], text=True).strip()
    (fakes / "mksquashfs").write_text(f'#!/bin/sh\n{real} "$@" && {damage}\n')
    (fakes / "mksquashfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fakes}:{os.environ['PATH']}")
    with pytest.raises(PackError, match=text):
        pack(venv.folder, out / "train.sqsh", compression="none")
    assert list(out.iterdir()) == []
