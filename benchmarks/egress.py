"""What is counted of a job's egress, by method, beside what a server got; and what counting costs.

    unshare -n sh -c "ip link set lo up; ip addr add 198.51.100.9/32 dev lo; python benchmarks/egress.py [ROUNDS]"

Each round sends as a job does: one long connection, forty short ones, ten that are slow.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

from cordee.systems.egress.node import guard
from cordee.systems.egress.node.counts import SocketCounts

ADDRESS = "198.51.100.9"  # not loopback, where everybody is
JOB = """
import socket, sys, time
def send(size, pause=0.0):
    with socket.create_connection(("198.51.100.9", int(sys.argv[1]))) as one:
        while size > 0:
            one.sendall(b"x" * min(size, 1 << 18)); size -= 1 << 18; time.sleep(pause)
        one.shutdown(socket.SHUT_WR); one.recv(1)
if sys.argv[2]: open(sys.argv[2] + "/cgroup.procs", "w").write("0")
if sys.argv[3] in ("long", "all"): send(400 << 20, 0.002)
if sys.argv[3] in ("short", "all"): [(send(1 << 20), time.sleep(0.05)) for _ in range(40)]
if sys.argv[3] in ("slow", "all"): [send(2 << 20, 0.1) for _ in range(10)]
"""


class Server:
    """Counts what it gets."""

    def __init__(self) -> None:
        self._listening = socket.create_server((ADDRESS, 0))
        self.port, self.bytes = self._listening.getsockname()[1], 0
        self._lock = threading.Lock()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            one, _ = self._listening.accept()
            threading.Thread(target=self._take, args=(one,), daemon=True).start()

    def _take(self, one: socket.socket) -> None:
        with one:
            while data := one.recv(1 << 20):
                with self._lock:
                    self.bytes += len(data)


def one_round(server: Server, kind: str, every_s: float, group: Path | None) -> tuple[float, float | None, float]:
    """Return sampled and nftables bytes over the server's, and the processor time of sampling per second."""
    counts = SocketCounts("bench/none/", alone=False)
    before = server.bytes
    began, cost = time.monotonic(), 0.0
    child = subprocess.Popen([sys.executable, "-c", JOB, str(server.port), str(group or ""), kind])
    while child.poll() is None:
        at = time.thread_time()
        counts.look()
        cost += time.thread_time() - at
        time.sleep(every_s)
    seconds = time.monotonic() - began
    counts.look()
    sent = server.bytes - before
    sampled = counts.by_address[ADDRESS].sent / sent if ADDRESS in counts.by_address else 0.0
    counts.close()
    exact = None
    if group is not None:
        exact = guard.read("bench")["destinations"][ADDRESS][0] / sent
    return sampled, exact, cost / seconds


def main() -> None:
    """Print a table of medians, least and greatest ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = os.geteuid() == 0 and shutil.which("nft") is not None and "--no-nft" not in sys.argv
    tree = Path("/sys/fs/cgroup/unified" if Path("/sys/fs/cgroup/unified").is_dir() else "/sys/fs/cgroup")
    group = tree / f"cordee-bench-{os.getpid()}" if root else None
    server = Server()
    print("| job | look every | sock-diag / server | nft-cgroup / server | sampling, cores |\n|---|---|---|---|---|")
    try:
        for kind in ("long", "short", "slow", "all"):
            for every_s in (0.1, 1.0):
                found = []
                for _ in range(rounds):
                    if group is not None:
                        group.mkdir(exist_ok=True)
                        guard.count("bench", f"/{group.name}")
                    found.append(one_round(server, kind, every_s, group))
                    if group is not None:
                        guard.uncount("bench")
                columns = [told([one[at] for one in found]) for at in (0, 1)]
                cost = median(one[2] for one in found)
                print(f"| {kind} | {every_s} s | {columns[0]} | {columns[1]} | {cost:.4f} |", flush=True)
    finally:
        if group is not None:
            print(json.dumps(guard.listed()), file=sys.stderr)
            group.rmdir()


def told(values: list[float | None]) -> str:
    """Return median, least and greatest."""
    known = [value for value in values if value is not None]
    return f"{median(known):.4f} ({min(known):.4f} to {max(known):.4f})" if known else "not here"


if __name__ == "__main__":
    main()
