"""One supervisor and 10,000 simulated agents with 10 ranks each: what a start, a failure of all ranks and a second of training cost.

    python benchmarks/scale.py --agents 10000 --per-node 10

The supervisor is the real one, in a process of its own, on a run's folder; it only counts what it does besides. The agents are
connections over the loopback, many in each of a few processes, which speak the real protocol with the real sessions: they pass
checks, tell ports, "start" their ranks, send samples, and at one moment have all ranks fail; the next attempt finishes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import multiprocessing
import os
import pstats
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cordee import wire
from cordee.control.agent.uplink import Uplink
from cordee.control.supervisor import supervisor as supervising
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.timing import passes
from cordee.core.errors import WireError
from cordee.machine.processes.parent import die_with_parent
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.telemetry.node.blocklog import encode_grid, encode_schema
from cordee.wire import messages
from cordee.wire.messages import FROM_SUPERVISOR, decode
from support.made.journal import made_plan

METRICS = [{"name": f"metric_{index}_ratio", "unit": "ratio", "source": "simulated"} for index in range(8)]
RUN = "scale-20260101T000000Z-test"
TROUBLE = "NCCL error: remote process exited or there was a network error"
FREE_FILES = 200
MEASURED = 100
FRAME_BYTES = 24  # of a frame, without header and body
CONNECTING = 24
TICK_S = 0.05


def write_plan(folder: RunFolder, agents: int, per_node: int, missing: int = 0, lost_s: float = 60.0) -> None:
    """Write the plan of a run with so many nodes and ranks; it can do without the agents that are `missing`."""
    layout = SimpleNamespace(nodes=agents, per_node=per_node, sizes={"tp": 1, "pp": 1})
    plan = made_plan(folder, "scale", cast(Any, SimpleNamespace(layout=layout))).document()
    step = plan["steps"][0]
    step["tasks"]["argv"] = ["true"]
    step["request"]["min_nodes"] = agents - missing
    step["vet"]["deadline_s"] = 600.0
    plan["sampling"]["gpus"] = "none"
    plan["timeouts"].update(lost_s=lost_s, lease_s=0.8 * lost_s)
    folder.plan.write_text(json.dumps(plan))


# The supervisor, and what is counted of it


class Counted:
    """What the process did since the last time that somebody asked."""

    def __init__(self, file: Path, profiled: bool) -> None:
        self._file, self._number = file, 0
        self._profile = cProfile.Profile() if profiled else None
        self._forget()

    def _forget(self) -> None:
        self.fsyncs = self.callbacks = self.collections = self.most_in_a_pass = self._in_pass = 0
        self.longest = self.longest_cpu = (0.0, "")
        self.slow: Counter[str] = Counter()
        self.pass_s = self.pass_cpu_s = self.collecting_s = 0.0
        self._passed, self._passed_cpu = 0.0, time.thread_time()
        self.cpu_s = time.process_time()
        self.loop_cpu_s = time.thread_time()

    def callback(self, handle: Any, run: Callable[[Any], None]) -> None:
        """Run one callback of the loop, and keep the longest."""
        began, began_cpu = time.perf_counter(), time.thread_time()
        run(handle)
        took, took_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
        self.callbacks += 1
        self._in_pass += 1
        self._passed += took
        if took > self.longest[0]:
            self.longest = (took, name_of(handle))
        if took_cpu > self.longest_cpu[0]:
            self.longest_cpu = (took_cpu, name_of(handle))
        if took_cpu > TICK_S:
            self.slow[name_of(handle)] += 1

    def passed(self) -> None:
        """The loop has run all that was ready, and looks for more."""
        cpu_s = time.thread_time()
        self.most_in_a_pass, self._in_pass = max(self.most_in_a_pass, self._in_pass), 0
        self.pass_s, self._passed = max(self.pass_s, self._passed), 0.0
        self.pass_cpu_s, self._passed_cpu = max(self.pass_cpu_s, cpu_s - self._passed_cpu), cpu_s

    def tell(self, *_: Any) -> None:
        """Write it down, and begin anew."""
        status = Path("/proc/self/status").read_text()
        peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        names = (
            "fsyncs",
            "callbacks",
            "most_in_a_pass",
            "collections",
            "longest",
            "longest_cpu",
            "slow",
            "pass_s",
            "pass_cpu_s",
            "collecting_s",
        )
        said = {name: getattr(self, name) for name in names}
        said.update(peak_bytes=peak, cpu_s=time.process_time() - self.cpu_s)
        said.update(loop_cpu_s=time.thread_time() - self.loop_cpu_s)
        path = self._file.with_suffix(f".{self._number}")
        path.with_suffix(".part").write_text(json.dumps(said))
        path.with_suffix(".part").replace(path)
        if self._profile is not None:
            self._profile.disable()
            with self._file.with_suffix(f".{self._number}.profile").open("w") as out:
                pstats.Stats(self._profile, stream=out).sort_stats("tottime").print_stats(45)
            self._profile = cProfile.Profile()
        self._number += 1
        self._forget()
        if self._profile is not None:
            self._profile.enable()

    def watch(self) -> None:
        """Begin to count."""
        run, once, fsync = asyncio.Handle._run, asyncio.BaseEventLoop._run_once, os.fsync  # type: ignore[attr-defined]
        began = [0.0]

        def counted_fsync(descriptor: int) -> None:
            self.fsyncs += 1
            fsync(descriptor)

        def looked(loop: Any) -> None:
            self.passed()
            once(loop)

        def collected(phase: str, _: Any) -> None:
            if phase == "start":
                began[0] = time.perf_counter()
            else:
                self.collections += 1
                self.collecting_s = max(self.collecting_s, time.perf_counter() - began[0])

        asyncio.Handle._run = lambda handle: self.callback(handle, run)  # type: ignore[attr-defined,method-assign,assignment]
        asyncio.BaseEventLoop._run_once = looked  # type: ignore[attr-defined]
        os.fsync = counted_fsync
        gc.callbacks.append(collected)
        signal.signal(signal.SIGUSR2, self.tell)
        if self._profile is not None:
            self._profile.enable()


def supervise(folder: str, file: str, a_pass: str, profiled: bool) -> int:
    """Be the supervisor of a run, and count; without the driver, its keeper, it would start a real one with all of its agents."""
    die_with_parent()
    passes.CONNECTIONS_A_PASS = int(a_pass)
    Counted(Path(file), profiled).watch()
    sys.argv = ["supervisor", "--folder", folder]
    return supervising.main()


def name_of(handle: Any) -> str:
    """Return what a callback of the loop does: of a task the function that it was in, or would go on with."""
    task = getattr(handle._callback, "__self__", None)
    return repr(task if isinstance(task, asyncio.Task) else handle)[:300]


# The agents


class Simulated:
    """One agent, over the real session; what it has is said to the others of its process."""

    def __init__(self, name: str, per_node: int, notes: Notes, interval_s: float) -> None:
        self.name, self.per_node, self.notes, self._interval_s = name, per_node, notes, interval_s
        self.schema, self._record = encode_schema(name, "node", 1.0, [name], METRICS)
        self.samples = self.stored = 0
        self._ranks = range(0)
        self._attempt = 0
        self._doings: dict[type, Callable[[Any, bytes], None]] = {
            messages.Checks: self._check,
            messages.Port: lambda ask, _: self.uplink.news(messages.FreePorts(ask.id, (20001, 20002), "")),
            messages.Clock: lambda ask, _: self.uplink.news(messages.Time(ask.id, time.time())),
            messages.Clear: lambda *_: self.uplink.news(messages.Cleared()),
            messages.Lease: lambda lease, _: self.uplink.renew(lease),
            messages.Ranks: self._start,
            messages.Stop: lambda *_: self.end(None, "SIGKILL", "stopped"),
            messages.Ack: self._stored,
        }

    async def connect(self, folder: RunFolder) -> None:
        """Connect, and be welcomed: from one address only so many strangers are let in at once."""
        self.uplink = Uplink(48.0, 1.0, print)
        place = wire.read_rendezvous(folder.rendezvous)
        who = (place.address, place.port, place.token, "agent", self.name)
        while True:
            try:
                connection = await wire.connect(
                    *who, epoch=place.epoch, on_message=self._message, on_close=self._closed, timeout=60
                )
                break
            except (TimeoutError, OSError, WireError):
                self.notes.counts["refused connections"] += 1
                await asyncio.sleep(0.3)
        self._greet(connection)

    def meet(self, connection: wire.Connection) -> None:
        """Go on with a connection that is there."""
        self.uplink = Uplink(48.0, 1.0, print)
        connection.on_message, connection.on_close = self._message, self._closed
        self._greet(connection)

    def _greet(self, connection: wire.Connection) -> None:
        self.uplink.connected(connection)
        self.uplink.greet(messages.Hello(1, 1, 1, "h", "3", messages.Slots(), 0, 0, ()))

    def _closed(self, connection: wire.Connection, error: WireError | None) -> None:
        self.uplink.closed()
        self.notes.gone(str(error) if error is not None else "")

    def _message(self, connection: wire.Connection, document: dict[str, Any], body: bytes) -> None:
        message = decode(document, FROM_SUPERVISOR)
        self.notes.said(document, body)
        if isinstance(message, messages.Welcome):
            self.uplink.welcome(message, document)
            self.uplink.say(messages.Telemetry(None, ()), self._record)
            self.notes.welcomed()
        elif self.uplink.take(document, body) and type(message) in self._doings:
            self._doings[type(message)](message, body)

    def _stored(self, ack: messages.Ack, _: bytes) -> None:
        self.stored = ack.sequence + 1

    def _check(self, asked: messages.Checks, _: bytes) -> None:
        about = {"status": "pass", "value": 1, "unit": None, "threshold": None, "evidence": "simulated", "seconds": 0.0}
        names = [(one.get("name") or one["check"], one["check"]) for one in asked.request["checks"]]
        lines = [json.dumps({"name": name, "check": check, **about}).encode() for name, check in names]
        self.uplink.news(messages.ChecksOutput(asked.id), b"\n".join(lines) + b"\n")
        self.uplink.news(messages.ChecksDone(asked.id, 0, None, "exited", ""))

    def _start(self, order: messages.Ranks, body: bytes) -> None:
        first = order.node_rank * order.ranks_per_node
        self._attempt, self._ranks = order.attempt, range(first, first + order.ranks_per_node)
        self.notes.ordered(order.attempt)
        started = tuple(messages.StartedRank(rank, 1) for rank in self._ranks)
        self.uplink.news(messages.RanksStarted(order.attempt, started))

    def end(self, code: int | None, name: str | None, reason: str) -> None:
        """Have all its ranks end."""
        ranks, self._ranks = self._ranks, range(0)
        words = TROUBLE if code else None
        ended = tuple(messages.EndedRank(rank, code, name, reason, 1.0, words) for rank in ranks)
        if ended:
            self.uplink.news(messages.RanksEnded(self._attempt, ended))

    async def beat(self) -> None:
        """Send a sample each interval, and signs of life."""
        await asyncio.sleep(hash(self.name) % 1000 / 1000 * self._interval_s)
        while self.uplink.connection is not None:
            if self._interval_s and self._ranks:
                grid = encode_grid(self.schema, time.time(), [0.5] * len(METRICS))
                self.uplink.say(messages.Telemetry(self.samples, ()), grid)
                self.samples += 1
            self.uplink.beat()
            await asyncio.sleep(self._interval_s or 1.0)


class Notes:
    """What the agents of one process have seen, and what of it the driver is told."""

    def __init__(self, agents: int, tell: Callable[[str], None]) -> None:
        self.agents, self._tell = agents, tell
        self.counts: Counter[str] = Counter()
        self._ordered: Counter[int] = Counter()
        self._welcomed = self._gone = 0
        self.bytes: Counter[str] = Counter()
        self.longest: dict[str, int] = {}
        self.over = asyncio.Event()

    def said(self, document: dict[str, Any], body: bytes) -> None:
        """A message has come; of each kind some are measured."""
        kind = document["t"]
        if self.counts[kind] % MEASURED == 0:
            size = len(body) + len(json.dumps(document, separators=(",", ":"))) + FRAME_BYTES
            self.bytes[kind] += MEASURED * size
            self.longest[kind] = max(self.longest.get(kind, 0), size)
        self.counts[kind] += 1

    def welcomed(self) -> None:
        """One more is there."""
        self._welcomed += 1
        if self._welcomed == self.agents:
            self._tell("there")

    def ordered(self, attempt: int) -> None:
        """One more has got the order to start an attempt's ranks."""
        self._ordered[attempt] += 1
        if self._ordered[attempt] == 1:
            self._tell(f"first {attempt}")
        if self._ordered[attempt] == self.agents:
            self._tell(f"last {attempt}")

    def gone(self, why: str) -> None:
        """A connection has ended."""
        if why:
            self.counts["lost connections"] += 1
            if self.counts["lost connections"] < 4:
                print(f"a connection was lost: {why}", file=sys.stderr)
        self._gone += 1
        if self._gone == self.agents:
            self.over.set()


def moment(pid: int) -> tuple[float, float]:
    """Return the time, and for how many seconds the main thread of a process has had a core."""
    return time.monotonic(), int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def live(
    root: Path, names: list[str], per_node: int, interval_s: float, pid: int, commands: Any, told: Any
) -> None:
    """Live the lives of some agents."""
    loop = asyncio.get_running_loop()
    notes = Notes(len(names), lambda what: told.put((what, moment(pid))))
    agents = [Simulated(name, per_node, notes, interval_s) for name in names]
    free = asyncio.Semaphore(CONNECTING)

    async def come(agent: Simulated) -> None:
        async with free:
            await agent.connect(RunFolder(root))
        await agent.beat()

    beats = [asyncio.ensure_future(come(agent)) for agent in agents]

    def command() -> None:
        at, code = commands.recv()
        loop.call_later(max(0.0, at - time.monotonic()), end_all, code)

    def end_all(code: int) -> None:
        for agent in agents:
            agent.end(code, None, "exited")

    loop.add_reader(commands.fileno(), command)
    await notes.over.wait()
    for beat in beats:
        beat.cancel()
    counts = {"counts": notes.counts, "bytes": notes.bytes, "longest": notes.longest}
    samples = {what: sum(getattr(agent, what) for agent in agents) for what in ("samples", "stored")}
    told.put(("over", {**counts, **samples}))


def client(root: Path, names: list[str], per_node: int, interval_s: float, pid: int, commands: Any, told: Any) -> None:
    """Be one process of agents."""
    die_with_parent()
    gc.disable()
    asyncio.run(live(root, names, per_node, interval_s, pid, commands, told))


# The measurement


class Driver:
    """Leads one run from its first agent to its end.

    Args:
        folder: of the run; with a plan.
        scratch: where the supervisor's counts go.
        options: of the command line.
    """

    def __init__(self, folder: RunFolder, scratch: Path, options: argparse.Namespace) -> None:
        self._folder, self._options = folder, options
        self._counts, self._phases = scratch / "counts", 0
        self._told: Any = multiprocessing.Queue()
        self._heard: dict[str, list[Any]] = {}
        self._pipes: list[Any] = []
        self._clients: list[Any] = []
        command = [sys.executable, __file__, "--supervise", str(folder.root), str(self._counts), str(options.a_pass)]
        with (scratch / "supervisor.log").open("wb") as log:
            self.supervisor = subprocess.Popen(command + ["--profile"] * bool(options.profile), stdout=log, stderr=log)
        self._log = scratch / "supervisor.log"

    def start_agents(self) -> None:
        """Start the processes of agents."""
        names = [f"local-{index}" for index in range(self._options.agents)]
        for index in range(self._options.clients):
            here, there = multiprocessing.Pipe()
            share = names[index :: self._options.clients]
            about = (
                self._folder.root,
                share,
                self._options.per_node,
                self._options.interval,
                self.supervisor.pid,
                there,
                self._told,
            )
            one = multiprocessing.Process(target=client, args=about, daemon=True)
            one.start()
            self._pipes.append(here)
            self._clients.append(one)

    def heard(self, what: str) -> list[Any]:
        """Wait until all processes of agents have said something, and return it."""
        deadline = time.monotonic() + self._options.patience
        while len(self._heard.get(what, [])) < len(self._clients):
            if self.supervisor.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"waited for {what!r}: {self._heard}\n{self._log.read_text()[-3000:]}")
            try:
                said, value = self._told.get(timeout=1.0)
            except Exception:  # nothing was said yet
                continue
            self._heard.setdefault(said, []).append(value)
        return self._heard[what]

    def all_end(self, code: int) -> tuple[float, float]:
        """Have all ranks end at one moment, and return it."""
        at = time.monotonic() + 0.5
        for pipe in self._pipes:
            pipe.send((at, code))
        time.sleep(at - time.monotonic())
        return at, moment(self.supervisor.pid)[1]

    def counted(self) -> dict[str, Any]:
        """Return what the supervisor did since the last time."""
        path = self._counts.with_suffix(f".{self._phases}")
        self._phases += 1
        self.supervisor.send_signal(signal.SIGUSR2)
        while not path.is_file():
            if self.supervisor.poll() is not None:
                raise SystemExit(self._log.read_text()[-3000:])
            time.sleep(0.05)
        said: dict[str, Any] = json.loads(path.read_text())
        return said

    def wait_event(self, name: str, number: int = 1) -> None:
        """Wait until the journal has so many events of a kind."""
        deadline = time.monotonic() + self._options.patience
        wanted = f'"event":"{name}"'.encode()
        while sum(path.read_bytes().count(wanted) for path in self._folder.journal.glob("*.jsonl")) < number:
            if time.monotonic() > deadline or self.supervisor.poll() is not None:
                raise SystemExit(f"waited for {number} {name}\n{self._log.read_text()[-3000:]}")
            time.sleep(0.5)

    def join(self) -> None:
        """Wait for all."""
        for one in self._clients:
            one.join()
        self.supervisor.wait()


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Lead the run, and return what was seen."""
    folder = RunFolder.create(scratch, RUN)
    folder.code.mkdir()
    write_plan(folder, options.agents, options.per_node)
    ranks = options.agents * options.per_node
    client_journal(folder.journal).append("submitted", backend="local", nodes=options.agents, ranks=ranks)
    # This process stands in for the keeper, which the supervisor may call: no real agents are wanted.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    Ownership(folder.control / "keepers").claim()
    driver = Driver(folder, scratch, options)
    while not folder.rendezvous.is_file():
        time.sleep(0.05)
    began = time.monotonic()
    driver.start_agents()
    facts: dict[str, Any] = {"agents": options.agents, "ranks": ranks}
    there = max(driver.heard("there"))
    facts["all agents are there, s"], facts["all agents are there, s of CPU"] = there[0] - began, there[1]
    facts |= since("all are there, then the first order of the ranks", there, min(driver.heard("first 1")))
    facts |= since("all are there, then the last order of the ranks", there, max(driver.heard("last 1")))
    driver.wait_event("rank_started", ranks)
    facts |= of_phase("start", driver.counted())
    time.sleep(options.seconds)
    counted = driver.counted()
    facts |= of_phase("training", counted)
    facts["training: share of a core"] = counted["cpu_s"] / options.seconds
    failed = driver.all_end(1)
    facts |= since("all ranks fail, then the first order of the next attempt", failed, min(driver.heard("first 2")))
    facts |= since("all ranks fail, then the last order of the next attempt", failed, max(driver.heard("last 2")))
    driver.wait_event("rank_started", 2 * ranks)
    facts |= of_phase("failure", driver.counted())
    finished = driver.all_end(0)
    driver.wait_event("ended")
    facts["all ranks end well, then the run has ended, s"] = time.monotonic() - finished[0]
    over = driver.heard("over")
    driver.join()
    return facts | of_messages(over, options.agents) | of_samples(over) | of_journal(folder)


def since(what: str, began: tuple[float, float], then: tuple[float, float]) -> dict[str, Any]:
    """Return the lines of what lies between two moments."""
    return {f"{what}, s": then[0] - began[0], f"{what}, s of the loop's CPU": then[1] - began[1]}


def of_phase(name: str, counted: dict[str, Any]) -> dict[str, Any]:
    """Return the lines of one phase."""
    return {
        f"{name}: longest callback, ms": counted["longest"][0] * 1000,
        f"{name}: longest callback, which": counted["longest"][1],
        f"{name}: longest callback, ms of CPU": counted["longest_cpu"][0] * 1000,
        f"{name}: longest callback, ms of CPU, which": counted["longest_cpu"][1],
        f"{name}: callbacks of more than 50 ms of CPU": str(counted["slow"]),
        f"{name}: longest pass of the loop, ms": counted["pass_s"] * 1000,
        f"{name}: longest pass of the loop, ms of CPU": counted["pass_cpu_s"] * 1000,
        f"{name}: most callbacks in a pass": counted["most_in_a_pass"],
        f"{name}: longest collection of garbage, ms": counted["collecting_s"] * 1000,
        f"{name}: CPU seconds": counted["cpu_s"],
        f"{name}: callbacks": counted["callbacks"],
        f"{name}: fsyncs": counted["fsyncs"],
        f"{name}: peak memory, MB": counted["peak_bytes"] / 1e6,
    }


def of_messages(over: list[dict[str, Any]], agents: int) -> dict[str, Any]:
    """Return how many messages and bytes each agent got."""
    sums = {what: sum((one[what] for one in over), Counter()) for what in ("counts", "bytes")}
    facts: dict[str, Any] = {"start order with its table, bytes": max(one["longest"].get("ranks", 0) for one in over)}
    for kind, count in sorted(sums["counts"].items()):
        facts[f"messages to an agent: {kind}"] = count / agents
        facts[f"bytes to an agent: {kind}"] = sums["bytes"][kind] / agents
    return facts


def of_samples(over: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many samples were sent and how many are said to be stored."""
    return {f"samples: {what}": sum(one[what] for one in over) for what in ("samples", "stored")}


def of_journal(folder: RunFolder) -> dict[str, Any]:
    """Return what the run's journal says."""
    events = read_journal(folder.journal)
    counts = Counter(event["event"] for event in events)
    size = sum(path.stat().st_size for path in folder.journal.glob("*.jsonl"))
    end = next(event for event in events if event["event"] == "ended")
    facts = {f"journal: {name}": count for name, count in sorted(counts.items())}
    return {**facts, "journal, MB": size / 1e6, "end": f"{end['state']}: {end['text']}"}


def most_agents(wanted: int) -> int:
    """Return how many agents the limit on open files allows: the supervisor holds a descriptor for each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = hard - FREE_FILES
    if most < wanted:
        print(f"only {hard} files may be open: {most} agents instead of {wanted}", file=sys.stderr)
    return min(wanted, most)


def main() -> int:
    """Measure and print a table; exit code 1 when the run did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--per-node", type=int, default=10, help="ranks")
    parser.add_argument("--seconds", type=float, default=20.0, help="of training")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two samples; 0: none")
    parser.add_argument("--clients", type=int, default=2, help="processes of agents")
    parser.add_argument("--a-pass", type=int, default=passes.CONNECTIONS_A_PASS, help="connections that a pass reads")
    parser.add_argument("--patience", type=float, default=400.0, help="longest wait, in seconds")
    parser.add_argument("--profile", metavar="DIR", type=Path, help="leave cProfile's words on the supervisor there")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    options.agents = most_agents(options.agents)
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        try:
            facts = measure(options, Path(scratch))
        finally:
            if options.profile:
                options.profile.mkdir(parents=True, exist_ok=True)
                for path in Path(scratch).glob("*.profile"):
                    (options.profile / path.name).write_text(path.read_text())
    print("| fact | value |\n|---|---|")
    for name, value in facts.items():
        print(f"| {name} | {f'{value:,.2f}' if isinstance(value, float) else value} |")
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1))
    return 0 if facts["end"].startswith("finished") else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--supervise"]:
        sys.exit(supervise(*sys.argv[2:5], profiled="--profile" in sys.argv))
    sys.exit(main())
