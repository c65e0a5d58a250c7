"""What `cordee topology` costs for a run of 10,752 GPUs: seconds, CPU seconds, memory, and the size of the picture.

The run is made, and so are descriptions of its network in each form. Every case is a process of its own, several times, in turn.

python benchmarks/topology.py [--gpus 10752] [--seconds 600] [--times 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from support.made.runs import MadeRun, write_run

PER_LEAF, PER_GROUP, RAILS, SPINES = 16, 14, 4, 16


def tree(names: list[str]) -> Iterator[str]:
    """Yield a topology.conf: leaves of 16 nodes, groups of 14 leaves, one top."""
    leaves = range(-(-len(names) // PER_LEAF))
    for at in leaves:
        yield f"SwitchName=s{at} Nodes={','.join(names[at * PER_LEAF : (at + 1) * PER_LEAF])}"
    groups = range(-(-len(leaves) // PER_GROUP))
    for at in groups:
        yield f"SwitchName=g{at} Switches=s[{at * PER_GROUP}-{min(len(leaves), (at + 1) * PER_GROUP) - 1}]"
    yield f"SwitchName=top Switches=g[0-{groups[-1]}]"


def blocks(names: list[str]) -> Iterator[str]:
    """Yield a topology.conf with blocks of 16 nodes, and of 64 and 256."""
    for at in range(0, len(names), PER_LEAF):
        yield f"BlockName=b{at // PER_LEAF} Nodes={','.join(names[at : at + PER_LEAF])}"
    yield "BlockSizes=16,64,256"


def yaml(names: list[str]) -> Iterator[str]:
    """Yield a topology.yaml of leaves of 16 nodes below one top."""
    yield "- topology: made\n  cluster_default: true\n  tree:\n    switches:"
    leaves = range(0, len(names), PER_LEAF)
    for at in leaves:
        yield f"    - switch: s{at // PER_LEAF}\n      nodes: {','.join(names[at : at + PER_LEAF])}"
    yield f"    - switch: top\n      children: s[0-{len(leaves) - 1}]"


def fabric(names: list[str]) -> Iterator[str]:
    """Yield what ibnetdiscover would print: four rails, a leaf for each rail and pod of 32 nodes, 16 spines a rail."""
    pods = [names[at : at + 2 * PER_LEAF] for at in range(0, len(names), 2 * PER_LEAF)]
    for rail in range(RAILS):
        for pod, nodes in enumerate(pods):
            yield f'Switch\t64 "S-{rail:04x}0000{pod:08x}"\t\t# "leaf{pod}-rail{rail}" base port 0 lid 1 lmc 0'
            for port, node in enumerate(nodes, 1):
                guid = f"{rail:04x}1000{pod * 2 * PER_LEAF + port:08x}"
                yield f'[{port}]\t"H-{guid}"[1]({guid}) \t\t# "{node} mlx5_{rail}" lid 9 4xNDR'
            for spine in range(SPINES):
                yield f'[{40 + spine}]\t"S-{rail:04x}2000{spine:08x}"[{pod + 1}]\t\t# "spine{spine}-rail{rail}" lid 3 4xNDR'
            yield ""
        for spine in range(SPINES):
            yield f'Switch\t128 "S-{rail:04x}2000{spine:08x}"\t\t# "spine{spine}-rail{rail}" base port 0 lid 1 lmc 0'
            for pod in range(len(pods)):
                yield f'[{pod + 1}]\t"S-{rail:04x}0000{pod:08x}"[{40 + spine}]\t\t# "leaf{pod}-rail{rail}" lid 3 4xNDR'
            yield ""


def measure(argv: list[str]) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and MB of a command at most."""
    began = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10752)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        made = MadeRun(given.gpus, given.seconds)
        # What this process holds would be counted as its children's.
        writer = multiprocessing.get_context("spawn").Process(target=write_run, args=(parent, made))
        writer.start()
        writer.join()
        (run,) = Path(parent).glob("made-*")
        picture = Path(parent) / "place.svg"
        base = [sys.executable, "-m", "cordee.faces.cli", "topology", str(run), "--json"]
        cases: dict[str, list[str]] = {}
        for form in (tree, blocks, yaml, fabric):
            file = Path(parent) / f"{form.__name__}.txt"
            file.write_text("\n".join(form(made.names)) + "\n")
            size = file.stat().st_size / 1000
            cases[f"{form.__name__} ({size:.0f} kB), figures"] = [*base, "--topology", str(file)]
        drawing = [*cases[next(iter(cases))], "--svg", str(picture)]
        cases["tree, picture by pp"] = [*drawing, "--colour", "pp"]
        cases["tree, picture by gpu_power_watts"] = [*drawing, "--colour", "gpu_power_watts"]
        cases["tree, picture by state, filter pp=0,dp=0-99"] = [
            *drawing,
            "--colour",
            "state",
            "--filter",
            "pp=0,dp=0-99",
        ]
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
        sizes: dict[str, float] = {}
        for _ in range(given.times):
            for name, argv in cases.items():
                found[name].append(measure(argv))
                sizes[name] = picture.stat().st_size / 1000 if "picture" in name else 0.0
    print(f"{given.gpus} GPUs on {len(made.names)} nodes, {given.seconds} s; medians of {given.times}")
    print("| case | s | CPU s | MB at most | SVG kB |\n|---|---:|---:|---:|---:|")
    for name, values in found.items():
        wall, cpu, memory = (median(column) for column in zip(*values, strict=True))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} | {f'{sizes[name]:.0f}' if sizes[name] else ''} |")


if __name__ == "__main__":
    main()
