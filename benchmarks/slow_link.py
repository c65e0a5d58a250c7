"""A connection that is slow: whether the kernel's queues show it, and how soon. Needs root, `ip` and `tc`; takes two minutes a trial.

    python benchmarks/slow_link.py [--trials 3] [--rate 2mbit]

Eight network namespaces on one bridge are the nodes. Each sends to its neighbour of a ring, a burst every half second as an all-reduce
does; one veth link is
limited by a token bucket (tc tbf), which holds back what its node sends and its acknowledgements of what the node before it sends. In each namespace the agent's reader looks at connections every two seconds, and
the detector hears its windows of ten seconds. Agents of a local run share one namespace, so that this is not a whole run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cordee.systems.explain.node.slow.links import LinkDetector
from cordee.wire.messages import SlowLink

NODES, WITHIN_S = 8, 100.0
NODE = """
import json, socket, sys, threading, time
from cordee.systems.explain.node.slow_links import SlowLinks
own, peer, burst = sys.argv[1], sys.argv[2], int(sys.argv[3])
server = socket.create_server((own, 29400))
def hear():
    connection, _ = server.accept()
    while connection.recv(1 << 20):
        pass
threading.Thread(target=hear, daemon=True).start()
for _ in range(100):
    try:
        sender = socket.create_connection((peer, 29400), source_address=(own, 0))
        break
    except OSError:
        time.sleep(0.1)
def send():
    while True:
        sender.sendall(bytes(burst))
        time.sleep(0.5)
threading.Thread(target=send, daemon=True).start()
links, now = SlowLinks(), time.monotonic()
while True:
    for _ in range(10):
        links.look(time.monotonic())
        time.sleep(1.0)
    print(json.dumps([list(one) for one in links.taken()]), flush=True)
"""


def run(*argv: str) -> None:
    """Run a command of the system's."""
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def network(slow: int, rate: str) -> Iterator[list[str]]:
    """Make the namespaces, of which one sends slowly; return their names."""
    names, bridge = [f"slow{at}" for at in range(NODES)], "slowbr"
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for at, name in enumerate(names):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"sv{at}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"sv{at}", "master", bridge, "up")
            run("ip", "-n", name, "addr", "add", f"10.219.0.{at + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        if slow >= 0:
            limit = ("root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
            run("ip", "netns", "exec", names[slow], "tc", "qdisc", "add", "dev", "eth0", *limit)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", bridge], check=False, stderr=subprocess.DEVNULL)


def trial(slow: int, rate: str, burst: int) -> tuple[list[str], float]:
    """Return which connections were named, and after how long."""
    addresses = [f"10.219.0.{at + 1}" for at in range(NODES)]
    with network(slow, rate) as names:
        nodes = []
        for at, name in enumerate(names):
            argv = ["-c", NODE, addresses[at], addresses[(at + 1) % NODES], str(burst)]
            command = ["ip", "netns", "exec", name, sys.executable, *argv]
            nodes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        try:
            detector, began = LinkDetector(), time.monotonic()
            detector.begin(names, began)
            while time.monotonic() - began < WITHIN_S:
                for name, node in zip(names, nodes, strict=True):
                    assert node.stdout is not None
                    detector.told(name, [SlowLink(*one) for one in json.loads(node.stdout.readline())])
                if found := detector.look(time.monotonic(), ()):
                    return [f"{one.node} to {one.address}" for one in found], time.monotonic() - began
            return [], WITHIN_S
        finally:
            for node in nodes:
                node.kill()
                node.wait()


def main() -> None:
    """Run the trials and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--rate", default="2mbit")
    parser.add_argument("--burst", type=int, default=2 << 20)
    given = parser.parse_args()
    print("| slowed | named | after | load |\n|---|---|---|---|")
    for number in range(given.trials):
        slow = NODES - 1 - number % (NODES + 1)
        named, after_s = trial(slow, given.rate, given.burst)
        what = f"slow{slow} to 10.219.0.{(slow + 1) % NODES + 1}" if slow >= 0 else "nobody"
        print(f"| {what} | {', '.join(named) or 'nobody'} | {after_s:.0f} s | {os.getloadavg()[0]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
