"""`make` sees to the programs that tests need: installed as root without starting services, else named."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def see_to(tmp_path, monkeypatch):
    """Run the script, as a user with this id; `apt-get` notes what it is asked for."""

    def call(*pairs: str, uid: int) -> tuple[str, list[str]]:
        for name, text in {"id": f"echo {uid}", "apt-get": f'echo "$@" >>{tmp_path}/asked'}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        script = ["bash", str(ROOT / "scripts" / "system-packages.sh"), *pairs]
        done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        asked = tmp_path / "asked"
        return done.stdout + done.stderr, asked.read_text().splitlines() if asked.exists() else []

    return call


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_without_root_what_is_missing_is_named_with_the_command_that_installs_it(see_to):
    said, asked = see_to("sh:dash", "slurmctld-no:slurmctld", "munged-no:munge", uid=1000)
    assert "sudo apt-get install slurmctld munge" in said
    assert "fails until then" in said
    assert asked == []


def test_nothing_is_done_when_all_is_there(see_to):
    assert see_to("sh:dash", uid=0) == ("", [])


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_programs_are_found_outside_of_an_ordinary_path(see_to, tmp_path, monkeypatch):
    for name in ("bash", "cut", "dirname", "sh", "python3"):
        path = next(Path(folder) / name for folder in ("/bin", "/usr/bin") if (Path(folder) / name).exists())
        (tmp_path / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert see_to("slurmctld:slurmctld", uid=1000) == ("", [])


def test_the_demo_installs_less_than_the_tests(tmp_path):
    def steps(target: str) -> str:
        command = ["make", "-n", target, f"VENV={tmp_path}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    for word in ("slurm", "mariadb", "chromium", "podman", "mpi", "frameworks", "dev"):
        assert word in steps("test")
        assert word not in steps("demo")


def test_every_program_of_the_disposable_slurm_comes_from_a_package_that_make_installs():
    from cordee.testing.slurm.daemons import _PACKAGES

    listed = re.search(r"SYSTEM_PACKAGES := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text())[1]
    packages = {pair.partition(":")[2] for pair in listed.replace("\\", " ").split()}
    assert set(_PACKAGES.values()) <= packages
