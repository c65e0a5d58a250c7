"""What rules cost: `cordee rules run --all` on thousands of runs, and a metric rule beside the lead of a run.

python benchmarks/rules_over_runs.py --runs 3000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.core.findings import Finding
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.systems.rules.node.judge import RuleJudge
from cordee.systems.rules.node.windows import MetricWindows
from cordee.telemetry.node.blocklog import encode_grid, encode_schema

RULE = """version: 1
rules:
- id: site-xid
  text: A GPU has trouble.
  when: {finding: "hardware-*", pattern: 'xid [0-9]+'}
  scope: node
  action: ticket
  next: look
  source: benchmark
  example: {finding: hardware-xid, text: "XID 79"}
  counterexample: {finding: hardware-xid, text: "ECC"}
"""


def make_runs(parent: Path, count: int, events: int) -> None:
    """Write runs with journals of so many events, one finding each, of one of 500 nodes."""
    for number in range(count):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(1_790_000_000 + 600 * number))
        folder = RunFolder.create(parent, f"gpt-{stamp}-aaaa")
        folder.plan.write_text('{"backend": "slurm", "cluster": "alps", "steps": [{"systems": {}}]}')
        wall = lambda at=1_790_000_000 + 600 * number: float(at)  # noqa: E731
        journal = JournalWriter(folder.journal, "supervisor-1", 1, wall=wall)
        placed = [{"node": f"n{number % 500 + at}", "ranks": [at]} for at in range(4)]
        journal.append("attempt_started", durable=False, waits=True, attempt=1, world_size=4, nodes=placed)
        for step in range(events):
            journal.append("checkpoint_seen", durable=False, waits=True, name=f"step-{step}", complete=True)
        evidence = {"nodes": [f"n{number % 500}"], "ranks": [0]}
        finding = Finding("GPU 0: XID 79", "error", "hardware-xid", evidence=evidence)
        journal.append("finding", durable=False, finding=finding.document())


def measured(*words: str) -> dict:
    """Return CPU seconds, wall seconds and peak memory of a command."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "cordee.cli", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    last = process.stdout.read().decode().splitlines()[-1:]
    _, status, usage = os.wait4(process.pid, 0)
    cpu = usage.ru_utime + usage.ru_stime
    wall = time.monotonic() - began
    return {"command": " ".join(words[:2]), "cpu_s": round(cpu, 2), "wall_s": round(wall, 2), "peak_mb": usage.ru_maxrss >> 10,
            "exit": os.waitstatus_to_exitcode(status), "last": last}  # fmt: skip


def beside_the_lead(nodes: int, seconds: int) -> dict:
    """Return what one metric rule costs the supervisor: nodes with 4 ranks each, 40 metrics, a sample a second."""
    when = {"metric": "m7", "statistic": "mean", "over": 60.0, "above": 1e9, "times": 1}
    rule = {"id": "r", "when": when}
    judge = RuleJudge([rule])
    windows = MetricWindows(judge.windows)
    metrics = [{"name": f"m{at}", "unit": "", "source": ""} for at in range(40)]
    bodies = []
    for node in range(nodes):
        schema, record = encode_schema(f"n{node}", "rank", 1.0, list(range(4 * node, 4 * node + 4)), metrics)
        list(windows.take(record))
        bodies.append([encode_grid(schema, 1_790_000_000.0 + at, [1.0] * 160) for at in range(seconds)])
    began = time.process_time()
    for at in range(seconds):
        for body in bodies:
            for of, place, number, value in windows.take(body[at]):
                judge.window(of, place, number, value)
    cpu = time.process_time() - began
    return {
        "ranks": 4 * nodes,
        "cpu_s_per_s": round(cpu / seconds, 4),
        "us_per_value": round(cpu / seconds / nodes / 4 * 1e6, 2),
    }


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--events", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parent, rules = Path(folder) / "runs", Path(folder) / "rules.yaml"
        rules.write_text(RULE)
        rules.chmod(0o644)
        make_runs(parent, options.runs, options.events)
        found = [measured("rules", "run", str(rules), "--all", "--runs", str(parent))]
    print(json.dumps({"runs": options.runs, "events": options.events, "commands": found}, indent=1))
    print(json.dumps([beside_the_lead(nodes, 20) for nodes in (256, 2688)], indent=1))
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB")


if __name__ == "__main__":
    main()
