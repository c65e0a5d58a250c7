"""Files of tests that take longest are begun first, by what they took when that was last recorded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_durations_are_recorded_and_the_longest_file_comes_first(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tests / "durations.txt").write_text("9.0 tests/test_gone.py\n0.0 tests/test_a.py\n")
    (tests / "test_a.py").write_text("def test_short(): pass\n")
    (tests / "test_b.py").write_text("import time\ndef test_long(): time.sleep(0.3)\ndef test_too(): pass\n")

    def ran(*options: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-v", "-n", "0", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return [line.partition(" ")[0] for line in done.stdout.splitlines() if "::" in line]

    unrecorded = ["tests/test_b.py::test_long", "tests/test_b.py::test_too", "tests/test_a.py::test_short"]
    assert ran("--record-durations") == unrecorded
    recorded = [line.split() for line in (tests / "durations.txt").read_text().splitlines()]
    assert [path for _, path in recorded] == ["tests/test_b.py", "tests/test_a.py"]
    assert float(recorded[0][0]) >= 0.3
    assert ran() == unrecorded
    (tests / "durations.txt").write_text("9.0 tests/test_b.py\n")
    assert ran("--quick") == ["tests/test_a.py::test_short"]
