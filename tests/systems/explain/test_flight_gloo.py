"""`cordee flight` on dumps of real Gloo ranks, each kind that Gloo can show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from cordee.systems.explain.flight.views import flight_of_folder

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
def dumps(real, tmp_path_factory) -> Path:
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


def test_what_real_ranks_sent_is_what_they_called(dumps):
    _, document = flight_of_folder(dumps / "stall-pkl", None, matrix=True)
    named = {one["name"]: one for one in document["traffic"]["dimensions"]}
    # Three times: 8 floats reduced in a ring of 4, and 4 floats passed along it; 2 floats in rings of 2.
    assert named["all ranks"]["sent"] == [[rank, (rank + 1) % 4, 3 * (48 + 12)] for rank in (0, 1, 2, 3)]
    assert named["pair"]["sent"] == [[0, 1, 24], [1, 0, 24], [2, 3, 24], [3, 2, 24]]
