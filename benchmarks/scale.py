"""One supervisor and 2,700 simulated agents: all connected, one result each, a minute of samples with none lost.

    python benchmarks/scale.py --agents 2700 --seconds 60

The supervisor is the real one, started alone on a plan written by hand. The agents are connections of a few client processes
that speak the real protocol: they answer checks and ports, "start" one rank each, and send one grid of 8 metrics a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cordee import wire
from cordee.errors import WireError
from cordee.runs.blocklog import GRID, encode_grid, encode_schema, iter_records, list_parts, read_blocks
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.supervise.ownership import Ownership

METRICS = [{"name": f"metric_{index}_ratio", "unit": "ratio", "source": "simulated"} for index in range(8)]
NAME = "scale-20260101T000000Z-test"


def plan(folder: RunFolder, agents: int) -> dict[str, Any]:
    """Return a plan for `agents` nodes; connecting and silence have more patience than usual."""
    request = {"nodes": agents, "spare_nodes": 0, "min_nodes": agents, "gpus_per_node": 0, "ranks_per_node": 1}
    request |= {"cpus_per_rank": 1, "memory_bytes": None, "time_s": None, "gpu": None, "scheduler": {}}
    vet = {
        "commands": [],
        "modules": [],
        "min_memory_bytes": 0,
        "min_disk_bytes": 0,
        "max_load_ratio": None,
        "deadline_s": 60.0,
    }
    checkpoint = {"path": str(folder.checkpoints), "pattern": "step-*", "resume": None, "signal": None, "every_s": None}
    step = {
        "name": "main",
        "request": request,
        "tasks": {"argv": ["true"], "env": {}, "path_prepend": [], "launch": "fork", "setup": []},
        "vet": vet,
        "checkpoint": {**checkpoint, "grace_s": 5.0, "ignore": {}, "declared": False},
        "restart": {"retries": 0, "backoff_s": 1.0},
        "segment": {"limit_s": None, "grace_s": 5.0, "max_segments": 1},
    }
    timeouts = {"connect_s": 120.0, "heartbeat_s": 1.0, "lost_s": 60.0, "orphan_s": 60.0, "kill_s": 10.0}
    places = {"job_folder": str(folder.root), "workdir": str(folder.code), "folder": str(folder.root)}
    head = {
        "schema": "cordee.plan/1",
        "run": NAME,
        "name": "scale",
        "backend": "local",
        "cluster": "local",
        "code_digest": "",
    }
    return {**head, **places, "steps": [step], "timeouts": timeouts, "sampling": {"interval_s": 1.0}}


class Simulated:
    """One agent: answers what a real one answers, and samples once a second."""

    def __init__(self, name: str, seconds: int) -> None:
        self.name, self.seconds = name, seconds
        self.schema, self.record = encode_schema(name, "node", 1.0, [name], METRICS)
        self.sent = self.acknowledged = 0
        self.started = asyncio.Event()
        self.rank = -1
        self.attempt = 0

    def message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        """Answer the supervisor."""
        kind = message["t"]
        if kind == "checks":
            for wanted in message["request"]["checks"]:
                result = {"check": wanted["check"], "status": "pass", "value": 1, "unit": None, "threshold": None}
                line = json.dumps({**result, "evidence": "simulated", "seconds": 0.0}).encode() + b"\n"
                connection.send({"t": "checks_output", "id": message["id"]}, line)
            done = {"t": "checks_done", "id": message["id"], "code": 0, "signal": None, "reason": "exited", "text": ""}
            connection.send(done)
        elif kind == "port":
            connection.send({"t": "port", "ports": [20001, 20002], "text": ""})
        elif kind == "ranks":
            self.rank, self.attempt = message["node_rank"], message["attempt"]
            connection.send({"t": "rank_started", "attempt": self.attempt, "rank": self.rank, "pid": 1})
            self.started.set()
        elif kind == "ack":
            self.acknowledged = message["sequence"] + 1

    async def connect(self, folder: RunFolder) -> wire.Connection:
        """Connect, again and again as a real agent does: from one address only so many strangers are let in at once."""
        place = wire.read_rendezvous(folder.rendezvous)
        while True:
            try:
                return await wire.connect(
                    place.address,
                    place.port,
                    place.token,
                    "agent",
                    self.name,
                    epoch=place.epoch,
                    on_message=self.message,
                    on_close=lambda connection, error: None,
                    timeout=60,
                )
            except (TimeoutError, OSError, WireError):
                await asyncio.sleep(0.5)

    async def live(self, folder: RunFolder) -> tuple[int, int]:
        """Connect, sample, end the rank; returns (samples sent, samples acknowledged)."""
        connection = await self.connect(folder)
        hello = {"t": "hello", "incarnation": 1, "pid": 1, "start_ticks": 1, "host": "h", "python": "3", "cores": 1}
        connection.send({**hello, "epoch": 0, "attempt": 0, "ranks": {}})
        message = {"t": "telemetry", "sequence": None, "cursors": {}, "steps": []}
        connection.send(message, self.record)
        await self.started.wait()
        await asyncio.sleep(hash(self.name) % 1000 / 1000)
        for _ in range(self.seconds):
            grid = encode_grid(self.schema, time.time(), [0.5] * len(METRICS))
            connection.send({**message, "sequence": self.sent}, grid)
            self.sent += 1
            await asyncio.sleep(1.0)
        while self.acknowledged < self.sent and not connection.closed:
            await asyncio.sleep(0.2)
        end = {
            "t": "rank_exit",
            "attempt": self.attempt,
            "rank": self.rank,
            "status": "ended",
            "code": 0,
            "signal": None,
        }
        connection.send({**end, "reason": "exited", "seconds": 1.0, "message": None})
        await connection.wait_closed()
        return self.sent, self.acknowledged


def client(root: Path, names: list[str], seconds: int, results: Any) -> None:
    """Live the lives of some agents in one process."""

    async def live() -> list[tuple[int, int]]:
        return await asyncio.gather(*(Simulated(name, seconds).live(RunFolder(root)) for name in names))

    results.put(asyncio.run(live()))


def main() -> int:
    """Measure and print a table; exit code 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2700)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder.create(Path(scratch), NAME)
        folder.code.mkdir()
        folder.plan.write_text(json.dumps(plan(folder, options.agents)))
        client_journal(folder.journal).append("submitted", backend="local", nodes=options.agents, ranks=options.agents)
        Ownership(
            folder.control / "keepers"
        ).claim()  # this process stands in for the keeper: no real agents are wanted
        started = time.monotonic()
        with (Path(scratch) / "supervisor.log").open("wb") as log:
            command = [sys.executable, "-m", "cordee.supervise.supervisor", "--folder", str(folder.root)]
            supervisor = subprocess.Popen(command, stdout=log, stderr=log)
        while not folder.rendezvous.is_file():
            time.sleep(0.05)
        names = [f"local-{index}" for index in range(options.agents)]
        results: Any = multiprocessing.Queue()
        shares = [names[index :: options.clients] for index in range(options.clients)]
        workers = [
            multiprocessing.Process(target=client, args=(folder.root, share, options.seconds, results))
            for share in shares
        ]
        for worker in workers:
            worker.start()
        while not any(event["event"] == "ended" for event in read_journal(folder.journal)):
            if supervisor.poll() is not None:
                print((Path(scratch) / "supervisor.log").read_text()[-2000:])
                break
            time.sleep(1)
        fields = Path(f"/proc/{supervisor.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        status = Path(f"/proc/{supervisor.pid}/status").read_text()
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        total_s = time.monotonic() - started
        counts = [count for _ in workers for count in results.get()]
        stored = sum(
            kind == GRID
            for _, _, path in list_parts(folder.telemetry)
            for _, _, payload in read_blocks(path)
            for kind, _ in iter_records(payload)
        )
        events = read_journal(folder.journal)
        supervisor.wait()
        for worker in workers:
            worker.join()
    at = {event["event"]: event["mono"] for event in reversed(events)}
    sent = sum(count for count, _ in counts)
    facts = {
        "agents connected": sum(event["event"] == "node_connected" for event in events),
        "results": sum(event["event"] == "node_verdict" and event["verdict"] == "healthy" for event in events),
        "seconds until all were connected and vetted": round(at["nodes_chosen"] - at["supervisor_started"], 1),
        "samples sent": sent,
        "samples stored": stored,
        "samples lost": sent - stored,
        "supervisor's peak memory, MB": round(peak / 1e6),
        "supervisor's CPU, share of one core": round(cpu_s / total_s, 2),
        "seconds in all": round(total_s, 1),
    }
    print("| fact | value |\n|---|---|")
    for name, value in facts.items():
        print(f"| {name} | {value} |")
    return 0 if stored == sent == options.agents * options.seconds else 1


if __name__ == "__main__":
    sys.exit(main())
