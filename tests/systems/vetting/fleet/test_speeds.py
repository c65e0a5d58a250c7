"""What vetted nodes reached is offered to whoever plans: `cordee plan` takes no GPU to be faster."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.ports.speeds import SPEEDS, NodeSpeeds
from cordee.core.registry import offered
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.devices import MATRIX, as_measured, device_of

from .conftest import result, vetting

TABLE = "[model]\nlayers = 32\nwidth = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n"
H100 = "NVIDIA H100 80GB HBM3"


def measured(node: str, tflops: float, bandwidth: float = 2.9e12, days_ago: float = 0.0, *, sent: float = 0.0):
    """Return a vetting of one node with one kind of GPU; `sent`: bytes/s to GPUs of other nodes."""
    low = [{"kind": "low", "of": "value", "ratio": 0.9}]
    about = {"compare": low, "facts": {"model": H100}}
    found = [
        result("gpu.gemm", value=tflops, unit="TFLOP/s", **about),
        result("gpu.memory_bandwidth", value=bandwidth, unit="bytes/s", **about),
    ]
    if sent:
        found.append(result("pair.bandwidth", value=sent, unit="bytes/s", facts={"partners": [], "model": H100}))
    return vetting(None, nodes={node: ("healthy", found)}, days_ago=days_ago)


def test_speeds_are_the_medians_of_enough_nodes_in_four_weeks(folder, remember):
    remember(*[measured(f"n{number}", 500.0 + number) for number in range(5)], measured("old", 900.0, days_ago=60))
    speeds = offered(SPEEDS)
    assert speeds(str(folder)) == {H100: NodeSpeeds(5, 502e12, 2.9e12, None)}
    assert speeds(None) == {} == speeds(str(folder / "not-there"))


def test_what_gpus_sent_to_other_nodes_is_the_network_and_what_went_over_tcp_is_not(folder, remember):
    remember(*[measured(f"n{number}", 500.0, sent=40e9 + number) for number in range(5)])
    over_tcp = result("pair.bandwidth", value=1e9, unit="bytes/s")
    remember(*[vetting(None, nodes={f"n{number}": ("healthy", [over_tcp])}) for number in range(5)])
    assert offered(SPEEDS)(str(folder))[H100].network == 40e9 + 2


def test_layouts_over_several_nodes_communicate_as_fast_as_the_network_was_measured_to_be(
    folder, remember, tmp_path, monkeypatch
):
    (tmp_path / "model.toml").write_text(TABLE)
    words = ["--gpu", "h100_80gb", "--per-node", "8", "--json", "--layout"]

    def communication(layout: str) -> float:
        done = CliRunner().invoke(command, [str(tmp_path / "model.toml"), *words, layout])
        assert done.exit_code == 0, done.output
        size = dict(part.split("=") for part in layout.split(","))
        found = [
            one
            for one in json.loads(done.stdout)["layouts"]
            if all(str(one[name]) == value for name, value in size.items())
        ]
        return found[0]["communication_ratio"] * found[0]["step_s"]

    monkeypatch.delenv("CORDEE_HISTORY", raising=False)
    before = {layout: communication(layout) for layout in ("fsdp=8", "fsdp=16")}
    remember(*[measured(f"n{number}", 1e4, 1e14, sent=2e9) for number in range(4)])  # GPUs as quick as their table
    monkeypatch.setenv("CORDEE_HISTORY", str(folder))
    after = {layout: communication(layout) for layout in before}
    assert after["fsdp=16"] > 3 * before["fsdp=16"]
    assert after["fsdp=8"] < 2 * before["fsdp=8"]  # one node


def test_too_few_nodes_say_nothing(folder, remember):
    remember(*[measured(f"n{number}", 500.0) for number in range(3)])
    assert offered(SPEEDS)(str(folder)) == {}


def test_a_plan_takes_no_gpu_to_be_faster_than_vetted_ones(folder, remember, tmp_path, monkeypatch):
    (tmp_path / "model.toml").write_text(TABLE)
    remember(*[measured(f"n{number}", 400.0) for number in range(4)])

    def plan() -> dict:
        done = CliRunner().invoke(
            command, [str(tmp_path / "model.toml"), "--gpu", "h100_80gb", "--gpus", "8", "--json"]
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    monkeypatch.delenv("CORDEE_HISTORY", raising=False)
    before = plan()
    monkeypatch.setenv("CORDEE_HISTORY", str(folder))
    after = plan()
    assert after["device"]["measured_nodes"] == 4
    assert after["layouts"][0]["tokens_per_s"] < 0.9 * before["layouts"][0]["tokens_per_s"]
    assert any(one["rule"] == "plan-measured-speeds" for one in after["findings"])


def test_speeds_of_other_gpus_and_of_other_types_change_nothing():
    device = device_of("h100_80gb")
    assert as_measured(device, {"NVIDIA A100-SXM4-80GB": NodeSpeeds(8, 1e14)}) == device
    assert as_measured(device, {H100: NodeSpeeds(8, 6e13)}).sustained == device.sustained  # products in fp32
    assert as_measured(device, {H100: NodeSpeeds(8, 9e14)}).sustained == 1.0  # quicker than is taken anyway
    assert as_measured(device, {H100: NodeSpeeds(8, network=17e9)}).network == pytest.approx(17e9 / 0.85)
    assert as_measured(device, {H100: NodeSpeeds(8, 3e14)}).sustained == pytest.approx(3e14 / device.flops / MATRIX)
