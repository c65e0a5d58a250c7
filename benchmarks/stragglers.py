"""Stragglers: how many are found, how soon, with which cause, and how many are made up.

    python benchmarks/stragglers.py ranks [--kind stop|quota|none] [--slower 0.2] [--trials 3] [--minutes 5]
    python benchmarks/stragglers.py simulate [--ranks 4096] [--minutes 60]
    python benchmarks/stragglers.py cost

`ranks` runs an unmodified DDP script (tests/systems/explain/straggling_train.py) as a local run of two nodes with four Gloo ranks
each. After two minutes one rank is slowed, by SIGSTOP for a part of every three seconds, or by the quota of a control group
(version 1, for root). `none`: nobody is slowed, and everything that is told is a false alarm.

`simulate` draws the work of ranks with TP 4, PP 8 and DP of what is left, step by step, with heavy tails and bursts, and compares
the detector with the rule of NVRx (the fastest rank's median over this rank's below 0.75, on what a rank computes by itself
in a round) and with the time of whole steps (a rank's median over that of all, above 1.02: all ranks of a synchronous training
take equally long). `cost` measures the detector's CPU for 10,752 ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cordee.core.stats import peers_of
from cordee.systems.explain.node.slow.detector import SlowDetector, SlowOver, SlowRanks
from cordee.wire.messages import KindTimes, RankDigest
from cordee.wire.pulse import FOLDER, SUFFIX, PulseReader
from support.runs.real_run import LocalRun

SCRIPT = Path(__file__).parents[1] / "tests" / "systems" / "explain" / "straggling_train.py"
JOB = """\
name = "slow"
run = "python train.py 1000000 {repeat}"
[need]
nodes = 2
ranks_per_node = 4
[vet]
max_load = 1000.0
modules = []
"""
# Batches are repeated so often: a quota slows only who computes for longer than a period.
REPEAT = {"quota": 64}
BEFORE_S, CALM_S, WITHIN_S = 45.0, 5.0, 60.0
STOP_EVERY_S = 3.0
QUOTA, PERIOD_US, CALIBRATIONS = Path("/sys/fs/cgroup/cpu"), 20_000, 12
NONE = KindTimes(0.0, 0, 0.0, 0.0)


# Real ranks


@contextmanager
def stopped_again_and_again(pid: int, slower: float) -> Iterator[None]:
    """Stop a process for so much of every three seconds that it takes longer by that share."""
    over = threading.Event()
    stopped_s = STOP_EVERY_S * slower / (1 + slower)

    def stop() -> None:
        while not over.wait(STOP_EVERY_S - stopped_s):
            os.kill(pid, signal.SIGSTOP)
            over.wait(stopped_s)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def progress(pid: int) -> tuple[float, int]:
    """Return the processor time of a rank's process, and how many steps it has made."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    folder = next(
        one.partition("=")[2]
        for one in Path(f"/proc/{pid}/environ").read_text().split("\0")
        if one.startswith(f"{FOLDER}=")
    )
    (path,) = Path(folder).glob(f"*-{pid}{SUFFIX}")
    reader = PulseReader(str(path))
    try:
        return used_s, reader.read().optimizer_steps
    finally:
        reader.close()


def step_s(pid: int) -> float:
    """Return how long a step takes now."""
    before = progress(pid)[1]
    time.sleep(10.0)
    return 10.0 / max(1, progress(pid)[1] - before)


class Quota:
    """A control group of its own for a process, which has so much of a core."""

    def __init__(self, pid: int, share: float) -> None:
        told = Path(f"/proc/{pid}/cgroup").read_text().split(":cpu", 1)[1].partition(":")[2].split()[0]
        self._group, self._home = QUOTA / f"cordee-slow-{pid}", QUOTA / told.lstrip("/")
        self._group.mkdir()
        (self._group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        self.has(share)
        for task in os.listdir(f"/proc/{pid}/task"):
            (self._group / "tasks").write_text(task)

    def has(self, share: float) -> None:
        """Give it another share."""
        (self._group / "cpu.cfs_quota_us").write_text(str(max(1000, int(share * PERIOD_US))))

    def throttled_s(self) -> float:
        """Return for how long it was held back."""
        told = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return int(told["throttled_time"]) / 1e9

    def close(self) -> None:
        """Give the process back to where it was."""
        (self._group / "cpu.cfs_quota_us").write_text("-1")
        for task in (self._group / "tasks").read_text().split():
            (self._home / "tasks").write_text(task)
        self._group.rmdir()


def share_for(pid: int, slower: float) -> float:
    """Return the quota that holds a rank back by this share of its own work, found by trying: it depends on who else computes."""
    wanted, share = slower / (1 + slower), 0.5
    quota = Quota(pid, share)
    try:
        for _ in range(CALIBRATIONS):
            before, began = quota.throttled_s(), time.monotonic()
            time.sleep(4.0)
            held = (quota.throttled_s() - before) / (time.monotonic() - began)
            if 0.85 * wanted <= held <= 1.15 * wanted:
                break
            share *= min(1.4, max(0.6, (1 - wanted) / max(0.1, 1 - held) if held > wanted else 0.75))
            quota.has(share)
    finally:
        quota.close()
    return share


@contextmanager
def with_a_quota(pid: int, slower: float) -> Iterator[None]:
    """Hold a process back by the quota of a control group, so that its own work takes longer by that share."""
    share = share_for(pid, slower)
    time.sleep(BEFORE_S)
    quota = Quota(pid, share)
    began = time.monotonic()
    try:
        yield
    finally:
        held = quota.throttled_s() / (time.monotonic() - began)
        print(f"a quota of {share:.0%} of a core held it back for {held:.0%} of the time", flush=True)
        quota.close()


SLOWED = {"stop": stopped_again_and_again, "quota": with_a_quota}


@contextmanager
def training(repeat: int = 1) -> Iterator[LocalRun]:
    """Run the script."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        job.mkdir()
        shutil.copy(SCRIPT, job / "train.py")
        (job / "cordee.toml").write_text(JOB.format(repeat=repeat))
        with LocalRun(job, Path(folder) / "runs", reported=True) as run:
            run.wait(lambda state: len(state.ranks) == 8, 120)
            yield run


def told(run: LocalRun) -> list[dict]:
    """Return what was told of stragglers."""
    found = [event["finding"] for event in run.events("finding")]
    return [one for one in found if one["rule"] in ("straggler-rank", "straggler-node", "straggler-link")]


def trials(kind: str, slower: float, count: int) -> None:
    """Slow one rank after the other of one run, with a pause between, and print what was told of it."""
    with training(REPEAT.get(kind, 1)) as run:
        time.sleep(BEFORE_S)
        before = len(told(run))
        print(f"before: {before} told; step and findings so far: {[one['text'] for one in told(run)]}", flush=True)
        for number in range(count):
            rank = (3 + 5 * number) % 8
            pid = next(one.pid for one in run.state.ranks if one.rank == rank)
            usual_s = step_s(pid)
            with SLOWED[kind](pid, slower):
                before = len(told(run))
                began, found, slowed_s = time.monotonic(), [], 0.0
                while time.monotonic() - began < WITHIN_S and not found:
                    time.sleep(0.5)
                    found = told(run)[before:]
                    if time.monotonic() - began > CALM_S:
                        slowed_s = slowed_s or step_s(pid)
                took = time.monotonic() - began
            right = any(one["evidence"]["ranks"] == [rank] for one in found)
            said = [
                (
                    one["evidence"]["ranks"],
                    one["evidence"]["cause"],
                    one["evidence"].get("how"),
                    one["evidence"].get("slower"),
                )
                for one in found
            ]
            print(
                f"{kind} {slower:.0%}: rank {rank}: {'found' if right else 'not found'} in {took:.0f} s: {said}; "
                f"a step took {slowed_s / usual_s:.2f} times as long",
                flush=True,
            )
            time.sleep(BEFORE_S)
            before = len(told(run))


def undisturbed(minutes: float) -> None:
    """Slow nobody."""
    with training() as run:
        time.sleep(60 * minutes)
        found = told(run)
        print(f"undisturbed: {8 * minutes / 60:.2f} rank-hours, {len(found)} false alarms", flush=True)
        for one in found:
            print("  ", one["text"])


# Simulated ranks


class Simulated:
    """Ranks of a synchronous training, round by round.

    Args:
        world: how many; TP 4, PP 8.
        step_s: of a step without noise.
    """

    def __init__(self, world: int, seed: int = 1, step_s: float = 0.5) -> None:
        self.chance = np.random.default_rng(seed)
        self.world, self.steps = world, int(10 / step_s)
        rank = np.arange(world)
        self.places = {int(one): {"tp": int(one % 4), "pp": int(one // 4 % 8), "dp": int(one // 32)} for one in rank}
        self.nodes = {int(one): f"n{one // 4}" for one in rank}
        # Stages differ in work, and every rank a little for ever: no two chips are alike.
        stage = np.array([1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.05])[rank // 4 % 8]
        self.base = 0.7 * step_s * stage * self.chance.normal(1.0, 0.004, world)
        self.burst = np.zeros(world)
        self.slow = np.ones(world)

    def round(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return what each rank worked and waited in a round in seconds, and how long the round took."""
        chance = self.chance
        # Bursts: each rank once in eight hours, of 5 s on average, 20 s at most, by 10 to 300 %.
        began = chance.random(self.world) < 10 / 28_800
        length = np.minimum(20.0, chance.exponential(5.0, self.world))
        self.burst = np.where(began, length, np.maximum(0.0, self.burst - 10.0))
        part = np.minimum(1.0, self.burst / 10)
        more = 1 + np.where(part > 0, part * (0.1 + 2.9 * chance.random(self.world) ** 3), 0.0)
        work = np.zeros(self.world)
        took = 0.0
        for _ in range(self.steps):
            # A heavy tail: one step in fifty of a rank takes longer, by a Pareto's draw.
            noise = 1 + np.abs(chance.normal(0, 0.02, self.world))
            tail = np.where(chance.random(self.world) < 0.02, 0.05 * chance.pareto(2.5, self.world), 0.0)
            step = self.base * self.slow * more * (noise + np.minimum(tail, 5.0))
            work += step
            took += float(step.max()) + 0.05
        return work, took - work, took

    def digests(self, work: np.ndarray, waits: np.ndarray, took: float, looks: int = 50) -> list[RankDigest]:
        """Return what ranks tell: seconds as five looks a second find them."""
        share = waits / took
        seen = np.clip(share + self.chance.normal(0, 1, self.world) * np.sqrt(share * (1 - share) / looks) / 3, 0, 1)
        return [
            RankDigest(
                rank,
                10.0,
                self.steps,
                KindTimes(10 - 10 * wait, 40, 0.4, 1.0),
                NONE,
                KindTimes(10 * wait, 10, 0.2, 1.0),
                NONE,
                0.0,
                0.0,
                0,
                0.0,
            )
            for rank, wait in enumerate(seen.tolist())
        ]


def simulate(world: int, minutes: float) -> None:
    """Print recall, time to be found and false alarms, of three rules."""
    print(
        "| slower by | ranks | this detector within 1 min | within 5 min | within 10 min | cause wrong | NVRx' rule | time of whole steps |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for slower in (0.05, 0.1, 0.2, 0.5):
        made = Simulated(world, seed=int(1000 * slower))
        detector = SlowDetector()
        detector.begin(made.nodes, peers_of(made.places), 0.0)
        victims = random.Random(3).sample(range(world), 20)
        now, first, works = 0.0, {}, []
        for number in range(12 + 60):
            if number == 12:
                made.slow[victims] = 1 + slower
            work, waits, took = made.round()
            now += 10.0
            detector.told(made.digests(work, waits, took), now)
            for one in detector.look(now):
                if isinstance(one, SlowRanks):
                    for rank in one.ranks:
                        first.setdefault(rank, (now - 120.0, one.cause.kind))
            if number >= 12:
                works.append(work / made.steps)
        found = {rank: first[rank] for rank in victims if rank in first}
        within = [sum(at <= most for at, _ in found.values()) for most in (60, 300, 600)]
        wrong = sum(cause not in ("compute", "unknown") for _, cause in found.values())
        medians = np.median(np.array(works[:6]), axis=0)
        nvrx = int(np.sum(medians.min() / medians[victims] < 0.75))
        print(
            f"| {slower:.0%} | {len(victims)} | {within[0]} | {within[1]} | {within[2]} | {wrong} | {nvrx} | 0 |",
            flush=True,
        )
    made = Simulated(world, seed=99)
    detector = SlowDetector()
    detector.begin(made.nodes, peers_of(made.places), 0.0)
    now, alarms, nvrx = 0.0, [], 0
    recent: list[np.ndarray] = []
    blamed: set[int] = set()
    for _ in range(int(6 * minutes)):
        work, waits, took = made.round()
        now += 10.0
        detector.told(made.digests(work, waits, took), now)
        alarms += [one for one in detector.look(now) if not isinstance(one, SlowOver)]
        recent = [*recent[-5:], work / made.steps]
        medians = np.median(np.array(recent), axis=0)
        below = set(np.flatnonzero(medians.min() / medians < 0.75).tolist())
        nvrx += len(below - blamed)
        blamed = below
    hours = world * minutes / 60
    print(
        f"\nundisturbed, with bursts: {hours:.0f} rank-hours, {len(alarms)} false alarms ({1000 * len(alarms) / hours:.3f} per 1,000 rank-hours), {sum(detector.spikes.values())} spikes counted; NVRx' rule: {nvrx} ({1000 * nvrx / hours:.1f} per 1,000 rank-hours)"
    )
    for one in alarms[:10]:
        print(f"<!-- {one} -->")


def cost(world: int = 10_752, per_node: int = 4) -> None:
    """Print the CPU that a round takes."""
    made = Simulated(world)
    detector = SlowDetector()
    detector.begin(made.nodes, peers_of(made.places), 0.0)
    heard, looked = [], []
    for number in range(60):
        digests = made.digests(*made.round())
        began = time.process_time()
        for first in range(0, world, per_node):
            detector.told(digests[first : first + per_node], 10.0 * number)
        between = time.process_time()
        detector.look(10.0 * (number + 1))
        heard.append(between - began)
        looked.append(time.process_time() - between)
    both = np.mean(heard) + np.mean(looked)
    print(
        f"{world:,} ranks, a round of 10 s: hearing {1000 * np.mean(heard):.1f} ms, judging {1000 * np.mean(looked):.1f} ms, {1000 * max(looked):.1f} ms at most: {both / 10:.3%} of a core"
    )


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ranks", "simulate", "cost"])
    parser.add_argument("--kind", choices=[*SLOWED, "none"], default="stop")
    parser.add_argument("--slower", type=float, default=0.2)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--ranks", type=int, default=4096)
    options = parser.parse_args()
    if options.what == "simulate":
        simulate(options.ranks, options.minutes)
    elif options.what == "cost":
        cost()
    elif options.kind == "none":
        undisturbed(options.minutes)
    else:
        trials(options.kind, options.slower, options.trials)


if __name__ == "__main__":
    main()
