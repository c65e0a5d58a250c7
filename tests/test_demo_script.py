"""`make demo` says how to watch the training before it begins, goes on after its kill, and ends with the report."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAINING = """#!/bin/sh
[ "$1" = run ] && echo "cordee: report /runs/x/report/index.html" >&2
exit 0
"""


def test_the_demo_says_how_to_watch_it_and_ends_with_its_report(tmp_path):
    (tmp_path / "bin").mkdir()
    for name, text in (("cordee", TRAINING), ("python", "#!/bin/sh\nexit 0\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "scripts/demo.sh", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CORDEE_RUNS": "/elsewhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    assert any(
        "bin/cordee serve" in line and "http://127.0.0.1:8090" in line and "/elsewhere" in line for line in lines
    )
    assert any("bin/cordee watch" in line for line in lines)
    assert lines[-1] == "cordee: report /runs/x/report/index.html"


@pytest.mark.parametrize(("killed", "code", "called"), [(True, 0, ["run", "resume"]), (False, 4, ["run"])])
def test_the_demo_goes_on_with_more_ranks_only_after_the_kill_of_its_own(tmp_path, killed, code, called):
    (tmp_path / "bin").mkdir()
    cordee = "case $1 in run) echo run; exit 4;; resume) echo $@;; esac"
    python = f"case $1 in *demo_kill.py) exit {0 if killed else 1};; esac"
    for name, text in (("cordee", cordee), ("python", python)):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "scripts/demo.sh", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == called
    assert ("resume last --nodes 4" in done.stdout) == killed
