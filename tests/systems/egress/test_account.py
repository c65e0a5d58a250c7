"""A hundred small jobs are one sum, and whose they are their files say."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cordee.core.errors import UsageError
from cordee.job.egress import AgreedDestination, EgressSite
from cordee.systems.egress.account import network_named, site_account
from cordee.systems.egress.node import watch
from cordee.systems.egress.node.watch import SCHEMA, RunAccount

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def site(folder, **more) -> EgressSite:
    agreed = {"cern": AgreedDestination(hosts=("192.0.2.0/24",), daily=10**9)}
    return EgressSite(account=str(folder), agreed=agreed, **more)


def leave(folder, run: str, destinations: dict[str, tuple[str, int]], day: str = "2026-11-23") -> None:
    (folder / day).mkdir(exist_ok=True)
    found = {
        address: {"class": kind, "name": "", "sent_bytes": sent, "received_bytes": 1, "connections": 1}
        for address, (kind, sent) in destinations.items()
    }
    (folder / day / f"{run}.json").write_text(json.dumps({"schema": SCHEMA, "run": run, "destinations": found}))


def test_a_hundred_small_jobs_are_seen_as_one(tmp_path):
    for number in range(100):
        leave(tmp_path, f"r{number}", {f"203.0.113.{number % 7}": ("rest", 2_000_000), "10.0.0.1": ("site", 10**12)})
    account = site_account(site(tmp_path, daily=150_000_000), 1, NOW)
    (only,) = account.destinations
    assert (only.destination, only.sent, len(only.runs)) == ("203.0.113.0/24", 200_000_000, 100)
    assert only.over == ["2026-11-23"]


def test_agreed_destinations_have_their_name_and_their_rate_and_days_do_not_mix(tmp_path):
    leave(tmp_path, "a", {"192.0.2.9": ("rest", 800_000_000)}, "2026-11-22")
    leave(tmp_path, "b", {"192.0.2.10": ("listed", 900_000_000)})
    leave(tmp_path, "c", {"192.0.2.10": ("listed", 10**12)}, "2026-11-01")
    (only,) = site_account(site(tmp_path), 7, NOW).destinations
    assert (only.destination, only.kind, only.sent, only.over) == ("cern", "agreed", 1_700_000_000, [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "x"}',
        '{"schema": "cordee.egress/1", "destinations": {"a": {"class": "rest", "name": "", "sent_bytes": -5, "received_bytes": 0}}}',
    ],
)
def test_records_that_are_none_are_left_out_and_said(tmp_path, text):
    leave(tmp_path, "good", {"203.0.113.1": ("rest", 5)})
    (tmp_path / "2026-11-23" / "bad.json").write_text(text)
    account = site_account(site(tmp_path), 1, NOW)
    assert [one.sent for one in account.destinations] == [5]
    assert list(account.left_out) == [str(tmp_path / "2026-11-23" / "bad.json")]


def test_without_an_account_that_is_said(tmp_path):
    with pytest.raises(UsageError, match="keeps no account"):
        site_account(EgressSite(), 1)
    with pytest.raises(UsageError, match="cannot be read"):
        site_account(site(tmp_path / "nothing"), 1)


def test_a_run_over_midnight_leaves_a_record_for_each_day(tmp_path, monkeypatch):
    account = RunAccount(str(tmp_path), {"run": "r", "cluster": "c"})
    moments = iter([1795478300.0, 1795478500.0])  # 2026-11-23T23:58 and 2026-11-24T00:01
    monkeypatch.setattr(watch, "unix_s", lambda: next(moments))
    account.keep({"203.0.113.1": ["rest", "", 100, 0, 1]}, ["sock-diag"])
    account.keep({"203.0.113.1": ["rest", "", 250, 0, 2]}, ["sock-diag"])
    sent = {
        path.parent.name: json.loads(path.read_text())["destinations"]["203.0.113.1"]["sent_bytes"]
        for path in tmp_path.glob("*/r.json")
    }
    assert sorted(sent.values()) == [100, 150]
    assert len(sent) == 2


def test_networks_of_addresses():
    assert network_named("203.0.113.77") == "203.0.113.0/24"
    assert network_named("2001:db8:1:2::3") == "2001:db8:1::/48"
    assert network_named("?") == "others"
