"""What is podman's own in its engine: its first process, its words when it fails, GPUs, leftovers."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cordee.systems.environments.node.document import ContainerMount
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE
from cordee.systems.environments.node.engines.podman import pause
from cordee.testing.containers import ENV, environment_in
from cordee.testing.engines import EngineCase, namespaces_of, processes_in

pytestmark = pytest.mark.usefixtures("real")


def test_the_first_process_is_the_program_that_was_tried_on_each_machine():
    # The one for aarch64 was run under qemu-user when it was made; this machine runs its own in the tests below.
    sums = {machine: hashlib.sha256(pause.program(machine)).hexdigest()[:16] for machine in ("x86_64", "aarch64")}
    assert sums == {"x86_64": "d47e5960af75b3e2", "aarch64": "3cc3e18ba27e3c97"}
    assert pause.program("sparc64") == b""


def test_the_first_process_ends_with_the_pipe_that_it_waits_for(tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(pause.program())
    program.chmod(0o755)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(reading, pause.PIPE)
        os.closerange(pause.PIPE + 1, 1024)
        os.execv(program, ["pause"])
    os.close(reading)
    os.write(writing, b"some words are no end")
    os.kill(child, signal.SIGCHLD)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ["podman", "runc"])
def test_what_is_not_installed_is_named_with_another_engine(images, monkeypatch, tmp_path, name):
    for program in {"podman", "runc"} - {name}:
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (missing,) = find_engine("podman").missing(environment_in(images))
    assert name in missing.text
    assert missing.next


def test_an_environment_without_an_image_is_for_another_engine(images):
    (missing,) = find_engine("podman").missing(environment_in(images, "host"))
    assert (missing.capability, missing.next) == ("image", "take the engine namespace")


class TestForReal:
    @pytest.fixture(params=["root", "user"])
    def case(self, request, images):
        prefix = request.getfixturevalue("as_user") if request.param == "user" else []
        return EngineCase(find_engine("podman"), images, prefix=prefix)

    def test_podmans_own_words_are_said_when_it_fails(self, case, place, monkeypatch):
        fake = place / "podman"
        fake.write_text("#!/bin/sh\necho 'level=warning msg=noise' >&2\necho 'Error: the sky is green' >&2\nexit 125\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        done = case.run("true")
        assert done.returncode == EXIT_ENGINE
        assert "podman could not open the container: the sky is green" in done.stderr
        with case.held() as held:
            assert "the sky is green" in held.said["error"]["text"]

    def test_a_file_that_is_no_squashfs_is_named(self, case, images, place):
        (place / "image.sqsh").write_bytes(b"hsqs" + bytes(92))
        broken = ContainerMount(str(place / "image.sqsh"), "/data", ("sqsh",))
        done = case.run("true", mounts=(broken,))
        assert done.returncode == EXIT_ENGINE
        assert "image.sqsh" in done.stderr

    def test_the_user_is_the_same_inside_and_a_user_has_no_rights(self, case):
        done = case.run("sh", "-c", "id -u; whoami; grep CapEff /proc/self/status; cd $HOME && touch x && pwd")
        uid, name, _, rights, home = done.stdout.split()
        assert uid == ("1000" if case.prefix else "0"), done.stderr
        assert name
        assert home == "/home/me"
        assert (int(rights, 16) == 0) == bool(case.prefix)

    def test_limits_and_cgroup_are_those_of_the_caller(self, case):
        outside = Path("/proc/self/cgroup").read_text()
        done = case.run("sh", "-c", "ulimit -n; cat /proc/self/cgroup")
        limit, _, inside = done.stdout.partition("\n")
        assert int(limit) > 64
        assert inside == outside

    def test_the_machines_gpus_are_inside(self, case, place):
        host = place / "host"
        for name in ("dev/nvidia0", "dev/nvidiactl", f"usr/lib/{os.uname().machine}-linux-gnu/libcuda.so.1"):
            (host / name).parent.mkdir(parents=True, exist_ok=True)
            (host / name).write_text("x")
        env = {**ENV, "CORDEE_HOST_ROOT": str(host), "LD_LIBRARY_PATH": "/mine"}
        done = case.run("sh", "-c", "ls /dev/nvidia* /usr/local/nvidia/lib64; echo $LD_LIBRARY_PATH", env=env)
        assert done.stdout.split() == [
            "/dev/nvidia0",
            "/dev/nvidiactl",
            "/usr/local/nvidia/lib64:",
            "libcuda.so.1",
            "/mine:/usr/local/nvidia/lib64",
        ], done.stderr

    def test_a_caller_that_is_killed_while_podman_starts_leaves_nothing(self, case):
        # Wherever it is by then: what has to hold holds at any moment.
        for delay_s in (0.05, 0.15, 0.3):
            process = subprocess.Popen(case.line(("sleep", "1000")), env=ENV, stdout=subprocess.DEVNULL)
            time.sleep(delay_s)
            spaces = namespaces_of(process.pid)
            process.kill()
            process.wait()
            until = time.monotonic() + 60
            while processes_in(spaces):
                assert time.monotonic() < until, processes_in(spaces)
                time.sleep(0.02)

    def test_two_containers_of_one_user_do_not_meet(self, case):
        with case.held() as first, case.held() as second:
            assert first.run("sh", "-c", "echo 1 > /file")[0] == 0
            assert second.run("cat", "/file")[0] == 1
            assert json.dumps(first.said["enter"]) != json.dumps(second.said["enter"])
