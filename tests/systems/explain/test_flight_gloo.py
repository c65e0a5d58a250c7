"""`cordee flight` on dumps of real Gloo ranks, each kind that Gloo can show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps

RANKS = Path(__file__).with_name("gloo_ranks.py")
KINDS = {
    "stall": "cpu-stall",
    "left-out": "wrong-collective",
    "collective": "wrong-collective",
    "size": "size",
    "dtype": "dtype",
    "order": "order",
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gloo")
    done = subprocess.run(
        [sys.executable, str(RANKS), str(folder), *KINDS, "transfer"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("form", ["pkl", "json"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_rank_that_broke_it_is_named(dumps, kind, form):
    (finding,) = analyse(find_dumps(dumps / f"{kind}-{form}")).findings
    assert (finding["kind"], finding["ranks"]) == (KINDS[kind], [2])
    if form == "pkl":
        assert str(RANKS) in finding["where"]


def test_a_receive_that_gloo_does_not_record_makes_the_cause_unknown(dumps):
    (finding,) = analyse(find_dumps(dumps / "transfer-pkl")).findings
    assert (finding["kind"], finding["ranks"], finding["suspects"]) == ("unknown", [], [2])
