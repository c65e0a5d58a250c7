"""Dumps of real NCCL ranks that hung: four of them on one H100, torch 2.11, NCCL 2.28.9, each as a host of its own.

`recorded_nccl` has what `benchmarks/hangs.py --backend nccl` kept of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps

RECORDED = Path(__file__).parent / "recorded_nccl"


@pytest.mark.parametrize(
    ("kind", "found", "where"),
    [
        ("collective", "wrong-collective", "/home/me/train.py:58 (hang)"),
        ("order", "wrong-collective", "/home/me/train.py:60 (hang)"),
        ("sleep", "cpu-stall", ""),
        ("kernel-timed", "gpu-stall", "/home/me/train.py:93 (train)"),
    ],
)
def test_who_broke_a_collective_of_nccl_is_named(kind, found, where):
    (finding,) = analyse(find_dumps(RECORDED / kind)).findings
    assert (finding["kind"], finding["ranks"], finding["process_group"]) == (found, [3], "0 (default_pg)")
    assert finding["where"] == where or not where


@pytest.mark.parametrize(("kind", "suspects"), [("kernel", []), ("ended", [3])])
def test_nobody_is_blamed_where_the_gpus_do_not_tell_or_a_dump_is_missing(kind, suspects):
    (finding,) = analyse(find_dumps(RECORDED / kind)).findings
    assert (finding["kind"], finding["ranks"], finding["suspects"]) == ("unknown", [], suspects)
