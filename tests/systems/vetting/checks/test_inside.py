"""Checks that ask for what ranks have look into the ranks' container, those that ask for the machine do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cordee
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.images import ImageStore, locate
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import enter_argv
from cordee.systems.vetting.node.checks import run_checks
from cordee.testing.images import busybox_root
from support.runs.container_runs import edf_with_python

PROGRAM = (
    'import json, os; print(json.dumps({"status": "pass", "evidence": open("/etc/os-release").readline().strip()}))'
)
OWN = """
from cordee.systems.vetting.node.checks import Check
class Told(Check):
    name = "told"
    def run(self, parameters, context):
        return self.result("pass", open("/etc/os-release").readline().strip())
"""


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Any]:
    """Hold a container with a Python but few commands; return a function that runs checks for ranks in it."""
    root = busybox_root(tmp_path / "root")
    (root / "opt/only-inside").write_text("#!/bin/sh\n")
    (root / "opt/only-inside").chmod(0o755)
    outside = tmp_path / "bin/only-outside"
    outside.parent.mkdir()
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o755)
    job = tmp_path / "job"
    job.mkdir()
    (job / "own.py").write_text(OWN)
    source = Path(cordee.__file__).parents[1]
    (tmp_path / "env.toml").write_text(
        edf_with_python(root)
        .replace("[env]", f'[env]\nHERE = "{job}"', 1)
        .replace("mounts = [", f'mounts = ["{job}", "{source}", ')
    )
    resolved = resolve("./env.toml", cwd=tmp_path, variables={}).environment
    environment = locate(resolved, ImageStore(tmp_path / "store"))
    engine = find_engine("namespace")
    holder = subprocess.Popen(engine.hold(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    enter = json.loads(holder.stdout.readline())["enter"]
    env = environment.variables({"PATH": os.environ["PATH"]})
    env["PATH"] += f":/opt:{outside.parent}"

    def run(check: str, inside: bool = True, **more: Any) -> dict[str, Any]:
        entry = {"check": check, "parameters": more.pop("parameters", {})}
        words = enter_argv(enter, [], str(job)) if inside else []
        (result,) = run_checks({"checks": [entry], "env": env, "workdir": str(job), "inside": words, **more})
        return result

    yield run
    holder.stdin.close()
    assert holder.wait(10) == 0


def test_commands_are_those_of_the_container(ask):
    wanted = {"commands": ["sh", "only-inside", "only-outside"]}
    found = ask("host.commands", parameters=wanted)
    assert (found["status"], found["evidence"]) == ("fail", "only-outside is not in the container")
    assert ask("host.commands", parameters={"commands": ["only-inside"]})["evidence"] == "/opt/only-inside"
    outside = ask("host.commands", inside=False, parameters=wanted)
    assert outside["evidence"] == "only-inside is not on PATH"


def test_modules_are_imported_by_the_python_of_the_container(ask):
    found = ask("host.modules", parameters={"modules": ["json", "not_there"], "python": "python"})
    assert found["status"] == "fail"
    assert "not_there" in found["evidence"]
    assert "json" not in found["evidence"]
    assert ask("host.modules", parameters={"modules": ["json"], "python": "./train.sh"})["status"] == "pass"


def test_a_command_and_a_class_of_ones_own_run_in_the_container(ask, tmp_path):
    found = ask("command", parameters={"command": ["python3", "-c", PROGRAM]})
    assert (found["status"], found["evidence"]) == ("pass", 'NAME="busybox"'), found
    own = ask("told", classes={"told": f"{tmp_path}/job/own.py:Told"})
    assert (own["status"], own["evidence"]) == ("pass", 'NAME="busybox"'), own
    assert (
        ask("command", parameters={"command": "only-outside --version"})["evidence"]
        == "only-outside is not in the container"
    )


def test_the_fingerprint_tells_the_python_of_the_container(ask):
    facts = ask("host.fingerprint")["facts"]
    assert facts["python"].startswith(sys.version.split()[0])
    packages = [name for name in facts if name.startswith("python ") and name != "python path"]
    assert not [name for name in packages if facts[name] != "none"]


def test_a_container_that_is_gone_is_no_answer(ask):
    found = ask("host.commands", parameters={"commands": ["sh"]}, inside=False)
    assert found["status"] == "pass"
    (result,) = run_checks(
        {
            "checks": [{"check": "host.commands", "parameters": {"commands": ["sh"]}}],
            "env": dict(os.environ),
            "inside": ["/bin/sh", "-c", "echo the container is gone >&2; exit 125", "enter"],
        }
    )
    assert (result["status"], result["cause"]) == ("unknown", "error")
    assert "the container is gone" in result["evidence"]
