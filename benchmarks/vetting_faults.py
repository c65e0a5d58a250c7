"""Twelve faults through vetnode 0.1.5 and through Cordée: who notices, who hangs, who names the node.

    python -m venv /tmp/vetnode && /tmp/vetnode/bin/pip install vetnode==0.1.5 tabulate
    python benchmarks/vetting_faults.py --vetnode /tmp/vetnode/bin/vetnode

The GPUs are not there: vetnode gets them from a fake nvidia-smi, Cordée from the fake NVML library. Each fault is tried three
times over: vetnode with its own document on one node; Cordée with that same document on one node; and Cordée's protocol `gpu`
(with `gpus_expected: 4` and `nvidia_smi: true`) on four nodes, of which the third has the fault.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import cordee.systems.vetting.protocol
from support.hosts.kernel_log import write_kmsg
from support.hosts.simulated_nodes import SimulatedNode, SimulatedNodes
from support.nvml import FakeGpus, build

LIMIT_S = 20.0
VETNODE_PORT = 29500
GPUS, BAD = 4, "n3"
GPU_EVAL = "vetnode.evaluations.gpu_eval.GPUEval"
NCCL_EVAL = "vetnode.evaluations.nccl_pytorch_eval.NcclPytorchEval"
CHECK_GPU = {"name": "GPUs", "type": GPU_EVAL, "max_temp": 85, "max_used_memory": 0.2}
NCCL = {
    **{"name": "NCCL", "type": NCCL_EVAL, "scheduler": "slurm", "payload": "64 KB", "method": "allreduce"},
    **{"warmup": {"payload": "64 KB", "runs": 1}, "min_bandwidth": "15 GB/s"},
}


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: of the row.
        smi: shell lines of the fake nvidia-smi; None: there is none.
        inject: does it to a simulated node.
        evals: vetnode's document.
        ours: evals of our own protocol, when not those of `gpu`.
        missing: one rank of four never comes.
    """

    name: str
    smi: str | None
    inject: Callable[[SimulatedNode], object]
    evals: tuple[dict[str, Any], ...] = (CHECK_GPU,)
    ours: tuple[dict[str, Any], ...] = ()
    missing: bool = False


def smi(count: int = GPUS, **of_second: int) -> str:
    """Return shell lines that print what nvidia-smi -q prints of these GPUs, the second of them with other values."""
    blocks = []
    for index in range(count):
        values = {"temp": 35, "used": 4, "ecc": 0, **(of_second if index == 1 else {})}
        blocks.append(
            f"GPU 00000000:{16 + index:02X}:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
            f"    Module ID                             : {index}\n"
            f"    FB Memory Usage\n        Total                             : 81559 MiB\n"
            f"        Used                              : {values['used']} MiB\n"
            f"    ECC Errors\n        Volatile\n            DRAM Uncorrectable            : {values['ecc']}\n"
            f"        Retired Pages\n"
            f"    Temperature\n        GPU Current Temp                  : {values['temp']} C\n"
        )
    return f"cat <<'END'\n{''.join(blocks)}END"


def gpus_of(node: SimulatedNode) -> FakeGpus:
    """Return the node's GPUs."""
    assert node.gpus is not None
    return node.gpus


FAULTS = (
    Fault("hot GPU", smi(temp=93), lambda node: gpus_of(node).device(1, temperature=93)),
    Fault("occupied memory", smi(used=40000), lambda node: gpus_of(node).device(1, memory_used=40000 << 20)),
    Fault("nvidia-smi missing", None, lambda node: (node.folder / "bin" / "nvidia-smi").unlink()),
    Fault("no devices", "echo 'No devices were found'; exit 6", lambda node: gpus_of(node).system(count=0)),
    Fault(
        "NVML of another version",
        "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
        lambda node: gpus_of(node).error("nvmlInitWithFlags", 18),
    ),
    Fault("3 of 4 GPUs", smi(count=3), lambda node: gpus_of(node).system(count=3)),
    Fault(
        "ECC and a failed row remap",
        smi(ecc=3),
        lambda node: gpus_of(node).device(1, ecc_uncorrectable=3, remap_failure=1),
    ),
    Fault("hardware slowdown", smi(), lambda node: gpus_of(node).device(1, throttle_reasons=0x8)),
    Fault(
        "Python module missing",
        smi(),
        lambda node: node.tool("python3", 'exec /usr/bin/env -i python3 -S -I "$@"'),
        evals=(CHECK_GPU, NCCL),
        ours=({"name": "modules", "type": "host.modules", "modules": ["numpy"]},),
    ),
    Fault(
        "mistyped check class",
        smi(),
        lambda node: None,
        evals=({**CHECK_GPU, "type": "vetnode.evaluations.gpu_eval.GPUEvl"},),
        ours=({"name": "GPUs", "type": "gpu.temprature"},),
    ),
    Fault("nvidia-smi that hangs", "exec sleep 600", lambda node: node.tool("nvidia-smi", "exec sleep 600")),
    Fault("a rank that never comes", smi(), lambda node: node.prefix.append("false"), missing=True),
)


def shipped() -> list[dict[str, Any]]:
    """Return the evals of the protocol `gpu`, told what the job has asked for."""
    path = Path(cordee.systems.vetting.protocol.__file__).parent / "protocols" / "gpu.yaml"
    evals = yaml.safe_load(path.read_text())["evals"]
    return [
        {**one, "gpus_expected": GPUS, "nvidia_smi": True} if one["type"] == "gpu.inventory" else one for one in evals
    ]


def through_vetnode(fault: Fault, command: Path, folder: Path) -> str:
    """Run vetnode on one node, or with three of four ranks, and return how it ended."""
    tools = folder / "bin"
    tools.mkdir(parents=True)
    bodies = {"scontrol": "echo localhost", **({"nvidia-smi": fault.smi} if fault.smi is not None else {})}
    for name, body in bodies.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    document = folder / "vetnode.yaml"
    top = {"name": "faults", "scheduler": "slurm" if fault.missing else "standalone"}
    document.write_text(yaml.safe_dump({**top, "evals": list(fault.evals)}))
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    env |= {"SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "localhost"}
    wait_for_port()
    began = time.monotonic()
    started = [
        subprocess.Popen(
            [command, "diagnose", "--skip-install", str(document)],
            env={**env, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=(folder / f"{rank}.out").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for rank in range(3 if fault.missing else 1)
    ]
    try:
        code = started[0].wait(LIMIT_S)
        ended = f"{code}, {time.monotonic() - began:.1f} s"
    except subprocess.TimeoutExpired:
        ended = "hangs"
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return ended


def wait_for_port() -> None:
    """Wait until nobody else on this machine holds the one port that vetnode meets at."""
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", VETNODE_PORT))
                return
            except OSError:
                time.sleep(0.2)


def through_cordee(
    fault: Fault, folder: Path, library: Path, count: int, evals: list[dict[str, Any]]
) -> tuple[str, str]:
    """Vet simulated nodes and return how it ended, and what it named."""
    nodes = SimulatedNodes(folder, count=count, gpus=GPUS, library=library)
    for node in nodes.nodes.values():
        node.tool("nvidia-smi", smi())
        write_kmsg(node.host.root, [(3.0, "eth0: link up")])
        for path in ("dev/nvidia0", "dev/nvidiactl"):
            node.host.write(path, "")
        for index in range(GPUS):
            gpus_of(node).links(index)
    fault.inject(list(nodes.nodes.values())[min(2, count - 1)])
    vetted = nodes.vet(*evals, deadline="15s")
    return f"{vetted.code}, {vetted.seconds:.1f} s", named(vetted.document)


def named(document: dict[str, Any]) -> str:
    """Return the nodes that are not healthy with the rules that they fall under, or the error of a document."""
    if "error" in document:
        return str(document["error"]["text"])
    found = []
    for node in document["nodes"]:
        rules = [result["rule"]["id"] for result in node["results"] if result.get("rule")]
        if rules:
            found.append(f"{node['node']}: {', '.join(dict.fromkeys(rules))}")
    return "; ".join(found) or "-"


def allowed_requirements(vetnode: Path) -> list[Any]:
    """Return the first requirements that vetnode's own evaluation of NCCL accepts; it takes no others."""
    where = "import importlib.util as u; print(u.find_spec('vetnode.evaluations').submodule_search_locations[0])"
    folder = subprocess.run(
        [vetnode.with_name("python"), "-c", where], capture_output=True, text=True, check=True
    ).stdout
    source = (Path(folder.strip()) / f"{NCCL_EVAL.split('.')[2]}.py").read_text()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.target) != "requirements":
            continue
        if isinstance(node.annotation, ast.Subscript):
            allowed: list[list[Any]] = list(ast.literal_eval(node.annotation.slice))
            return allowed[0]
    raise SystemExit(f"{folder} is not vetnode 0.1.5")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vetnode", type=Path, required=True, help="the command of vetnode 0.1.5")
    parser.add_argument("--only", help="only faults with this word")
    options = parser.parse_args()
    NCCL["requirements"] = allowed_requirements(options.vetnode)
    print("| fault | vetnode | Cordée, same document | Cordée, `gpu` on 4 nodes | named |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        library = build(Path(name) / "library")
        for index, fault in enumerate(FAULTS):
            if options.only and options.only not in fault.name:
                continue
            folder = Path(name) / str(index)
            theirs = through_vetnode(fault, options.vetnode, folder / "vetnode")
            same, _ = (
                ("-", "") if fault.missing else through_cordee(fault, folder / "same", library, 1, list(fault.evals))
            )
            ours, words = through_cordee(fault, folder / "ours", library, 4, list(fault.ours) or shipped())
            print(f"| {fault.name} | {theirs} | {same} | {ours} | {words} |", flush=True)


if __name__ == "__main__":
    main()
