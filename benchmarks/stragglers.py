"""Stragglers among simulated ranks: how many are found, how soon, with which cause, and how many are made up; of real ranks: slow_ranks.py.

    python benchmarks/stragglers.py simulate [--ranks 4096] [--minutes 60]
    python benchmarks/stragglers.py cost

`simulate` draws the work of ranks with TP 4, PP 8 and DP of what is left, step by step, with heavy tails and bursts, and compares
the detector with the rule of NVRx (the fastest rank's median over this rank's below 0.75, on what a rank computes by itself
in a round) and with the time of whole steps (a rank's median over that of all, above 1.02: all ranks of a synchronous training
take equally long). `cost` measures the detector's CPU for 10,752 ranks.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from cordee.core.stats import peers_of
from cordee.systems.explain.node.slow.detector import SlowDetector, SlowOver, SlowRanks
from cordee.wire.messages import KindTimes, RankDigest

NONE = KindTimes(0.0, 0, 0.0, 0.0)


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
    parser.add_argument("what", choices=["simulate", "cost"])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--ranks", type=int, default=4096)
    options = parser.parse_args()
    if options.what == "simulate":
        simulate(options.ranks, options.minutes)
    else:
        cost()


if __name__ == "__main__":
    main()
