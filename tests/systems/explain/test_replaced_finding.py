"""A finding that another one knows better: the run's state, its page and what is counted over runs have the better one alone."""

from __future__ import annotations

from pathlib import Path

from cordee.core.findings import Finding
from cordee.core.units import parse_utc
from cordee.faces.web.runs.evidence import finding_times
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import replay

OTHER = Finding("something else", "warn", "made-up")
UNKNOWN = Finding("nobody can be blamed", "warn", "hang-unknown")
CAUSE = Finding("rank 3 is stopped", "error", "hang-stopped")


def test_a_finding_that_is_known_better_is_told_once(tmp_path: Path):
    folder = RunFolder(tmp_path)
    folder.journal.mkdir(parents=True)
    journal = JournalWriter(folder.journal, "supervisor-1", 1)
    journal.append("finding", finding=UNKNOWN.document())
    other = journal.append("finding", finding=OTHER.document())
    better = journal.append("finding", finding=CAUSE.document(), replaces=UNKNOWN.text)
    events = read_journal(folder.journal)
    assert replay(events, "run").findings == [OTHER, CAUSE]
    assert finding_times(list(events)) == [parse_utc(one["time"]) for one in (other, better)]
