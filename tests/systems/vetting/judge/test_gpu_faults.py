"""Faults of GPUs on one node of four: the verdict names the node, the GPU and the rule of the catalogue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.judge.verdict import decide
from cordee.systems.vetting.rules import load_rules
from support.hosts.kernel_log import write_kmsg, xid_line
from support.nvml import FakeGpus

RULES = load_rules()
CHECKS: dict[str, dict[str, Any]] = {
    "gpu.inventory": {"nvidia_smi": False},
    "gpu.ecc": {},
    "gpu.nvlink": {"seconds": 0.01},
    "gpu.pcie": {},
    "gpu.residue": {},
    "gpu.temperature": {},
    "gpu.throttle": {},
    "gpu.xid": {},
}
Reports = dict[str, list[dict[str, Any]]]


def vet(gpus: FakeGpus, node: str, root: Path, names: tuple[str, ...] = tuple(CHECKS)) -> list[dict[str, Any]]:
    """Return what the checks say of a node, as its member of a vetting would send it."""
    checks = [{"check": name, "parameters": CHECKS[name]} for name in names]
    request = {"checks": checks, "node": node, "root": str(root), "deadline_s": 20}
    env = {**os.environ, **gpus.env, "SLURMD_NODENAME": node}
    command = [sys.executable, "-m", "cordee.systems.vetting.node.checks"]
    done = subprocess.run(command, input=json.dumps(request), env=env, capture_output=True, text=True, check=True)
    results = {result["name"]: result for result in map(json.loads, done.stdout.splitlines())}
    return [results[name] for name in names]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, fake_nvml: Path) -> Reports:
    folder = tmp_path_factory.mktemp("healthy")
    gpus = four_gpus(folder, fake_nvml)
    write_kmsg(folder / "host", [(1, "eth0: link up")])
    results = vet(gpus, "node-1", folder / "host")
    return {f"node-{number}": results for number in (1, 2, 4, 5)}


def four_gpus(folder: Path, library: Path) -> FakeGpus:
    gpus = FakeGpus(folder, count=4, library=library)
    for index in range(4):
        gpus.links(index, 2)
    return gpus


@pytest.fixture
def judge(tmp_path: Path, fake_nvml: Path, healthy: Reports) -> Callable[..., dict[str, Any]]:
    """Vet node-3 with a fault beside four healthy nodes; where one check is named, the others say what they say of node-1."""

    def call(
        spoil: Callable[[FakeGpus], Any], log: list[tuple[float, str]] | None = None, check: str | None = None
    ) -> dict[str, Any]:
        gpus = four_gpus(tmp_path, fake_nvml).on("node-3")
        spoil(gpus)
        write_kmsg(tmp_path / "host", [(1, "eth0: link up"), *(log or [])])
        reports = {name: json.loads(json.dumps(results)) for name, results in healthy.items()}
        asked = vet(gpus, "node-3", tmp_path / "host", (check,) if check else tuple(CHECKS))
        others = [json.loads(json.dumps(result)) for result in healthy["node-1"]]
        reports["node-3"] = [*asked, *(result for result in others if check and result["check"] != check)]
        return decide({"rules": RULES, "baseline": {}}, reports)

    return call


def rules_of(document: dict[str, Any], node: str) -> dict[str, str]:
    """Return the rules that a node's results fall under, by check."""
    (found,) = [entry for entry in document["nodes"] if entry["node"] == node]
    return {result["check"]: result["rule"]["id"] for result in found["results"] if result["rule"]}


def test_healthy_nodes_go_on(judge):
    document = judge(lambda gpus: None)
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert {entry["verdict"] for entry in document["nodes"]} == {"healthy"}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("check", "rule", "spoil"),
    [
        ("gpu.temperature", "gpu.hot", lambda gpus: gpus.device(2, temperature=95)),
        ("gpu.temperature", "gpu.hot", lambda gpus: gpus.device(2, temperature=70)),
        ("gpu.ecc", "gpu.ecc-uncorrectable", lambda gpus: gpus.device(2, ecc_uncorrectable=1)),
        ("gpu.ecc", "gpu.row-remap-failed", lambda gpus: gpus.device(2, remap_failure=1)),
        ("gpu.ecc", "gpu.row-remap-pending", lambda gpus: gpus.device(2, remap_pending=1)),
        ("gpu.inventory", "gpu.missing", lambda gpus: gpus.system(count=3)),
        ("gpu.inventory", "gpu.wrong-model", lambda gpus: gpus.device(2, name="NVIDIA A100-SXM4-40GB")),
        ("gpu.inventory", "gpu.wrong-model", lambda gpus: gpus.device(2, memory_total=40 << 30)),
        ("gpu.inventory", "gpu.repair-asked", lambda gpus: gpus.device(2, recovery_action=2)),
        ("gpu.throttle", "gpu.throttled", lambda gpus: gpus.device(2, throttle_reasons=0x48)),
        ("gpu.residue", "gpu.foreign-process", lambda gpus: gpus.process(2, 2**22 + 7, 1 << 30)),
        ("gpu.residue", "gpu.memory-in-use", lambda gpus: gpus.device(2, memory_used=8 << 30)),
        ("gpu.nvlink", "nvlink.down", lambda gpus: gpus.link(2, 1, active=0)),
        ("gpu.nvlink", "nvlink.errors", lambda gpus: gpus.link(2, 1, crc_data="0+3")),
        ("gpu.pcie", "pcie.downgraded", lambda gpus: gpus.device(2, pcie_generation=3, utilization_gpu=50)),
        ("gpu.pcie", "pcie.downgraded", lambda gpus: gpus.device(2, pcie_width=8)),
    ],
)
def test_a_fault_names_its_node_and_rule(check, rule, spoil, judge):
    document = judge(spoil, check=check)
    assert (document["verdict"], document["exclude"]) == ("exclude", ["node-3"])
    assert "node-3" in document["reason"]
    assert rules_of(document, "node-3")[check] == rule
    assert not any(rules_of(document, entry["node"]) for entry in document["nodes"] if entry["node"] != "node-3")


def test_an_idle_gpu_at_another_generation_than_the_other_nodes_makes_its_node_suspect(judge):
    document = judge(lambda gpus: gpus.device(2, pcie_generation=3))
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert rules_of(document, "node-3") == {"gpu.pcie": "pcie.downgraded"}


@pytest.mark.parametrize("number", [48, 63, 64, 74, 79, 94, 95, 119, 120])
def test_an_xid_names_its_node_and_rule(number, judge):
    document = judge(lambda gpus: None, [(2, xid_line("0000:12:00", number))], "gpu.xid")
    assert document["exclude"] == ["node-3"]
    assert rules_of(document, "node-3") == {"gpu.xid": f"xid.{number}"}


def test_an_xid_of_a_program_excludes_nobody(judge):
    document = judge(lambda gpus: None, [(2, xid_line("0000:12:00", 31))])
    assert (document["verdict"], document["exclude"]) == ("continue", [])
    assert [entry["verdict"] for entry in document["nodes"]] == ["healthy", "healthy", "suspect", "healthy", "healthy"]


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("nvml.mismatch", lambda gpus: gpus.error("nvmlInitWithFlags", 18)),
        ("gpu.library-missing", lambda gpus: gpus.error("nvmlInitWithFlags", 9)),
        ("access.denied", lambda gpus: gpus.error("nvmlInitWithFlags", 4)),
        ("gpu.lost", lambda gpus: gpus.error("*", 15, device=1)),
        ("gpu.lost", lambda gpus: gpus.error("*", 999, device=1)),
    ],
)
def test_a_driver_that_does_not_serve_excludes_its_node_under_one_rule(rule, spoil, judge):
    document = judge(spoil)
    assert document["exclude"] == ["node-3"]
    asked = rules_of(document, "node-3")
    assert set(asked.values()) == {rule}
    assert set(CHECKS) - set(asked) <= {"gpu.xid"}
