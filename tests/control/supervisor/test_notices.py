"""What the supervisor says of telemetry while the run goes on."""

from __future__ import annotations

import asyncio

import pytest

from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema, list_parts
from cordee.telemetry.store.reader import open_run
from cordee.wire.messages import RankStep, Telemetry


class Led:
    """A run folder with its intake, and the journal's findings."""

    def __init__(self, parent):
        self.folder = RunFolder.create(parent, "led-20260101T000000Z-abcd")
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self.intake = TelemetrySink(self.folder.telemetry, 1, self.journal)
        self.notices = remarks.Notices(self.intake, self.journal)

    def hear(self, node, **more):
        self.intake.message(Node(node), Telemetry(None, (), **more), b"")

    def findings(self):
        return [event["finding"] for event in read_journal(self.folder.journal) if event["event"] == "finding"]


@pytest.fixture
def led(tmp_path):
    return Led(tmp_path)


def test_ranks_with_too_many_metric_names_become_one_finding_each_time_some_are_new(led):
    led.hear("n-0", capped_values=[[3, 7], [4, 1]])
    led.notices.tell()
    led.notices.tell()
    led.hear("n-0", capped_values=[[3, 900]])
    led.notices.tell()
    (finding,) = led.findings()
    assert (finding["rule"], finding["severity"], finding["given"]) == ("metric-names-capped", "warn", 8)
    assert "ranks 3, 4" in finding["text"]


def test_a_node_that_is_lost_while_its_ranks_log_is_a_finding_unless_an_agent_comes_to_read_what_is_left(led):
    nodes = {name: Node(name) for name in ("n-2", "n-10", "n-3")}
    for rank, node in enumerate(nodes.values()):
        led.intake.message(node, Telemetry(0, (RankStep(rank, 40 + rank),), unread_bytes=0), b"")
    led.intake.end_attempt(1)
    led.intake.lost(nodes["n-2"])
    assert remarks.closing_findings([], led.intake) == [], "its ranks had ended, and all was told"
    for rank, node in enumerate(nodes.values()):
        led.intake.message(node, Telemetry(1, (RankStep(rank, 50 + rank),), unread_bytes=0), b"")
    for node in nodes.values():
        led.intake.lost(node)
    for unread_bytes in (None, 8, 0):
        assert "n-3" in remarks.cut_off(led.intake)[0].evidence["nodes"]
        led.hear("n-3", unread_bytes=unread_bytes)
    (finding,) = remarks.closing_findings([], led.intake)
    assert (finding.rule, finding.severity) == ("metrics-lost", "warn")
    assert "n-2, n-10: what ranks 0, 1 logged after step 50 to 51 may be missing" in finding.text
    assert finding.evidence == {"nodes": ["n-2", "n-10"], "ranks": [0, 1], "after_steps": [50, 51]}


def test_nodes_whose_clocks_differ_are_named_with_by_how_much(led, monkeypatch):
    monkeypatch.setattr("cordee.control.supervisor.telemetry.sink.unix_s", lambda: 1_000_000.0)
    for late_s in (0.0, 3.0, 40.0, *[1.0] * 10):
        led.hear("n-0", now=1_000_000.0 - late_s)  # what is late is no wrong clock
        led.hear("n-1", now=1_003_600.0 - late_s)
        led.hear("n-2", now=999_940.0 - late_s)
    for _ in range(2):
        led.notices.tell()
    (finding,) = led.findings()
    assert finding["rule"] == "clock-differs"
    assert "n-1 by 3600 s (ahead)" in finding["text"]
    assert "n-2 by 60 s (behind)" in finding["text"]
    assert "n-0" not in finding["text"]


def test_telemetry_is_sealed_and_dropped_while_the_run_goes_on(led, monkeypatch):
    monkeypatch.setattr(remarks, "_SEAL_S", 0.0)
    writer = BlockLogWriter(led.folder.telemetry, 1, max_bytes=1)
    schema, record = encode_schema("n-0", "node", 1.0, ["n-0"], [{"name": "a", "unit": "", "source": ""}])
    writer.append(record)
    for second in range(30):
        writer.append(encode_grid(schema, 1_700_000_000.0 + second, [float(second)]))
        writer.flush()

    async def lead():
        sealer = remarks.Sealer(led.folder, led.journal)
        sealer.begin()
        sealer.begin()
        assert sealer._task is not None
        await sealer._task

    asyncio.run(lead())
    assert len(list_parts(led.folder.telemetry)) == 1
    assert [event["event"] for event in read_journal(led.folder.journal)] == ["sealed"]
    assert open_run(led.folder.root).grid("node").values[0, :, 0].tolist() == list(range(30))


def test_little_telemetry_that_was_sealed_a_moment_ago_waits(led):
    writer = BlockLogWriter(led.folder.telemetry, 1, max_bytes=1)
    schema, record = encode_schema("n-0", "node", 1.0, ["n-0"], [{"name": "a", "unit": "", "source": ""}])
    for second in range(3):
        writer.append(record + encode_grid(schema, float(second), [1.0]))
        writer.flush()
    sealer = remarks.Sealer(led.folder, led.journal)
    assert not sealer._due()
