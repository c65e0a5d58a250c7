"""How long the verdict over many nodes takes, a tenth of them silent: prints a Markdown table.

    python benchmarks/vetting_verdict.py [--nodes 1024 4096] [--repeats 5]

Every node answers with 20 results: 12 that pass, 4 speeds and a temperature that are compared, a fingerprint of five facts,
a kernel log that is closed everywhere, and a measured pair test; a hundredth of the nodes has a fault. With our catalogue
of rules.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from random import Random
from typing import Any

from cordee.systems.vetting.node.checks import Result
from cordee.systems.vetting.node.judge.pairs import PairTest
from cordee.systems.vetting.node.judge.verdict import decide
from cordee.systems.vetting.rules import load_rules
from support.hosts.fabric import SimulatedFabric

SILENT_RATIO = 0.1
FAULTY_RATIO = 0.01
PLAIN = [f"host.check{index}" for index in range(12)]
SPEEDS = {"gpu.gemm": 0.93, "gpu.memory_bandwidth": 0.9, "gpu.copy": 0.9, "gpu.allreduce": 0.88}
FINGERPRINT = {
    "kernel": "5.14.21-150500.55.83_13.0.62-cray_shasta_c_64k",
    "driver": "550.54.15",
    "os": "SLES 15.5",
    "ofi": "1.15.2",
    "thp": "always",
}


def answer(node: str, random: Random) -> list[dict[str, Any]] | None:
    """Return what a node reports."""
    if random.random() < SILENT_RATIO:
        return None
    share = 0.7 if random.random() < FAULTY_RATIO else 1.0
    results = [
        Result(name, "pass", value=0, threshold=0, evidence=f"{name} of {node}: nothing found") for name in PLAIN
    ]
    for name, ratio in SPEEDS.items():
        value = share * random.gauss(100, 1)
        devices = [
            {"device": index, "uuid": f"GPU-{node}-{index}", "model": "H200", "rate": value} for index in range(4)
        ]
        compare = [{"kind": "low", "of": "value", "ratio": ratio, "margin": None, "status": "fail"}]
        results.append(Result(name, "pass", value=value, unit="TFLOP/s", facts={"devices": devices}, compare=compare))
    compare = [{"kind": "high", "of": "value", "ratio": None, "margin": 15, "status": "fail"}]
    results.append(Result("gpu.temperature", "pass", value=random.gauss(50, 2), unit="C", compare=compare))
    compare = [{"kind": "same", "of": key, "ratio": None, "margin": None, "status": "fail"} for key in FINGERPRINT]
    results.append(Result("host.fingerprint", "pass", facts=dict(FINGERPRINT), compare=compare))
    closed = f"/dev/kmsg of {node}: Permission denied"
    results.append(Result("gpu.xid", "unknown", evidence=closed, cause="closed"))
    for result in results:
        result.name = result.check
    return [result.document() for result in results]


def main() -> None:
    """Print one row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    rules = load_rules([])
    print(
        f"`{' '.join(['python', *sys.argv])}`, Python {platform.python_version()}, {os.cpu_count()} cores, {len(rules)} rules\n"
    )
    print(
        "| nodes | results | silent | verdict | left out | decide, median | worst | CPU | pair test's judgement, CPU |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count in given.nodes:
        random = Random(count)
        reports = {f"nid{index:06d}": answer(f"nid{index:06d}", random) for index in range(count)}
        test = PairTest([node for node, results in reports.items() if results is not None], str(count))
        SimulatedFabric(seed=count).run(test)
        started = time.process_time()
        outcome = test.outcome()
        pairs_s = time.process_time() - started
        seconds, started_cpu = [], time.process_time()
        for _ in range(given.repeats):
            started = time.perf_counter()
            document = decide({"rules": rules, "baseline": {}}, reports, outcome)
            seconds.append(time.perf_counter() - started)
        cpu_s = (time.process_time() - started_cpu) / given.repeats
        seconds.sort()
        results = sum(len(node["results"]) for node in document["nodes"])
        silent = sum(answered is None for answered in reports.values())
        print(
            f"| {count} | {results} | {silent} | {document['verdict']} | {len(document['exclude'])} | "
            f"{seconds[len(seconds) // 2]:.2f} s | {seconds[-1]:.2f} s | {cpu_s:.2f} s | "
            f"{pairs_s:.2f} s |"
        )


if __name__ == "__main__":
    main()
