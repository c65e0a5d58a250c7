"""AMD's GPUs through the calls of amdsmi: the same reading layer and the same checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEALTHY: dict[str, Any] = {
    "name": "AMD Instinct MI300A",
    "memory_total": 128 << 30,
    "memory_used": 300 << 20,
    "processes": [],
    "temperature": 44,
    "hot": False,
    "uncorrectable": 0,
    "bad_pages": [],
    "width": 16,
}


@pytest.fixture
def ask(tmp_path: Path):
    """Run a check where amdsmi shows these GPUs."""
    shutil.copy(Path(__file__).with_name("fake_amdsmi.py"), tmp_path / "amdsmi.py")

    def call(check: str, *gpus: dict[str, Any], **state: Any) -> dict[str, Any]:
        described = [{**HEALTHY, "uuid": f"73ff74a0-0000-1000-80{index:02}", **gpu} for index, gpu in enumerate(gpus)]
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "AMD_GPUS": json.dumps({"gpus": described, **state})}
        done = subprocess.run(
            [sys.executable, "-m", "cordee.systems.vetting.node.checks"],
            input=json.dumps({"checks": [{"check": check}]}),
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


@pytest.mark.parametrize(
    "check", ["gpu.inventory", "gpu.ecc", "gpu.throttle", "gpu.temperature", "gpu.residue", "gpu.pcie"]
)
def test_healthy_gpus_pass(check, ask):
    result = ask(check, {}, {})
    assert result["status"] == "pass", result["evidence"]
    assert [entry["pci_bus_id"] for entry in result["facts"]["devices"]] == ["0000:c1:00", "0000:c2:00"]


@pytest.mark.parametrize(
    ("check", "values", "words"),
    [
        ("gpu.temperature", {"temperature": 99}, "99 °C"),
        ("gpu.ecc", {"uncorrectable": 2}, "2 uncorrectable ECC errors"),
        ("gpu.ecc", {"bad_pages": [0, 1]}, "page retirement is pending"),
        ("gpu.throttle", {"hot": True}, "for heat"),
        ("gpu.residue", {"memory_used": 64 << 30}, "50.0% of its memory"),
        ("gpu.pcie", {"width": 4}, "PCIe width 4 of 16 lanes"),
    ],
)
def test_a_fault_names_its_gpu(check, values, words, ask):
    result = ask(check, {}, values)
    assert result["status"] == "fail"
    assert result["evidence"].startswith("GPU 1 (73ff74a0-0000-1000-8001): ")
    assert words in result["evidence"]


def test_the_inventory_tells_vendor_and_driver(ask):
    facts = ask("gpu.inventory", {})["facts"]
    assert (facts["vendor"], facts["model"], facts["driver_version"]) == (
        "AMD",
        "AMD Instinct MI300A with 128 GiB",
        "6.12.12",
    )


def test_what_is_refused_is_unknown(ask):
    result = ask("gpu.temperature", {"temperature": {"error": 10}})
    assert (result["status"], result["cause"]) == ("unknown", "closed")
    result = ask("gpu.temperature", init_error=34)
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    result = ask("gpu.temperature", {}, init_error=10)
    assert (result["status"], result["cause"]) == ("unknown", "closed")


def test_links_of_amd_are_said_not_to_be_looked_at(ask):
    assert ask("gpu.nvlink", {})["status"] == "skip"
