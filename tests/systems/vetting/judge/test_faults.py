"""Faults injected into one of several nodes: each vetting must name the right node and the right rule, and nobody else.

All nodes are real processes of `cordee vet` on this machine; see `support.hosts.simulated_nodes`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node import checks
from cordee.testing.patience import wait_until
from support.hosts.kernel_log import write_kmsg, xid_line
from support.hosts.preloading import build_faults, faulty
from support.hosts.simulated_nodes import SimulatedNode, SimulatedNodes, Vetted
from support.nvml import build

SOURCE = str(Path(checks.__file__).parents[5])
BAD = "n3"
GPUS = 4
Eval = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """One fault of one node.

    Attributes:
        name: of the test.
        rule: which must be named.
        evals: the protocol.
        inject: does it to the node.
        words: of the evidence.
        gpus: of each node.
        alone: whether it would hide other faults of its node, or wait for longer than they do.
    """

    name: str
    rule: str
    evals: tuple[Eval, ...]
    inject: Callable[[SimulatedNode], object]
    words: tuple[str, ...] = ()
    gpus: int = 0
    alone: bool = False

    @property
    def touches(self) -> set[str]:
        """What it changes of its node: two faults of one vetting have nothing in common."""
        return {"memory" if one["type"] in ("host.memory", "host.inventory") else one["type"] for one in self.evals}


def together(faults: list[Fault]) -> list[list[Fault]]:
    """Put faults into few vettings, each of different checks of one node."""
    groups: list[list[Fault]] = []
    for fault in faults:
        for group in groups:
            alike = not fault.alone and not group[0].alone and fault.gpus == group[0].gpus
            if alike and not any(fault.touches & other.touches for other in group):
                group.append(fault)
                break
        else:
            groups.append([fault])
    return groups


def ask(kind: str, **parameters: Any) -> Eval:
    return {"name": kind, "type": kind, **parameters}


def gpu_fault(
    name: str,
    rule: str,
    kind: str,
    inject: Callable[[Any], object],
    *words: str,
    alone: bool = False,
    **parameters: Any,
) -> Fault:
    """A fault that NVML tells of; `inject` gets the node's GPUs."""
    return Fault(name, rule, (ask(kind, **parameters),), lambda node: inject(node.gpus), words, GPUS, alone)


def xid_fault(number: int) -> Fault:
    def inject(node: SimulatedNode) -> None:
        write_kmsg(node.host.root, [(2.0, "eth0: link up"), (1.0, xid_line("0000:12:00", number))])

    return Fault(
        f"xid {number}", f"xid.{number}", (ask("gpu.xid"),), inject, ("GPU 2 (GPU-", f"XID {number}"), gpus=GPUS
    )


def answer(lanes: list[dict[str, Any]], **more: Any) -> str:
    """A Python on PATH that gives a recorded answer of a program that measures GPUs."""
    done = {
        "engine": "torch",
        "dtype": "bf16",
        "size": 8192,
        "checked_size": 4096,
        "expected": "00000000000000aa",
        **more,
    }
    return f"cat > /dev/null\nprintf '%s\\n' '{json.dumps({'done': {**done, 'lanes': lanes}})}'"


def lanes(*speeds: float, wrong: int | None = None) -> list[dict[str, Any]]:
    """Lanes of GPUs with these speeds in FLOP/s or bytes/s, of which the one with the number `wrong` errs."""
    return [
        {
            **{
                "device": index,
                "uuid": f"GPU-{index:08x}",
                "model": "NVIDIA H100 80GB HBM3",
                "windows": 50,
                "products": 40,
            },
            **{"median": speed, "best": 1.01 * speed, "worst": 0.98 * speed, "wrong": 2 if index == wrong else 0},
            "checksum": "00000000000000ab" if index == wrong else "00000000000000aa",
        }
        for index, speed in enumerate(speeds)
    ]


def measured(name: str, rule: str, kind: str, body: str, *words: str) -> Fault:
    """A fault that a measurement of GPUs shows; the other nodes measure what is usual."""
    return Fault(name, rule, (ask(kind),), lambda node: node.tool("python3", body), words, GPUS, alone=True)


HEALTHY_GEMM = answer(lanes(620e12, 624e12, 618e12, 622e12))
HEALTHY_MEMORY = answer(lanes(2.7e12, 2.71e12, 2.7e12, 2.69e12), size_bytes=1 << 30, threads=1)
SMI = "echo 'GPU 0: NVIDIA H100 80GB HBM3'"

FAULTS = [
    gpu_fault(
        "hot GPU", "gpu.hot", "gpu.temperature", lambda gpus: gpus.device(1, temperature=93), "GPU 1 (GPU-", "93"
    ),
    gpu_fault("GPU hotter than its peers", "gpu.hot", "gpu.temperature", lambda g: g.device(1, temperature=70), "70"),
    gpu_fault(
        "uncorrectable ECC errors",
        "gpu.ecc-uncorrectable",
        "gpu.ecc",
        lambda gpus: gpus.device(2, ecc_uncorrectable=3),
        "GPU 2 (GPU-",
        "3 uncorrectable",
    ),
    gpu_fault(
        "row remap failed",
        "gpu.row-remap-failed",
        "gpu.ecc",
        lambda gpus: gpus.device(0, remap_failure=1),
        "GPU 0 (GPU-",
    ),
    gpu_fault(
        "row remap pending",
        "gpu.row-remap-pending",
        "gpu.ecc",
        lambda gpus: gpus.device(3, remap_pending=1),
        "GPU 3 (GPU-",
    ),
    gpu_fault(
        "missing GPU",
        "gpu.missing",
        "gpu.inventory",
        lambda gpus: gpus.system(count=3),
        "3 GPUs, expected 4",
        gpus_expected=4,
        nvidia_smi=False,
        alone=True,
    ),
    gpu_fault(
        "fewer GPUs than the peers",
        "gpu.missing",
        "gpu.inventory",
        lambda gpus: gpus.system(count=3),
        nvidia_smi=False,
        alone=True,
    ),
    gpu_fault(
        "wrong model",
        "gpu.wrong-model",
        "gpu.inventory",
        lambda gpus: gpus.device(1, name="NVIDIA A100-SXM4-80GB"),
        "GPU 1 (GPU-",
        "NVIDIA A100-SXM4-80GB",
        model="H100",
        nvidia_smi=False,
    ),
    gpu_fault(
        "throttled GPU",
        "gpu.throttled",
        "gpu.throttle",
        lambda gpus: gpus.device(0, throttle_reasons=0x8),
        "GPU 0 (GPU-",
    ),
    gpu_fault(
        "foreign process",
        "gpu.foreign-process",
        "gpu.residue",
        lambda gpus: gpus.process(1, 4711, 1 << 30),
        "GPU 1 (GPU-",
        "4711",
    ),
    gpu_fault(
        "used memory",
        "gpu.memory-in-use",
        "gpu.residue",
        lambda gpus: gpus.device(2, memory_used=9 << 30),
        "GPU 2 (GPU-",
    ),
    *(xid_fault(number) for number in (48, 79)),
    Fault(
        "NVLink down",
        "nvlink.down",
        (ask("gpu.nvlink", seconds="0.1s"),),
        lambda node: node.gpus and node.gpus.link(2, 7, active=0),
        ("GPU 2 (GPU-", "7"),
        gpus=GPUS,
    ),
    gpu_fault(
        "PCIe at a lower generation",
        "pcie.downgraded",
        "gpu.pcie",
        lambda gpus: gpus.device(3, pcie_generation=3, utilization_gpu=90),
        "GPU 3 (GPU-",
        "generation 3 of 5",
    ),
    gpu_fault(
        "PCIe with fewer lanes",
        "pcie.downgraded",
        "gpu.pcie",
        lambda gpus: gpus.device(3, pcie_width=8),
        "8 of 16 lanes",
    ),
    gpu_fault("lost GPU", "gpu.lost", "gpu.ecc", lambda gpus: gpus.error("*", 15, device=1), "GPU 1", alone=True),
    gpu_fault(
        "NVML of another version",
        "nvml.mismatch",
        "gpu.ecc",
        lambda gpus: gpus.error("nvmlInitWithFlags", 18),
        "ersion",
        alone=True,
    ),
    gpu_fault(
        "NVML closed to us on one node",
        "access.denied",
        "gpu.ecc",
        lambda gpus: gpus.error("nvmlInitWithFlags", 4),
        alone=True,
    ),
    Fault(
        "NVML that hangs",
        "check.hung",
        (ask("gpu.ecc", deadline="1s"),),
        lambda node: node.gpus and node.gpus.hang("nvmlInitWithFlags"),
        ("did not end within 1 s",),
        gpus=GPUS,
        alone=True,
    ),
    Fault(
        "nvidia-smi missing",
        "nvidia-smi.missing",
        (ask("gpu.inventory", nvidia_smi=True),),
        lambda node: (node.folder / "bin" / "nvidia-smi").unlink(),
        ("nvidia-smi is not on PATH",),
        gpus=GPUS,
    ),
    Fault(
        "nvidia-smi hanging",
        "nvidia-smi.hanging",
        (ask("gpu.inventory", nvidia_smi=True, deadline="2s"),),
        lambda node: node.tool("nvidia-smi", "exec sleep 600"),
        ("nvidia-smi", "did not answer in time"),
        gpus=GPUS,
        alone=True,
    ),
    measured(
        "slow node",
        "node.slow",
        "gpu.gemm",
        answer(lanes(620e12, 470e12, 618e12, 622e12)),
        "470 TFLOP/s is below 0.93 x",
    ),
    measured(
        "wrong bits of a GEMM",
        "gemm.wrong-bits",
        "gpu.gemm",
        answer(lanes(620e12, 624e12, 618e12, 622e12, wrong=3)),
        "GPU 3 (GPU-00000003): 2 of 40 products have wrong bits",
    ),
    measured(
        "processor or library that kills a measurement",
        "check.crashed",
        "gpu.gemm",
        "cat > /dev/null; kill -SEGV $$",
        "ended by SIGSEGV",
    ),
    measured(
        "slow memory",
        "memory.slow",
        "gpu.memory_bandwidth",
        answer(lanes(2.7e12, 2.71e12, 1.9e12, 2.69e12), size_bytes=1 << 30, threads=1),
        "1.9 TB/s is below 0.9 x",
    ),
    measured(
        "torch missing",
        "torch.missing",
        "gpu.gemm",
        f'exec {sys.executable} -S -I "$@"',
        "torch cannot be imported by",
    ),
    Fault(
        "link errors growing",
        "link.errors",
        (ask("link.errors", seconds="1s"),),
        lambda node: growing(node, "mlx5_0", "symbol_error"),
        ("mlx5_0/1: symbol_error +",),
        alone=True,
    ),
    Fault(
        "link down",
        "link.down",
        (ask("link.state"),),
        lambda node: node.host.infiniband("mlx5_0", state="1: DOWN", physical="2: Polling"),
        ("mlx5_0/1 is down: DOWN, Polling",),
    ),
    Fault(
        "link at a lower rate than the peers'",
        "link.downgraded",
        (ask("link.state"),),
        lambda node: node.host.infiniband("mlx5_0", rate="100 Gb/sec (2X HDR)"),
        ("link mlx5_0/1: ACTIVE, LinkUp, 100 Gbit/s here, ACTIVE, LinkUp, 200 Gbit/s on 3 of 4 nodes",),
    ),
    Fault(
        "another driver",
        "fingerprint.differs",
        (ask("host.fingerprint"),),
        lambda node: node.host.nvidia_driver("535.183.01"),
        ("nvidia_driver: 535.183.01 here, 550.54.15 on 3 of 4 nodes",),
    ),
    Fault(
        "another kernel",
        "fingerprint.differs",
        (ask("host.fingerprint"),),
        lambda node: node.host.write("proc/sys/kernel/osrelease", "5.14.0-362.el9"),
        ("kernel: 5.14.0-362.el9 here",),
    ),
    Fault(
        "another environment",
        "environment.differs",
        (ask("host.environment", same=["NCCL_SOCKET_IFNAME"]),),
        lambda node: node.env.update(NCCL_SOCKET_IFNAME="eth0"),
        ("NCCL_SOCKET_IFNAME: eth0 here, hsn0 on 3 of 4 nodes",),
    ),
    Fault(
        "clock that is ahead",
        "clock.skew",
        (ask("host.clock"),),
        lambda node: node.env.update(faulty(library_of_faults(node), clock_ahead_s=2.0)),
        ("ahead of the median of 4 nodes",),
        alone=True,
    ),
    Fault(
        "clock off its time server",
        "clock.skew",
        (ask("host.clock"),),
        lambda node: node.tool("chronyc", chrony("0.312000 seconds slow")),
        ("312 ms behind its time server, says chrony",),
    ),
    Fault(
        "clock that nobody keeps",
        "clock.unsynchronized",
        (ask("host.clock", synchronized=True),),
        lambda node: node.tool("chronyc", "echo 'Leap status     : Not synchronised'"),
        ("no time server keeps the clock right",),
    ),
    Fault(
        "full disk",
        "storage.full",
        (ask("storage.free", paths=["/mnt"]),),
        lambda node: elsewhere(node, "mount -t tmpfs -o size=1m none /mnt && head -c 1030000 /dev/zero > /mnt/big"),
        ("/mnt: ", "5.0% needed"),
        alone=True,
    ),
    Fault(
        "disk without inodes",
        "storage.full",
        (ask("storage.free", paths=["/mnt"]),),
        lambda node: elsewhere(node, "mount -t tmpfs -o nr_inodes=3 none /mnt && touch /mnt/1 /mnt/2"),
        ("/mnt: 0 of 3 files (inodes) left",),
        alone=True,
    ),
    Fault(
        "file system that is read-only",
        "storage.missing",
        (ask("storage.mount", paths=["/mnt"]),),
        lambda node: elsewhere(node, "mount -t tmpfs -o ro none /mnt"),
        ("/mnt", "is mounted read-only"),
        alone=True,
    ),
    Fault(
        "slow storage",
        "storage.slow",
        (ask("storage.read", bytes="16MiB", max_seconds="4s", min_ratio=0.0001),),
        lambda node: node.env.update(faulty(library_of_faults(node), read_pause_s=1.5)),
        ("needed",),
        alone=True,
    ),
    Fault(
        "hanging storage",
        "storage.hanging",
        (ask("storage.mount", paths=["/mnt"], patience="0.5s", writable=False),),
        lambda node: node.prefix.extend([*ELSEWHERE, sys.executable, "-m", "support.hosts.hanging", "/mnt"]),
        ("/mnt", "hangs: no answer within 0.5 s"),
        alone=True,
    ),
    Fault(
        "process in state D",
        "process.stuck",
        (ask("host.processes", stuck="0.3s"),),
        lambda node: node.host.process(4711, "rank", state="D", user=1234, place="nfs_wait_bit_killable"),
        ("rank (pid 4711, user 1234) has been stuck in the kernel (state D) in nfs_wait_bit_killable",),
    ),
    Fault(
        "low memory",
        "memory.low",
        (ask("host.memory", min_bytes="100MB"),),
        lambda node: node.host.memory(available_kb=50_000),
        ("needed",),
    ),
    Fault(
        "broken memory",
        "memory.uncorrected",
        (ask("host.edac"),),
        lambda node: node.host.memory_module("mc0", 1, uncorrected=1),
        ("mc0 dimm1 (P0_DIMM_B1): 1 uncorrected errors",),
    ),
    Fault(
        "missing memory",
        "inventory.differs",
        (ask("host.inventory"),),
        lambda node: node.host.memory(total_kb=197_000_000),
        ("memory_gib: ",),
    ),
    Fault(
        "check that crashes",
        "check.crashed",
        (ask("odd.py:Odd"),),
        lambda node: node.env.update(ODD="crash"),
        ("ended by SIGKILL",),
    ),
    Fault(
        "check that dies of a bug",
        "check.crashed",
        (ask("odd.py:Odd"),),
        lambda node: node.env.update(ODD="die"),
        ("ended by SIGSEGV",),
    ),
    Fault(
        "check that hangs",
        "check.hung",
        (ask("odd.py:Odd", deadline="3s"),),
        lambda node: node.env.update(ODD="hang"),
        ("did not end within", "odd.py"),
        alone=True,
    ),
    Fault(
        "command that is not there",
        "command.missing",
        (ask("host.commands", commands=["site-tool"]),),
        lambda node: (node.folder / "bin" / "site-tool").unlink(),
        ("site-tool is not on PATH",),
    ),
]

# A check of a person's own, which does what the node's variable ODD says.
ODD = """
import os, signal, time
from cordee.systems.vetting.node.checks import Check

class Odd(Check):
    name = "odd"
    title = "Is anything odd?"

    def run(self, parameters, context):
        if context.env.get("ODD") == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if context.env.get("ODD") == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if context.env.get("ODD") == "hang":
            time.sleep(600)
        return self.result("pass", "nothing is odd")
"""
ELSEWHERE = ["unshare", "--map-root-user", "--mount"]


def elsewhere(node: SimulatedNode, preparation: str) -> None:
    """Have the node's processes see other file systems than the rest of this machine."""
    node.prefix.extend([*ELSEWHERE, "sh", "-c", f'{preparation}; exec "$@"', "sh"])


def chrony(offset: str) -> str:
    return f"echo 'System time     : {offset} of NTP time'; echo 'Leap status     : Normal'"


def library_of_faults(node: SimulatedNode) -> Path:
    return build_faults(node.folder)


def growing(node: SimulatedNode, device: str, counter: str) -> threading.Event:
    """Let a counter of a port grow for as long as the test runs."""
    ended = threading.Event()

    def run() -> None:
        count = 100
        while not ended.wait(0.05):
            count += 3
            node.host.infiniband(device, **{counter: count})

    threading.Thread(target=run, daemon=True).start()
    return ended


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@contextmanager
def allocation(folder: Path, library: Path, gpus: int = 0, count: int = 4, tasks: int = 1) -> Iterator[SimulatedNodes]:
    """Healthy nodes with one InfiniBand port each, a clock that is kept right, and recorded answers of their GPUs."""
    nodes = SimulatedNodes(folder, count=count, gpus=gpus, library=library, tasks=tasks)
    for node in nodes.nodes.values():
        node.host.infiniband("mlx5_0")
        write_kmsg(node.host.root, [(3.0, "eth0: link up")])
        node.env["NCCL_SOCKET_IFNAME"] = "hsn0"
        node.tool("chronyc", chrony("0.000010 seconds slow"))
        node.tool("nvidia-smi", SMI)
        if gpus:
            node.host.write("dev/nvidia0", "")
        node.tool("site-tool", "exit 0")
        for index in range(gpus):
            assert node.gpus is not None
            node.gpus.links(index)
    (nodes.shared / "odd.py").write_text(ODD)
    try:
        yield nodes
    finally:
        nodes.kill()


def assert_only(vetted: Vetted, bad: list[str], code: int = 3) -> None:
    """The vetting leaves these nodes out, and calls all others healthy."""
    assert vetted.code == code, vetted.errors or vetted.document
    assert vetted.document["exclude"] == bad
    others = {node["node"]: node["verdict"] for node in vetted.document["nodes"] if node["node"] not in bad}
    assert set(others.values()) == {"healthy"}, vetted.document
    assert {code for codes in vetted.codes.values() for code in codes} == {vetted.code}


# They differ in a line of the table only, which `tests/systems/vetting/checks/test_gpu_xid.py` goes through.
MORE_XIDS = [xid_fault(number) for number in (63, 64, 74, 94, 95, 119, 120)]
VETTINGS = [*together(FAULTS), *(pytest.param([fault], marks=pytest.mark.campaign) for fault in MORE_XIDS)]


@pytest.mark.parametrize(
    "faults", VETTINGS, ids=lambda group: "+".join(fault.name.replace(" ", "-") for fault in group)
)
@pytest.mark.usefixtures("real")
def test_the_right_node_and_rule_are_named_for(faults: list[Fault], tmp_path: Path, library: Path) -> None:
    evals = [one for fault in faults for one in fault.evals]
    with allocation(tmp_path, library, faults[0].gpus) as nodes:
        for node in nodes.nodes.values():
            if evals[0]["type"] == "gpu.gemm":
                node.tool("python3", HEALTHY_GEMM)
            if evals[0]["type"] == "gpu.memory_bandwidth":
                node.tool("python3", HEALTHY_MEMORY)
        ended = [fault.inject(nodes[BAD]) for fault in faults]
        try:
            vetted = nodes.vet(*evals)
        finally:
            for one in ended:
                if isinstance(one, threading.Event):
                    one.set()
    assert_only(vetted, [BAD])
    named = vetted.rules(BAD)
    for fault in faults:
        assert fault.rule in named, vetted.node(BAD)
        for words in fault.words:
            assert words in named[fault.rule]
        # Each by itself leaves the node out.
        found = [one for one in vetted.node(BAD)["results"] if (one.get("rule") or {}).get("id") == fault.rule]
        assert {one["status"] for one in found} <= {"fail", "unknown"}, found
    assert BAD in vetted.document["reason"]


# A check that waits until the test has done what it has to do meanwhile.
WAITING = ask("command", command=["sh", "-c", "touch here; until [ -e ../shared/go ]; do sleep 0.05; done"])


def wait_for(what: Callable[[], bool]) -> None:
    wait_until(what)


def all_wait(nodes: SimulatedNodes) -> None:
    """Wait until the check runs on every node."""
    wait_for(lambda: all((node.folder / "here").exists() for node in nodes.nodes.values()))


def go(nodes: SimulatedNodes) -> None:
    (nodes.shared / "go").touch()


def test_a_node_whose_process_is_killed_meanwhile_is_silent(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        nodes.start(WAITING)
        all_wait(nodes)
        nodes.signal(BAD, signal.SIGKILL)
        go(nodes)
        vetted = nodes.finish()
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert vetted.node(BAD)["verdict"] == "unknown"
    assert "node.silent" in vetted.rules(BAD)


def test_a_node_that_freezes_meanwhile_is_silent_and_holds_nobody(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        nodes.start(WAITING, deadline="10s")
        all_wait(nodes)
        nodes.signal(BAD, signal.SIGSTOP)
        go(nodes)
        vetted = nodes.finish()
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "node.silent" in vetted.rules(BAD)
    assert vetted.document["seconds"] <= 60


@pytest.mark.usefixtures("real")
def test_a_rank_that_dies_meanwhile_is_named(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, tasks=2) as nodes:
        nodes.start(WAITING)
        all_wait(nodes)
        nodes.signal(BAD, signal.SIGKILL, local=1)
        go(nodes)
        vetted = nodes.finish()
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "1 of its 2 tasks do not answer: 1 (" in vetted.rules(BAD)["rank.missing"]


@pytest.mark.usefixtures("real")
def test_a_rank_that_never_starts_is_named(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, tasks=2) as nodes:
        nodes[BAD].prefix += ["sh", "-c", 'test "$CORDEE_VET_LOCAL_RANK" = 1 && exit 9; exec "$@"', "sh"]
        vetted = nodes.vet(ask("host.memory"), deadline="10s")
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "1 (never came)" in vetted.rules(BAD)["rank.missing"]


@pytest.mark.usefixtures("real")
def test_a_node_that_the_network_does_not_reach_is_silent(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        nodes[BAD].prefix += ["unshare", "--map-root-user", "--net"]
        vetted = nodes.vet(ask("host.memory"), deadline="12s")
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "node.silent" in vetted.rules(BAD)


def test_two_bad_nodes_are_both_named_with_their_own_faults(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, GPUS) as nodes:
        nodes["n2"].host.infiniband("mlx5_0", state="1: DOWN", physical="2: Polling")
        gpus = nodes[BAD].gpus
        assert gpus is not None
        gpus.device(1, ecc_uncorrectable=1)
        vetted = nodes.vet(ask("link.state"), ask("gpu.ecc"))
    assert_only(vetted, ["n2", BAD])
    assert set(vetted.rules("n2")) == {"link.down"}
    assert set(vetted.rules(BAD)) == {"gpu.ecc-uncorrectable"}


def test_most_nodes_bad_alike_blames_nobody_and_aborts(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, GPUS) as nodes:
        for name in ("n1", "n2", "n4"):
            gpus = nodes[name].gpus
            assert gpus is not None
            gpus.device(0, temperature=95)
        vetted = nodes.vet(ask("gpu.temperature"))
    assert (vetted.code, vetted.document["verdict"], vetted.document["exclude"]) == (4, "abort", [])
    (confused,) = vetted.document["confused"]
    assert (confused["check"], confused["nodes"]) == ("gpu.temperature", ["n1", "n2", "n4"])
    assert "bad" not in {node["verdict"] for node in vetted.document["nodes"]}


def test_most_nodes_with_broken_memory_abort_and_are_named(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        for name in ("n1", "n2", "n4"):
            nodes[name].host.memory_module("mc0", 0, uncorrected=1)
        vetted = nodes.vet(ask("host.edac"))
    assert (vetted.code, vetted.document["exclude"]) == (4, ["n1", "n2", "n4"])
    assert {rule for name in ("n1", "n2", "n4") for rule in vetted.rules(name)} == {"memory.uncorrected"}


@pytest.mark.usefixtures("real")
def test_a_kernel_log_that_is_closed_everywhere_is_unavailable_and_excludes_nobody(
    tmp_path: Path, library: Path
) -> None:
    with allocation(tmp_path, library, GPUS) as nodes:
        for node in nodes.nodes.values():
            (node.host.root / "dev/kmsg").unlink()
        vetted = nodes.vet(ask("gpu.xid"), ask("host.memory"))
    assert (vetted.code, vetted.document["exclude"]) == (0, [])
    (unavailable,) = vetted.document["unavailable"]
    assert (unavailable["check"], len(unavailable["nodes"])) == ("gpu.xid", 4)
    assert set(vetted.rules(BAD)) == {"kernel-log.closed"}


@pytest.mark.usefixtures("real")
def test_a_kernel_log_that_is_closed_on_one_node_leaves_it_out(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, GPUS) as nodes:
        (nodes[BAD].host.root / "dev/kmsg").unlink()
        vetted = nodes.vet(ask("gpu.xid"), ask("host.memory"))
    assert_only(vetted, [BAD])
    assert "kernel-log.closed" in vetted.rules(BAD)


@pytest.mark.usefixtures("real")
def test_no_driver_anywhere_is_not_healthy(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        vetted = nodes.vet(ask("gpu.ecc"), ask("host.memory"))
    assert (vetted.code, vetted.document["exclude"]) == (4, [])
    assert vetted.document["unavailable"][0]["check"] == "gpu.ecc"


@pytest.mark.usefixtures("real")
def test_a_node_without_its_driver_is_left_out(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library, GPUS) as nodes:
        nodes[BAD].env["LD_LIBRARY_PATH"] = ""
        vetted = nodes.vet(ask("gpu.ecc"))
    assert_only(vetted, [BAD])
    assert "gpu.library-missing" in vetted.rules(BAD)


def stays_stuck(pid: int) -> bool:
    """Whether the same process below `pid` is stuck for a while: any is for a moment while it starts."""
    first = stuck_below(pid)
    time.sleep(0.3)
    return bool(first) and stuck_below(pid) == first


@pytest.mark.usefixtures("real")
def test_a_process_that_is_really_stuck_in_the_kernel_is_named(tmp_path: Path, library: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    with allocation(tmp_path / "nodes", library) as nodes:
        nodes[BAD].env["CORDEE_HOST_ROOT"] = "/"
        # It asks a file system that never answers, and is not one of the vetting's processes.
        hanging = [
            *ELSEWHERE,
            sys.executable,
            "-m",
            "support.hosts.hanging",
            str(mount),
            "stat",
            "-f",
            str(mount),
        ]
        started = subprocess.Popen(
            hanging, env={**os.environ, "PYTHONPATH": SOURCE}, start_new_session=True, stdout=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: stays_stuck(started.pid))
            (pid,) = stuck_below(started.pid)
            vetted = nodes.vet(ask("host.processes", stuck="0.3s"))
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    assert vetted.document["exclude"] == [BAD]
    assert f"stat (pid {pid}, user " in vetted.rules(BAD)["process.stuck"]


def stuck_below(group: int) -> list[int]:
    """Return the processes of a process group that are in state D."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] == "D" and words[2] == str(group):
            found.append(int(stat.parent.name))
    return found


# How often a node may send 64 KiB: speeds that do not depend on what else this machine does.
USUAL_S, SLOW_S = 0.01, 0.03
PAIRS = ask("pair.bandwidth", payload="64KiB", seconds="2s", rounds=3)


def address(name: str) -> str:
    return f"127.0.0.{name[1:]}"


def paced(nodes: SimulatedNodes, slow: dict[str, list[str]]) -> None:
    """Give each node an address and a speed; `slow` names the peers to which a node's link is slow."""
    library = build_faults(nodes.folder)
    for node in nodes.nodes.values():
        peers = [address(peer) for peer in slow.get(node.name, [])]
        faults = faulty(
            library, own_address=address(node.name), send_pause_s=USUAL_S, slow_peers=peers, slow_pause_s=SLOW_S
        )
        node.env.update(faults)


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_a_node_that_is_slow_with_everybody_is_named(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        paced(nodes, {BAD: ["n1", "n2", "n4"]})
        vetted = nodes.vet(PAIRS)
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "pair.slow" in vetted.rules(BAD)
    assert vetted.document["links"] == []


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_a_link_between_two_nodes_is_named_and_neither_node_is_left_out(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        paced(nodes, {"n2": ["n3"], "n3": ["n2"]})
        vetted = nodes.vet(PAIRS)
    assert (vetted.code, vetted.document["exclude"]) == (0, [])
    assert [sorted(link["nodes"]) for link in vetted.document["links"]] == [["n2", "n3"]]
    assert "link.slow" in vetted.rules("n2")
    assert "link.slow" in vetted.rules("n3")


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_a_node_that_reaches_the_conductor_but_no_peer_is_named(tmp_path: Path, library: Path) -> None:
    with allocation(tmp_path, library) as nodes:
        nodes[BAD].env.update(faulty(build_faults(tmp_path), cut_off="cordee.systems.vetting.node.checks"))
        vetted = nodes.vet(ask("pair.bandwidth", seconds="0.2s", min_ratio=0.01))
    assert (vetted.code, vetted.document["exclude"]) == (3, [BAD])
    assert "pair.partitioned" in vetted.rules(BAD)


def test_the_page_about_faults_names_every_rule_that_is_tested() -> None:
    page = (Path(__file__).parents[4] / "docs" / "vetting-faults.md").read_text()
    rules = {fault.rule for fault in FAULTS if not fault.rule.startswith("xid.")}
    assert not [rule for rule in rules if f"`{rule}`" not in page]
