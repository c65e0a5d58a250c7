"""`cordee env pack`: what it prints, for people and for programs."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def venv(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    return tmp_path / ".venv"


@pytest.mark.gate
def test_a_person_reads_what_became_of_it_and_pastes_the_rest(cordee, venv):
    done = cordee("env", "pack", ".venv", "--no-verify", "--with-python")
    assert done.returncode == 0, done.stderr
    assert "venv.sqsh: " in done.stdout
    assert "became 1 file of" in done.stdout
    pasted = tomllib.loads(done.stdout.partition("In an EDF:")[2])
    assert pasted["mounts"] == [f"{cordee.folder}/venv.sqsh:{venv}:sqsh"]
    assert pasted["env"]["VIRTUAL_ENV"] == str(venv)


def test_a_program_reads_one_document(cordee, venv):
    said = cordee.json("env", "pack", ".venv", "-o", "x.sqsh", "--at", "/opt/$x", "--no-verify", "--with-python")
    assert said["schema"] == "cordee.pack/1"
    assert said["before"]["files"] > 5
    assert said["after"]["files"] == 1
    assert said["after"]["bytes"] == (cordee.folder / "x.sqsh").stat().st_size
    assert said["edf"]["mounts"] == [f"{cordee.folder}/x.sqsh:/opt/$$x:sqsh"]
    assert said["verified"] is None
    assert cordee.json("env", "pack", ".venv", "-o", "x.sqsh", code=2)["error"]["next"].startswith("give --force")
    assert cordee.json("env", "pack", "nowhere", code=2)["error"]["text"] == "this is no Python environment"
