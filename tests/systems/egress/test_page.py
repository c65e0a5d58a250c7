"""The page "Egress": what went where over time, and how it was counted."""

from __future__ import annotations

import struct

import httpx
import pytest
from playwright.sync_api import expect

from cordee.systems.egress.node.classes import CLASSES
from cordee.systems.egress.node.companion import NODE_DEVICE, told_of
from cordee.systems.egress.node.counts import DestinationTraffic
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import EGRESS, described
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

METHOD = {"method": "sock-diag", "precision": "TCP only", "unclaimed_sent_bytes": 7, "remark": ""}


def told(writer: BlockLogWriter, node: str, begin: float, addresses: dict[str, tuple[str, int]]) -> None:
    """Have a node tell for ten seconds that it sends 1 kB/s to each class, and what went to which address."""
    metrics = [described(metric.name, "sock-diag") for metric in EGRESS]
    schema, record = encode_schema(node, "egress", 1.0, [f"{node} {kind}" for kind in CLASSES], metrics)
    writer.append(record)
    for second in range(10):
        rates = [1000.0, 0.0, 1.0] * len(CLASSES)
        writer.append(encode_grid(schema, begin + second, struct.pack(f"<{len(rates)}f", *rates)))
    facts = {NODE_DEVICE: METHOD}
    for address, (kind, sent) in addresses.items():
        traffic = DestinationTraffic()
        traffic.sent, traffic.connections = sent, 1
        facts[address] = told_of(traffic, kind, "")
    writer.append(encode_facts(node, "egress", begin, facts, {}))


@pytest.mark.usefixtures("real")
def test_the_page_shows_what_went_where_summed_over_the_nodes(tmp_path):
    sends = write_run(tmp_path, MadeRun(8, 20, name="sends"), seal=False)
    quiet = write_run(tmp_path, MadeRun(8, 20, name="quiet"), seal=False)
    writer = BlockLogWriter(sends.telemetry, 2)
    told(writer, "n1", 1.7e9, {"203.0.113.1": ("rest", 5_000_000), "10.0.0.1": ("site", 10)})
    told(writer, "n2", 1.7e9, {"203.0.113.1": ("rest", 1_000_000), "203.0.113.9": ("listed", 3)})
    writer.close()
    with ServedRuns(tmp_path) as server:
        found = httpx.get(f"{server.url}/api/runs/{sends.id}/egress", timeout=60).json()
        assert [(one["address"], one["sent_bytes"]) for one in found["destinations"]] == [
            ("203.0.113.1", 6_000_000), ("203.0.113.9", 3),
        ]  # fmt: skip
        assert (found["unclaimed_sent_bytes"], found["count"]) == (14, 2)
        assert set(filter(None, found["sent"]["classes"]["rest"])) == {2000.0}
        with chromium() as browser:
            tab = WatchedPage(browser, server.url, viewport={"width": 1000, "height": 1400})
            page = tab.open(f"#/run/{sends.id}/egress")
            expect(page.get_by_role("row").nth(1)).to_contain_text("203.0.113.1")
            expect(page.locator("main")).to_contain_text("TCP only")
            page = tab.open(f"#/run/{quiet.id}/egress")
            expect(page.locator("main")).to_contain_text("Nothing was counted in this run.")
            tab.close()
            assert not tab.faults
