"""Start-up commands and persistent overlays, in the engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from cordee.systems.environments.node.document import ContainerMount
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineLaunch
from cordee.testing.containers import ENV, environment_in, left_behind


def test_the_command_gets_what_the_startup_leaves_and_begins_where_it_would(run):
    commands = (
        "export A='x y' PATH=/opt:$PATH",
        "unset GONE",
        "cd /usr",
        "echo told >&2",
        "echo left > /tmp/left",
        "umask 077",
    )
    program = "echo $A $PATH ${GONE-none}; pwd; cat /tmp/left; env | grep -c cordee"
    done = run("sh", "-c", program, env={**ENV, "GONE": "here"}, startup=commands)
    assert done.stdout == f"x y /opt:{ENV['PATH']} none\n/\nleft\n0\n"
    assert done.returncode == 1  # of grep, which finds nothing of ours
    assert "told" in done.stderr
    assert "start-up: 6 commands in 0." in done.stderr


@pytest.mark.parametrize("engine", ["namespace", "podman"])
@pytest.mark.usefixtures("real")
def test_the_first_command_that_fails_is_named_and_nothing_after_it_runs(images, engine):
    environment = environment_in(images, startup=("true", "(exit 7)", "echo after >&2"))
    done = subprocess.run(
        find_engine(engine).argv(environment, EngineLaunch(("echo", "ran"), ENV)),
        env=ENV,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "start-up command 2 of 3 ended with exit code 7\n  given:   (exit 7)" in done.stderr
    assert "after" not in done.stderr


@pytest.mark.usefixtures("real")
def test_a_startup_that_is_interrupted_at_a_terminal_is_not_called_wrong(images):
    environment = environment_in(images, startup=("echo begun >&2; sleep 60",))
    argv = find_engine("namespace").argv(environment, EngineLaunch(("echo", "ran"), ENV))
    with subprocess.Popen(argv, env=ENV, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "the start-up was interrupted by a signal" in said
    assert "correct it" not in said


@pytest.mark.usefixtures("real")
def test_a_module_that_cannot_be_loaded_is_a_matter_of_the_stack(images):
    environment = environment_in(images, startup=("module load cuda", "true"))
    argv = find_engine("namespace").argv(environment, EngineLaunch(("echo", "ran"), ENV))
    done = subprocess.run(argv, env=ENV, capture_output=True, text=True)
    assert "correct it in `[stack] modules`" in done.stderr


@pytest.mark.parametrize(
    ("commands", "failed"),
    [
        (("export A=1", "exit 0", "true"), "2 of 3"),
        (("exec true",), "1 of 1"),
        (("cat <<END\nopen", "true"), "1 of 2"),
        (("exec 3>/dev/null", "true"), "1 of 2"),
    ],
)
def test_a_command_that_ends_the_shell_is_refused_as_the_environment_would_be_lost(run, commands, failed):
    done = run("echo", "ran", startup=commands)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"start-up command {failed} ended the shell with exit code 0" in done.stderr


def test_a_startup_may_take_the_folder_of_env_off_the_path(run):
    done = run("/bin/sh", "-c", "echo $A $PATH", startup=("export A=1 PATH=/nowhere",))
    assert done.stdout == "1 /nowhere\n", done.stderr


def test_a_startup_that_hangs_is_ended_at_its_limit_with_what_it_started(run, images):
    began = time.monotonic()
    done = run("true", startup=("true", "sleep 3001 & sleep 3001"), startup_s=0.5)
    assert done.returncode == 125
    assert "start-up command 2 of 2 did not end within 0.5 s" in done.stderr
    assert time.monotonic() - began < 20
    assert left_behind("sleep 3001") == []


def test_what_a_startup_leaves_running_serves_the_command_and_ends_with_it(run):
    done = run("sh", "-c", "cat /tmp/pipe", startup=("mkfifo /tmp/pipe", "(echo served > /tmp/pipe; sleep 3002) &"))
    assert done.stdout == "served\n"
    assert left_behind("sleep 3002") == []


def test_a_signal_ends_a_startup_that_runs(images):
    environment = environment_in(images, startup=("echo up >&2; sleep 3003",))
    words = find_engine("namespace").argv(environment, EngineLaunch(("true",), ENV))
    with subprocess.Popen(words, env=ENV, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"
        process.terminate()
        assert "interrupted" in process.stderr.read()
        assert process.wait(20) == 143
    assert left_behind("sleep 3003") == []


def test_without_an_image_startup_runs_on_the_host_itself(run):
    done = run("sh", "-c", "echo $A", kind="host", startup=("export A=here",))
    assert done.stdout == "here\n", done.stderr


# Overlays


def test_an_overlay_keeps_what_is_written_and_removed(run, place):
    overlay = str(place / "kept, a:b")
    assert run("sh", "-c", "echo one > /usr/x && rm /bin/vi", kind="squashfs", overlay=overlay).returncode == 0
    again = run("sh", "-c", "cat /usr/x; ls /bin/vi", kind="squashfs", overlay=overlay)
    assert again.stdout == "one\n"
    assert "No such file" in again.stderr
    assert (
        "can't create"
        in run("sh", "-c", "cat /usr/x; echo > /usr/y", kind="squashfs", overlay=overlay, writable=False).stderr
    )
    assert run("ls", "/bin/vi").returncode == 0


def test_an_overlay_that_is_in_use_is_refused_with_by_whom_and_read_by_many(images, place):
    def words(writable: bool) -> list[str]:
        environment = environment_in(images, overlay=str(place / "o"), writable=writable)
        program = ("sh", "-c", "echo up; read x")
        return find_engine("namespace").argv(environment, EngineLaunch(program, ENV))

    def start(writable: bool) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words(writable), env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.first = process.stdout.readline()  # type: ignore[attr-defined]
        return process

    writer, other = start(True), start(True)
    assert writer.first == "up\n"
    assert (
        f"another container uses the overlay: process {writer.pid} on {os.uname().nodename}" in other.communicate()[1]
    )
    assert other.returncode == 125
    writer.communicate("\n")
    readers = [start(False), start(False)]
    assert [each.first for each in readers] == ["up\n", "up\n"]
    refused = start(True)
    assert refused.communicate()[1]
    assert refused.returncode == 125
    for each in readers:
        each.communicate("\n")


def test_where_overlayfs_refuses_a_file_system_fuse_does_it_and_the_two_are_not_mixed(images, place):
    for name in ("lower", "upper", "work", "merged"):
        (place / name).mkdir()
    options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
    script = f"mount -t overlay overlay -o {options} {place}/merged && " + '"$@"'

    def run(overlay: str, program: str) -> subprocess.CompletedProcess[str]:
        environment = environment_in(images, overlay=overlay)
        words = find_engine("namespace").argv(environment, EngineLaunch(("sh", "-c", program), ENV))
        line = ["unshare", "-m", "sh", "-c", script, "sh", *words]
        return subprocess.run(line, env=ENV, capture_output=True, text=True, timeout=60)

    merged = f"{place}/merged/kept"
    assert run(merged, "echo one > /usr/x").returncode == 0
    assert run(merged, "cat /usr/x").stdout == "one\n"
    assert (place / "upper/kept/kind").read_text() == "fuse-overlayfs\n"
    mixed = run(f"{place}/upper/kept", "true")
    assert "was written by fuse-overlayfs, and would be used by overlayfs" in mixed.stderr
    assert mixed.returncode == 125
    assert left_behind("fuse-overlayfs") == []


SLOW_PARENT = """
import os, sys, time
from cordee.systems.environments.node.engines.namespace.root.kept_layer import KeptLayer

real = os.fork
def fork():
    pid = real()
    if pid:
        until = time.monotonic() + 60
        while "fuse-overlayfs" not in open("/proc/self/mountinfo").read() and time.monotonic() < until:
            time.sleep(0.01)
    return pid

os.fork = fork
place = sys.argv[1]
kept = KeptLayer(f"{place}/own", True)
kept.show(place)
kept.by_fuse(f"{place}/root", f"{place}/lower")
print("up")
"""


def test_a_server_of_fuse_that_is_quicker_than_who_started_it_is_seen(place):
    for name in ("lower", "root"):
        (place / name).mkdir()
    line = ["unshare", "-m", sys.executable, "-c", SLOW_PARENT, str(place)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=180)
    assert done.stdout == "up\n", done.stderr


def test_an_overlay_that_cannot_be_made_is_named(run, place):
    done = run("true", overlay=str(place / "nowhere/kept"))
    assert done.returncode == 125
    assert f"given:   {place}/nowhere/kept" in done.stderr


def test_a_user_can_write_into_a_squashfs_that_root_has_made(run, who):
    done = run("sh", "-c", "echo x >> /etc/passwd && touch /usr/new && stat -c %u /usr", kind="squashfs")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("1000\n" if who else "0\n")


def test_a_folder_of_another_use_is_no_overlay_and_stays_as_it_is(run, place, who):
    mine = place / "theirs/work/work"
    mine.mkdir(parents=True)
    (mine / "data").write_text("precious")
    done = run("true", overlay=str(place / "theirs"))
    assert done.returncode == 125
    assert "holds other things" in done.stderr
    assert (mine / "data").read_text() == "precious"


def test_a_writer_is_told_of_the_reader_that_is_there_and_not_of_the_last_writer(images, place):
    def words(writable: bool, *program: str) -> list[str]:
        environment = environment_in(images, overlay=str(place / "o"), writable=writable)
        return find_engine("namespace").argv(environment, EngineLaunch(program, ENV))

    subprocess.run(words(True, "true"), env=ENV, check=True)
    with subprocess.Popen(
        words(False, "sh", "-c", "echo up; read x"), env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"up\n"
        done = subprocess.run(words(True, "true"), env=ENV, capture_output=True, text=True)
        reader.communicate(b"\n")
    assert f"process {reader.pid} on" in done.stderr
    assert "which reads it" in done.stderr


def test_a_damaged_overlay_is_named_by_its_own_path(run, place):
    for name in ("folder", "bytes"):
        assert run("true", overlay=str(place / name)).returncode == 0
        (place / name / "kind").unlink()
    (place / "folder/kind").mkdir()
    (place / "bytes/kind").write_bytes(b"\xff\xfe")
    for name, words in (("folder", f"{place}/folder/kind"), ("bytes", "the overlay was written by")):
        done = run("true", overlay=str(place / name))
        assert done.returncode == 125
        assert words in done.stderr


def test_a_squashfs_with_a_sound_head_and_nothing_behind_it_is_refused(run, images, place):
    whole = (images / "root.sqsh").read_bytes()
    (place / "damaged.sqsh").write_bytes(whole[:96] + bytes(len(whole) - 96))
    done = run("true", mounts=(ContainerMount(str(place / "damaged.sqsh"), "/opt/x", ("sqsh",)),))
    assert done.returncode == 125
    assert f"{place}/damaged.sqsh" in done.stderr
