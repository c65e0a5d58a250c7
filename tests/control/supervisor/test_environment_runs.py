"""Runs in a container: real ranks in a root of busybox with the machine's Python, started, killed and started again."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.faces.cli.cancel import cancel
from cordee.faces.cli.show import describe
from cordee.faces.report.run_document import run_document
from cordee.testing.images import busybox_root, squashfs_of
from cordee.testing.programs import COUNTING
from support.runs.container_runs import edf_with_python, holders, mounts_left
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

TELLING = """
import os, pathlib
name = pathlib.Path("/etc/os-release").read_text().split()[0]
told = [name, os.getcwd(), *(os.environ.get(key, "-") for key in ("A", "B", "C", "D", "GONE"))]
if os.environ["RANK"] == "0":
    print("TOLD", *told, flush=True)
"""
NEED = "[need]\nnodes = 2\nranks_per_node = 2\n[restart]\nbackoff = 0\n[timeouts]\nlost = 3\n"


@pytest.fixture
def inside(tmp_path: Path) -> Callable[..., Path]:
    """Write a job folder whose environment is a root of busybox, with the machine's Python mounted into it."""
    root = busybox_root(tmp_path / "root")

    def write(run: str, toml: str = "", edf: str = "", *, packed: bool = False) -> Path:
        image = squashfs_of(root, tmp_path / "root.sqsh") if packed else root
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(TELLING + COUNTING)
        (folder / "cordee.toml").write_text(f'name = "t"\nrun = {run!r}\nenvironment = "env.toml"\n{toml}\n')
        (folder / "env.toml").write_text(edf_with_python(image, edf))
        return folder

    return write


def told(run: LocalRun) -> list[str]:
    return [line for line in run.output(0).decode().splitlines() if line.startswith("TOLD")]


@pytest.mark.gate
def test_ranks_setup_lines_checks_and_shells_are_inside_with_one_container_per_node(
    inside, start, tmp_path, monkeypatch
):
    for name in ("A", "B", "C", "D", "GONE"):
        monkeypatch.setenv(name, "host")
    toml = 'setup = ["export D=setup-$C", "test -e /etc/os-release"]\n[env]\nC = "job"\n' + NEED
    toml += '[vet]\ncommands = ["busybox"]\nmodules = ["json"]\n'
    run = start(inside("python train.py 9000 0.03", toml, 'B = "edf"\nC = "edf"\nGONE = ""\n'), reported=True)
    run.wait_training()
    assert [len(holders(run, node)) > 0 for node in ("local-0", "local-1")] == [True, True]
    shell = [sys.executable, "-m", "cordee.faces.cli", "shell", run.folder.id, "--runs", str(tmp_path / "runs"), "--"]
    asked = subprocess.run([*shell, "cat", "/etc/os-release"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (asked.returncode, asked.stdout.split()[0]) == (0, 'NAME="busybox"')
    run.wait(lambda state: (state.step or 0) > 3)
    cancel(run.folder, now=False, wait_s=30)
    state = run.wait_end()
    assert state.state == "cancelled"
    assert told(run) == [f'TOLD NAME="busybox" {tmp_path}/job host edf job setup-job -']
    assert b"stopped at" in run.output(0)
    checks = {result["check"]: result for result in state.nodes[0].results}
    assert [checks[name]["status"] for name in ("environment", "setup", "host.commands", "host.modules")] == [
        "pass"
    ] * 4
    told_of = {"name": "env", "image": f"{tmp_path}/root", "digest": None, "engine": "namespace"}
    assert run_document(run.folder, state)["environment"] == told_of
    words = f"env: {tmp_path}/root, by namespace"
    assert f"environment {words}" in describe(run.folder, state)
    assert words in (run.folder.report / "index.html").read_text()
    assert mounts_left(run) == []


def test_what_dies_is_started_again_inside_from_the_newest_checkpoint(inside, start):
    run = start(inside("python train.py 9000 0.03", NEED, packed=True))
    run.wait(lambda state: state.checkpoint)
    first = holders(run, "local-0")
    run.kill("rank 1")
    run.wait_training(attempt=2)
    assert holders(run, "local-0") == first
    os.kill(first[0], 9)
    run.wait_training(attempt=3)
    assert not set(first) & set(holders(run, "local-0"))
    lost = [event["reason"] for event in run.events("container_lost")]
    assert lost == ["its container ended: ended by SIGKILL"]
    second = holders(run, "local-0")
    run.kill("agent local-0")
    run.wait_training(attempt=4)
    assert not set(second) & set(holders(run, "local-0"))
    cancel(run.folder, now=False, wait_s=60)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("cancelled", 3), state.text
    begun = [int(line.split()[1]) for line in run.output(0).decode().splitlines() if line.startswith("from")]
    assert begun[0] == 0
    assert all(start > 0 for start in begun[1:])
    assert mounts_left(run) == []


def test_a_data_set_elsewhere_is_inside_at_its_own_path_and_cannot_be_written(inside, start, tmp_path):
    (tmp_path / "store/corpus").mkdir(parents=True)
    (tmp_path / "store/corpus/a").write_text("kept")
    folder = inside("sh look.sh", f'[data.corpus]\nfrom = "{tmp_path}/store/corpus"\n')
    (folder / "look.sh").write_text('cd "$CORDEE_DATA_CORPUS" && echo "read $(cat a)"\ntouch b || echo "not written"\n')
    run = start(folder)
    assert run.wait_end().state == "finished"
    said = run.output(0).decode()
    assert "read kept" in said
    assert "not written" in said
    assert os.listdir(tmp_path / "store/corpus") == ["a"]


def test_an_image_that_is_gone_when_the_nodes_start_ends_the_run_with_words(inside, tmp_path):
    run = LocalRun(inside("python train.py 5 0.01"), tmp_path / "runs", vet__max_load=1000.0)
    shutil.rmtree(tmp_path / "root")
    with run:
        state = run.wait_end()
    assert (state.state, state.exit_code) == ("failed", 4)
    assert f"{tmp_path}/root" in state.text
    (result,) = state.nodes[0].results
    assert (result["check"], result["status"]) == ("environment", "fail")
    assert run.processes() == []


def test_a_command_that_the_image_does_not_have_is_told_once_in_the_engines_words(inside, start):
    state = start(inside("not-in-the-image --x")).wait_end()
    assert (state.state, state.exit_code, state.restarts) == ("failed", 127, 0)
    assert state.text == "rank 0 on local-0 did not start: there is no command not-in-the-image inside"


@pytest.mark.gate
def test_with_podman_it_is_the_same(inside, start, tmp_path, monkeypatch):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/local.toml").write_text('[environment]\nengine = "podman"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    run = start(
        inside("python train.py 9000 0.03", 'setup = ["export D=setup"]\n[need]\nranks_per_node = 2\n', 'B = "edf"')
    )
    run.wait(lambda state: state.checkpoint)
    os.kill(holders(run, "local-0")[0], 9)
    run.wait_training(attempt=2)
    run.wait(lambda state: len(told(run)) == 2)
    cancel(run.folder, now=False, wait_s=60)
    state = run.wait_end()
    assert (state.state, state.restarts) == ("cancelled", 1), state.text
    line = f'TOLD NAME="busybox" {tmp_path}/job - edf - setup -'
    assert told(run) == [line, line]
    assert mounts_left(run) == []


def test_startup_runs_once_for_eight_ranks_and_ssh_gets_a_shell_beside_them(inside, start, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        _startup_and_ssh(inside, start, tmp_path, taken.getsockname()[1])


def _startup_and_ssh(inside, start, tmp_path, taken: int) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    commands = [f"echo begun >> {tmp_path}/job/begun", "export D=left-$B PATH=/opt/left:$PATH"]
    edf = f'B = "edf"\n[startup]\ncommands = {commands}\n[annotations.com.hooks.ssh]\nenabled = true\n'
    edf += f'authorize_ssh_key = "{key}.pub"\nport = {taken}\n'
    run = start(inside("python train.py 9000 0.03", "[need]\nranks_per_node = 8\n", edf))
    run.wait_training()
    assert (tmp_path / "job/begun").read_text() == "begun\n"
    connect = [
        sys.executable,
        "-m",
        "cordee.faces.cli",
        "env",
        "connect",
        run.folder.id,
        "--identity",
        str(key),
        "--json",
    ]
    told = subprocess.run([*connect, "--runs", str(tmp_path / "runs")], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout)["nodes"][0]["port"] > taken
    words = [*json.loads(told.stdout)["ssh"], "head -1 /etc/os-release; echo $D ${PATH%%:*}; exit 7"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert (done.returncode, done.stdout) == (7, 'NAME="busybox"\nleft-edf /opt/left\n'), done.stderr
    cancel(run.folder, now=True, wait_s=30)
    state = run.wait_end()
    environment = next(each for each in state.nodes[0].results if each["check"] == "environment")
    assert environment["evidence"].startswith("start-up: 2 commands in 0.")
    assert "left-edf" in next(line for line in run.output(0).decode().splitlines() if line.startswith("TOLD"))
    assert mounts_left(run) == []
    refused = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert refused.returncode == 255


def test_a_startup_command_that_fails_ends_the_run_in_its_words(inside, start):
    run = start(inside("python train.py 5 0", edf='[startup]\ncommands = ["true", "exit 9"]\n'))
    state = run.wait_end()
    assert state.state == "failed"
    evidence = next(each for each in state.nodes[0].results if each["check"] == "environment")["evidence"]
    assert "start-up command 2 of 2 ended with exit code 9: exit 9" in evidence
