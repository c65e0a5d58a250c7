"""A rank that loads a file that nobody has looked at says so in one line, and loads it as without Cordée."""

from __future__ import annotations

import json
import time

PROGRAM = """
import joblib, os
joblib.dump([1], "made.pkl")
assert joblib.load("made.pkl") == [1] == joblib.load(filename="made.pkl")
assert joblib.load(os.environ["SEEN"]) == [2]
for wrong in ("missing.pkl", 7, None):
    try:
        joblib.load(wrong)
    except (OSError, TypeError, AttributeError):
        print("raised")
"""


def test_what_the_gate_has_not_seen_is_told_once(rank, tmp_path):
    import joblib

    seen = tmp_path / "seen.pkl"
    joblib.dump([2], seen)
    run = tmp_path / "run"
    run.mkdir()
    document = {"schema": "cordee.scan-seen/1", "at": time.time() + 1, "places": [str(tmp_path / "seen.pkl")]}
    (run / "scan.json").write_text(json.dumps(document))
    more = {"CORDEE_RUN_DIR": str(run), "SEEN": str(seen)}
    done = rank(f"import os; os.chdir({str(tmp_path)!r})\n{PROGRAM}", **more)
    assert (done.code, done.out.split()) == (0, ["raised"] * 3), done.err
    assert done.err.count("nobody has looked at it") == 1
    assert "made.pkl is loaded" in done.err
    quiet = rank(f"import os; os.chdir({str(tmp_path)!r})\n{PROGRAM}", CORDEE_SCAN="off", **more)
    assert (quiet.code, quiet.err) == (0, "")
    (run / "scan.json").write_text("torn {")
    torn = rank(f"import os; os.chdir({str(tmp_path)!r})\n{PROGRAM}", **more)
    assert torn.code == 0
