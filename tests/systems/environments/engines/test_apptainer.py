"""Apptainer's engine, with a program in its place that answers as it does: it is not in Debian."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, EngineLaunch, enter_argv

ODD = {"LINES_": "a\nb", "QUOTES": "\"'`$(x)\\", "EMPTY": "", "HOME": "/home/me"}


@pytest.fixture
def apptainer(tmp_path, monkeypatch):
    """The folder of a program `apptainer` on PATH, which keeps its state there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "apptainer"
    program.write_text(f"#!{sys.executable} -IS\n{(Path(__file__).parent / 'fake_apptainer.py').read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def environment(tmp_path):
    return Environment("e", str(tmp_path), root=ContainerRoot("folder", str(tmp_path)))


def test_a_command_gets_its_environment_workdir_and_exit_code(apptainer, environment, tmp_path):
    env = {**ODD, "PATH": "/usr/bin:/bin"}
    argv = find_engine("apptainer").argv(
        environment, EngineLaunch(("sh", "-c", "pwd; env -0; exit 7"), env, str(tmp_path))
    )
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    folder, _, rest = done.stdout.partition("\n")
    got = dict(pair.split("=", 1) for pair in rest.split("\0") if pair)
    assert (done.returncode, folder) == (7, str(tmp_path)), done.stderr
    # A shell adds the last of these itself.
    assert {key: value for key, value in got.items() if key not in ("PWD", "SHLVL", "_", "OLDPWD")} == env


def test_what_is_missing_is_named_and_another_engine_offered(environment, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (missing,) = find_engine("apptainer").missing(environment)
    assert missing.capability == "apptainer"
    assert "namespace" in missing.next


def test_what_it_cannot_be_told_is_missing(apptainer, environment):
    refused = Environment(
        "e", "/i", root=environment.root, devices=("vendor.com/x=1",), mounts=(ContainerMount("/", "/y"),)
    )
    (missing,) = find_engine("apptainer").missing(refused)
    assert "vendor.com/x=1" in missing.text
    assert find_engine("apptainer").missing(environment) == []


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_an_instance_is_held_entered_and_stopped_with_its_holder(apptainer, environment, how):
    argv = find_engine("apptainer").hold(environment)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        said = json.loads(holder.stdout.readline())
        (instance,) = [path.name for path in (apptainer / "state").iterdir() if path.name != "calls"]
        enter = enter_argv(said["enter"], ["sh", "-c", "pwd; echo $QUOTES; exit 9"], "/usr")
        done = subprocess.run(enter, env={**ODD, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (9, f"/usr\n{ODD['QUOTES']}\n")
        holder.kill() if how == "killed" else holder.stdin.close()
        holder.wait(30)
    until = time.monotonic() + 30
    while (apptainer / "state" / instance).exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert subprocess.run(enter, env=ODD, capture_output=True).returncode != 0


def test_an_instance_that_cannot_be_started_says_why(apptainer):
    gone = Environment("e", "/no/such", root=ContainerRoot("folder", "/no/such"))
    done = subprocess.run(
        find_engine("apptainer").hold(gone), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert "no such file" in json.loads(done.stdout)["error"]["text"]
    assert done.returncode == EXIT_ENGINE
