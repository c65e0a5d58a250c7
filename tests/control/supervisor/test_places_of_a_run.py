"""Where ranks stand, from a real run's command and calls to a reader of the run, over a restart and sealing."""

from __future__ import annotations

import pytest

from cordee.telemetry.store.placement import placement, placement_findings
from cordee.telemetry.store.reader import open_run

pytestmark = pytest.mark.usefixtures("real")

# The first attempt ends before a place is told; in the second one rank leaves it to the command, the others tell another.
SCRIPT = """
import os, sys
import cordee

rank, attempt = int(os.environ["RANK"]), int(os.environ["CORDEE_ATTEMPT"])
cordee.log(step=attempt, loss=1.0)
if attempt == 1:
    sys.exit(3)
if rank != 3:
    cordee.layout(dp=(rank, 4))
"""


def test_places_are_those_of_the_command_unless_a_rank_tells_its_own(job, start):
    folder = job(SCRIPT, "[need]\nranks_per_node = 4", "python train.py --tensor-model-parallel-size 2")
    run = start(folder, reported=True)
    run.wait_end()
    opened = open_run(run.folder.root)
    places = placement(opened)
    assert [told["place"] for told in places.values()] == [{"dp": 0}, {"dp": 1}, {"dp": 2}, {"tp": 1, "dp": 1, "pp": 0}]
    assert [told["source"] for told in places.values()] == ["call", "call", "call", "settings"]
    assert {told["attempt"] for told in places.values()} == {2}
    assert [finding.rule for finding in placement_findings(places, 4)] == ["place-disagreement"]
    assert sorted(opened.events()) == ["loss"]
