"""What CI relies on: with skips forbidden, nothing is passed over in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WAYS = """
import pytest

def test_that_passes(): pass

@pytest.mark.skip(reason="because one")
def test_skipped(): pass

def test_that_skips_itself(): pytest.skip("because two")

@pytest.mark.xfail(reason="because three")
def test_expected_to_fail(): assert False

@pytest.mark.xfail(reason="because four")
def test_expected_to_fail_that_passes(): pass
"""
MODULE = 'import pytest\npytest.skip("because five", allow_module_level=True)\n'


def run_pytest(folder: Path, *options: str, forbid: bool) -> subprocess.CompletedProcess[str]:
    """Run the tests above beside this project's conftest.py, in a pytest of their own."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_ways.py").write_text(WAYS)
    (folder / "test_module.py").write_text(MODULE)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CORDEE_", "PYTEST_"))}
    if forbid:
        env["CORDEE_FORBID_SKIPS"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-vv", "--rootdir", str(folder), "--continue-on-collection-errors"]
    return subprocess.run([*command, *options], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("real")
def test_every_way_to_skip_is_a_failure_when_skips_are_forbidden(tmp_path):
    done = run_pytest(tmp_path, "-n", "1", forbid=True)
    assert done.returncode != 0
    assert "3 failed, 1 passed, 2 errors" in done.stdout
    for reason in ("one", "two", "three", "four", "five"):
        assert f"because {reason}" in done.stdout


@pytest.mark.usefixtures("real")
def test_the_option_forbids_skips_too(tmp_path):
    done = run_pytest(tmp_path, "--no-skips", forbid=False)
    assert "3 failed, 1 passed, 2 errors" in done.stdout


@pytest.mark.usefixtures("real")
def test_skips_pass_when_they_are_allowed(tmp_path):
    done = run_pytest(tmp_path, forbid=False)
    assert done.returncode == 0
    assert "1 passed, 3 skipped, 1 xfailed, 1 xpassed" in done.stdout
