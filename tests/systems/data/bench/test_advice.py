"""What is advised about a loader does not hang on how fast this machine was meanwhile."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cordee.systems.data.bench.advice import advise
from cordee.systems.data.bench.pieces import find_pieces
from cordee.systems.data.bench.rounds import CacheState
from cordee.systems.data.bench.settings import Settings


def a_state(share: float) -> CacheState:
    known = {"share_of_limit": share, "first_batch_s": 0.1, "cores": 0.1, "processes": 1}
    known |= {"reads_per_sample": 1.0, "bytes_per_read": 9000.0, "bytes_per_s": 9e6, "samples_per_s": 1000.0}
    return CacheState(**{field.name: known.get(field.name) for field in fields(CacheState)})  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize(("which", "severity"), [("files", "warn"), ("packed", "info")])
def test_small_requests_of_many_files_are_warned_of_at_any_rate(files, packed, which, severity, share) -> None:
    target = {"files": files, "packed": packed}[which]
    found = advise(Settings(str(target)), a_state(share), find_pieces(str(target)))
    advised = {finding.rule: finding for finding in found}["data.small-requests"]
    assert advised.severity == severity
    assert ("cordee data pack" in (advised.next or "")) == (which == "files")
