"""Checks of network links on fixture trees, and on a machine without any that counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.links import read_links
from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.node.checks.link import errors
from support.hosts.host_tree import HostTree


def one(check: str, root: Path | str = "/", **parameters: Any) -> Any:
    (result,) = run_checks(
        {"checks": [{"check": check, "parameters": parameters}], "deadline_s": 20, "root": str(root)}
    )
    assert result["evidence"]
    assert json.loads(json.dumps(result)) == result
    return result


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path / "host")
    tree.infiniband("mlx5_0")
    tree.interface("hsn0")
    tree.interface("eth0", speed_mbit=10_000)
    return tree


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen between the two readings of a check, in place of the time that goes by."""
    return lambda act: monkeypatch.setattr(errors, "sleep", lambda seconds: act())


Meanwhile = Callable[[Callable[[], object]], None]


def test_links_that_are_up_pass_with_their_slowest_rate(host: HostTree) -> None:
    result = one("link.state", host.root)
    assert (result["status"], result["value"], result["unit"]) == ("pass", 200, "Gbit/s")
    assert result["evidence"] == "hsn0: up, carrier, 200 Gbit/s; mlx5_0/1: ACTIVE, LinkUp, 200 Gbit/s"
    assert {entry["of"]: result["facts"][entry["of"]] for entry in result["compare"]} == {
        "link names": "hsn0 mlx5_0/1",
        "link hsn0": "up, carrier, 200 Gbit/s",
        "link mlx5_0/1": "ACTIVE, LinkUp, 200 Gbit/s",
    }


def test_a_link_that_is_down_is_named(host: HostTree) -> None:
    host.infiniband("mlx5_1", state="1: DOWN", physical="2: Polling", rate="10 Gb/sec (4X SDR)")
    result = one("link.state", host.root)
    assert result["status"] == "fail"
    assert result["evidence"] == "mlx5_1/1 is down: DOWN, Polling, 10 Gbit/s"


def test_a_slingshot_interface_without_carrier_is_down(host: HostTree) -> None:
    host.interface("hsn1", state="down", carrier=0)
    assert one("link.state", host.root)["evidence"] == "hsn1 is down: down, no carrier, 200 Gbit/s"


def test_a_port_that_somebody_switched_off_and_a_spare_roce_port_are_only_compared(host: HostTree) -> None:
    host.infiniband("mlx5_1", state="1: DOWN", physical="3: Disabled")
    host.infiniband("mlx5_2", state="1: DOWN", physical="2: Polling", layer="Ethernet")
    result = one("link.state", host.root)
    assert result["status"] == "pass"
    assert {"link mlx5_1/1", "link mlx5_2/1"} <= {entry["of"] for entry in result["compare"]}
    assert one("link.state", host.root, links=["mlx5_*"])["status"] == "fail"


def test_links_are_chosen_by_pattern_and_one_that_is_missing_fails(host: HostTree) -> None:
    assert [link.name for link in read_links(str(host.root), ["mlx5_0", "eth*"])] == ["eth0", "mlx5_0/1"]
    result = one("link.state", host.root, links=["mlx5_0/1", "mlx5_3"])
    assert (result["status"], result["evidence"]) == ("fail", "no link mlx5_3")


def test_a_slow_or_missing_link_fails_where_rate_and_count_are_given(host: HostTree) -> None:
    host.infiniband("mlx5_1", rate="100 Gb/sec (2X HDR)")
    result = one("link.state", host.root, links=["mlx5_*"], min_rate_gbit_per_s=200, count=3)
    assert result["evidence"] == "2 links are up, 3 expected; mlx5_1/1 runs at 100 Gbit/s, 200 expected"
    assert (result["value"], result["threshold"]) == (100, 200)


def test_a_rate_that_the_kernel_does_not_say_is_unknown(host: HostTree) -> None:
    host.interface("eth1", speed_mbit=-1)
    result = one("link.state", host.root, links=["eth1"], min_rate_gbit_per_s=1)
    assert (result["status"], result["cause"]) == ("unknown", "closed")


@pytest.mark.parametrize("check", ["link.state", "link.errors"])
def test_a_machine_without_such_links_skips_unless_they_are_asked_for(check: str, tmp_path: Path) -> None:
    tree = HostTree(tmp_path / "plain")
    tree.interface("eth0")
    assert one(check, tree.root)["status"] == "skip"
    assert one(check, tree.root, links=["mlx5_0"])["status"] == "fail"
    assert one(check)["status"] in ("pass", "skip")


def test_old_errors_are_no_fault_as_long_as_none_comes(host: HostTree) -> None:
    result = one("link.errors", host.root, seconds=0.2)
    assert (result["status"], result["value"]) == ("pass", 0)
    assert (
        result["evidence"].startswith("no new errors on hsn0, mlx5_0/1 within 0.2 s")
        or "mlx5_0/1" in result["evidence"]
    )


def test_errors_that_grow_name_port_and_counter(host: HostTree, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: host.infiniband("mlx5_0", symbol_error=19, port_rcv_errors=3))
    result = one("link.errors", host.root)
    assert (result["status"], result["value"]) == ("fail", 10)
    assert result["evidence"].startswith("mlx5_0/1: port_rcv_errors +3, symbol_error +7 within")


def test_a_few_errors_can_be_allowed(host: HostTree, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: host.interface("hsn0", rx_crc_errors=3))
    assert one("link.errors", host.root, max_errors=3)["status"] == "pass"
    meanwhile(lambda: host.interface("hsn0", rx_crc_errors=7))
    assert one("link.errors", host.root, max_errors=3)["status"] == "fail"


def test_a_link_that_goes_down_and_up_meanwhile_fails(host: HostTree, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: host.interface("hsn0", carrier_down_count=2))
    result = one("link.errors", host.root)
    assert result["status"] == "fail"
    assert result["evidence"].startswith("hsn0 went down 2 times within")


def test_packets_dropped_for_want_of_room_warn(host: HostTree, meanwhile: Meanwhile) -> None:
    meanwhile(lambda: host.infiniband("mlx5_0", port_xmit_discards=5000))
    result = one("link.errors", host.root)
    assert (result["status"], result["value"]) == ("warn", 0)
    assert "mlx5_0/1: port_xmit_discards +5000" in result["evidence"]


def test_a_counter_at_its_largest_value_cannot_be_trusted(host: HostTree) -> None:
    host.infiniband("mlx5_0", symbol_error=65535)
    result = one("link.errors", host.root, seconds=0.1)
    assert result["status"] == "warn"
    assert "mlx5_0/1: symbol_error stands at its largest value" in result["evidence"]


def test_a_counter_that_was_reset_meanwhile_counts_what_it_holds(host: HostTree, meanwhile: Meanwhile) -> None:
    host.infiniband("mlx5_0", port_rcv_errors=1000)
    meanwhile(lambda: host.infiniband("mlx5_0", port_rcv_errors=4))
    assert "port_rcv_errors +4" in one("link.errors", host.root)["evidence"]


@pytest.mark.parametrize("check", ["link.state", "link.errors"])
def test_links_that_are_not_to_be_seen_are_unknown(check: str, tmp_path: Path) -> None:
    result = one(check, tmp_path)
    assert (result["status"], result["cause"]) == ("unknown", "closed")
