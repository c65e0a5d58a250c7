"""Real ranks hang in several ways: how long it takes until somebody is named, and whether it is the right one.

`python benchmarks/hangs.py [--trials 3] [--ranks 8] [--load 0] [--backend gloo] [--keep FOLDER] [KIND...]` runs an unmodified script
(tests/systems/explain/hanging_train.py) as a local run of two nodes for each trial, beside so many processes that compute. Seconds
are those of the day: from the last progress of any rank to the declared hang, less `after`; and from there to the answer that
`cordee show` gives in the end. Then what the detector costs a supervisor of 10,752 ranks, in CPU. `--keep` keeps what was
collected, and the whole run where the answer was not right. With `--backend nccl` the ranks share one GPU;
`kernel` wants TORCH_NCCL_ENABLE_TIMING=1.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    "order": "hang-collective",
    "p2p": "hang-missing-rank",
    "sleep": "hang-missing-rank",
    "loader": "hang-data-loader",
    "save": "hang-checkpoint",
    "teardown": "hang-teardown",
    "kernel": "hang-gpu",
}
# The next call of the rank that left one out is taken for that one, so that it ends before the others.
OF_NCCL = {**KINDS, "skip": "hang-ended"}
AFTER_S, LATE_S, MOST_S = 10.0, 60.0, 180.0
JOB = """\
name = "hang"
run = "python train.py {kind} 12 {backend}"
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


def trial(kind: str, ranks: int, backend: str, keep: Path | None) -> tuple[str, float, float]:
    """Return `right`, or what it was instead; seconds to the declaration beyond `after`, and from there to the answer."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        job.mkdir()
        shutil.copy(SCRIPT, job / "train.py")
        (job / "cordee.toml").write_text(JOB.format(kind=kind, backend=backend, per_node=ranks // 2, after=AFTER_S))
        with LocalRun(job, Path(folder) / "runs", reported=True) as run:
            with suppress(TimeoutError):
                run.wait(lambda state: [one for one in state.findings if one.rule.startswith("hang-")], MOST_S)
                run.wait(lambda state: not any(one.rule == "hang-unknown" for one in state.findings), LATE_S)
            findings = [one for one in run.state.findings if one.rule.startswith("hang-")]
            told = [one for one in run.events("finding") if str(one["finding"]["rule"]).startswith("hang-")]
        found = [(one.rule, one.evidence["ranks"]) for one in findings]
        right = found == [((OF_NCCL if backend == "nccl" else KINDS)[kind], [ranks - 1])]
        if keep is not None:
            for part in ("hangs", "flight") if right else ("",):
                kept, place = run.folder.root / part, keep / f"{kind}-{run.folder.id}" / part
                if kept.exists():
                    shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)
        if not findings:
            return f"unknown: no hang was told within {MOST_S:.0f} s", math.nan, math.nan
        hang = json.loads((run.folder.root / "hangs" / "1" / "hang.json").read_text())
        word = "right"
        if not right:
            word = f"{'unknown' if findings[0].rule == 'hang-unknown' else 'wrong'}: {findings[0].text}"
            word += f" [{run.folder.id}; {'; '.join(hang['notes'])}]"
        word += f" (first: {told[0]['finding']['rule']})" if len(told) > 1 else ""
    declared_s = hang["declared_at"] - hang["since"] - AFTER_S
    return word, declared_s, parse_utc(told[-1]["time"]) - hang["declared_at"]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many processes compute meanwhile."""
    # Sessions of their own: where the kernel shares the processor among sessions (autogroup), they count as little else.
    argv = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    computing = [subprocess.Popen(argv, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in computing:
            process.kill()
            process.wait()


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
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    times_of = "declared beyond `after`: median, most | then named: median, most"
    print(f"| how it hangs | load | trials | right | unknown | wrong | {times_of} |\n|---|---|---|---|---|---|---|---|")
    for kind in options.kinds or [kind for kind in KINDS if kind != "kernel" or options.backend == "nccl"]:
        with busy(options.load):
            told = [trial(kind, options.ranks, options.backend, options.keep) for _ in range(options.trials)]
        words = [word for word, _, _ in told]
        declared, named = ([one[at] for one in told] for at in (1, 2))
        times = [f"{statistics.median(seconds):.1f}, {max(seconds):.1f} s" for seconds in (declared, named)]
        counts = " | ".join(str(sum(word.startswith(one) for word in words)) for one in ("right", "unknown", "wrong"))
        print(f"| {kind} | {options.load} | {len(told)} | {counts} | {times[0]} | {times[1]} |", flush=True)
        for word in words:
            if word != "right":
                print(f"<!-- {kind}: {word} -->", flush=True)
    healthy, standing = cost(10_752)
    print(
        f"\n10,752 ranks on 2,688 nodes, CPU a second: {1000 * healthy:.1f} ms healthy, {1000 * standing:.1f} ms standing"
    )


if __name__ == "__main__":
    main()
