"""Real Gloo ranks hang in several ways: how long it takes until somebody is named, and whether it is the right one.

`python benchmarks/hangs.py [--trials 3] [--ranks 8] [KIND...]` runs an unmodified script (tests/systems/explain/hanging_train.py) as a
local run of two nodes for each trial. Seconds are those of the day: from the last progress of any rank to the declared hang, less
`after`; and from there to the finding in the journal. Then what the detector costs a supervisor of 10,752 ranks, in CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from cordee.core.units import parse_utc
from cordee.systems.explain.node.hang.detector import HangDetector, HangPolicy
from cordee.wire.messages import RankStand
from support.runs.real_run import LocalRun

SCRIPT = Path(__file__).parents[1] / "tests" / "systems" / "explain" / "hanging_train.py"
KINDS = {
    "stop": "hang-stopped",
    "loop": "hang-gil",
    "fifo": "hang-input",
    "collective": "hang-collective",
    "skip": "hang-collective",
    "sleep": "hang-missing-rank",
}
AFTER_S = 10.0
JOB = """\
name = "hang"
run = "python train.py {kind} 12"
[need]
nodes = 2
ranks_per_node = {per_node}
[vet]
max_load = 1000.0
modules = []
[hang]
after = "{after}s"
[checkpoint]
path = "."
pattern = "saved.pt"
resume = "self"
"""


def trial(kind: str, ranks: int) -> tuple[str, float, float]:
    """Return `right`, `unknown` or what was wrong; seconds to the declaration beyond `after`, and from there to the finding."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        job.mkdir()
        shutil.copy(SCRIPT, job / "train.py")
        (job / "cordee.toml").write_text(JOB.format(kind=kind, per_node=ranks // 2, after=AFTER_S))
        with LocalRun(job, Path(folder) / "runs", reported=True) as run:
            run.wait(lambda state: any(one.rule.startswith("hang-") for one in state.findings), 180)
            (finding, *_) = [one for one in run.state.findings if one.rule.startswith("hang-")]
            told = next(event for event in run.events("finding") if str(event["finding"]["rule"]).startswith("hang-"))
            hang = json.loads((run.folder.root / "hangs" / "1" / "hang.json").read_text())
    declared_s = hang["declared_at"] - hang["since"] - AFTER_S
    named_s = parse_utc(told["time"]) - hang["declared_at"]
    if finding.rule == "hang-unknown":
        return "unknown", declared_s, named_s
    right = finding.rule == KINDS[kind] and finding.evidence["ranks"] == [ranks - 1]
    return "right" if right else f"wrong: {finding.text}", declared_s, named_s


def cost(ranks: int, per_node: int = 4) -> tuple[float, float]:
    """Return CPU seconds that a second of a healthy and of a standing run takes."""
    found = []
    for standing in (False, True):
        detector = HangDetector(HangPolicy())
        detector.begin(ranks)
        detector.started(range(ranks), 0.0)
        began = time.process_time()
        for second in range(1, 21):
            for first in range(0, ranks, per_node):
                own = range(first, first + per_node)
                stands = [RankStand(rank, float(second), 9.0, 1.0, True, "") for rank in own] if standing else []
                detector.told(own, stands, float(second))
            detector.look(float(second))
        found.append((time.process_time() - began) / 20)
    return found[0], found[1]


def main() -> None:
    """Run the trials and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    print(
        "| how it hangs | trials | right | unknown | wrong | declared beyond `after`: median, most | then named: median, most |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        told = [trial(kind, options.ranks) for _ in range(options.trials)]
        words = [word for word, _, _ in told]
        declared, named = ([one[at] for one in told] for at in (1, 2))
        times = [f"{statistics.median(seconds):.1f}, {max(seconds):.1f} s" for seconds in (declared, named)]
        wrong = sum(word.startswith("wrong") for word in words)
        counts = f"{len(told)} | {words.count('right')} | {words.count('unknown')} | {wrong}"
        print(f"| {kind} | {counts} | {times[0]} | {times[1]} |", flush=True)
        for word in words:
            if word.startswith("wrong"):
                print(f"<!-- {kind}: {word} -->")
    healthy, standing = cost(10_752)
    print(
        f"\n10,752 ranks on 2,688 nodes, CPU a second: {1000 * healthy:.1f} ms healthy, {1000 * standing:.1f} ms standing"
    )


if __name__ == "__main__":
    main()
