"""`make demo` says how to watch the training before it begins, and its last line stays what `cordee run` says last."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
