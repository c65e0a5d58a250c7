"""What decides whether a change lands: tests that fail by chance do not, tests that fail do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).parents[1]
MAKEFILE = "test:\n\t.venv/bin/pytest -n 2 $(ARGS)\n"
PASSES = "def test_passes(): pass\n"
# Fails in a first run, and passes in the next.
BY_CHANCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("value", ["a b", "c::d/e"])
def test_by_chance(value):
    mark = Path(__file__).with_name(f"seen-{len(value)}")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
FAILS = "def test_fails(): assert False\n"
FIXTURE_FAILS = """
import pytest

@pytest.fixture
def broken(): raise OSError("no such thing")

def test_with_it(broken): pass
"""


def ci_run(folder: Path, tests: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` in a project of one file of tests."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "test_it.py").write_text(tests)
    # Not this project's settings: no more of its plug-ins than those that its conftest.py needs.
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / ".venv" / "bin").mkdir(parents=True)
    command = folder / ".venv" / "bin" / "pytest"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pytest -p no:zarr -p no:schemathesis -p no:anyio "$@"\n')
    command.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CORDEE_", "PYTEST_", "MAKE"))}
    return subprocess.run(
        ["bash", ".ci/run"], cwd=folder, env=env | variables, capture_output=True, text=True, check=False
    )


def test_a_test_that_fails_by_chance_is_told_as_unstable_and_lets_the_change_land(tmp_path):
    done = ci_run(tmp_path, PASSES + BY_CHANCE)
    assert done.returncode == 0, done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("unstable: ")]
    assert sorted(told) == ["unstable: test_it.py::test_by_chance[a b]", "unstable: test_it.py::test_by_chance[c::d/e]"]
    listed = (tmp_path / "build" / "unstable-tests.txt").read_text().splitlines()
    assert [f"unstable: {name}" for name in listed] == told


@pytest.mark.parametrize("tests", [FAILS, FIXTURE_FAILS], ids=["test", "fixture"])
def test_a_test_that_fails_again_lets_nothing_land_whatever_else_is_unstable(tmp_path, tests):
    done = ci_run(tmp_path, PASSES + BY_CHANCE + tests)
    assert done.returncode != 0
    assert done.stdout.count("unstable: ") == 2


def test_more_than_ten_failures_are_not_tried_again(tmp_path):
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_many(n): assert False\n"
    done = ci_run(tmp_path, many)
    assert done.returncode != 0
    assert "11 tests failed: more than the 10 that are tried again" in done.stdout
    assert "once more" not in done.stdout


@pytest.mark.parametrize("tests", ["import no_such_module\n", "def test_skips():\n  import pytest; pytest.skip('x')\n"])
def test_what_cannot_be_collected_and_skips_let_nothing_land(tmp_path, tests):
    assert ci_run(tmp_path, PASSES + tests).returncode != 0


def test_a_run_that_exceeds_its_time_lets_nothing_land(tmp_path):
    done = ci_run(tmp_path, "import time\ndef test_sleeps(): time.sleep(60)\n", CORDEE_CI_MINUTES="0")
    assert done.returncode != 0
    assert "once more" not in done.stdout


def test_all_that_pass_leave_nothing_to_tell(tmp_path):
    done = ci_run(tmp_path, PASSES)
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "build" / "unstable-tests.txt").exists()
