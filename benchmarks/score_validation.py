"""The table of a validation as Markdown, with machine and date, for benchmarks/results.

    cordee score validate -o validation
    python benchmarks/score_validation.py validation

Everything is judged again from the recordings: the table says what today's rules say.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cordee.systems.score.validation.conduct import judge_recordings
from cordee.systems.score.validation.judge import WorkloadJudgement, read_document
from cordee.systems.score.validation.table import end_lines


def row(one: WorkloadJudgement) -> str:
    """Return a workload's row."""
    score = "-" if one.score is None else f"{one.score:.1f}"
    measured = [f"{m.band.quantity} {'-' if m.value is None else f'{m.value:.4g}'}" for m in one.bands]
    bounds = ["-" if m.low is None or m.high is None else f"{m.low:.4g}..{m.high:.4g}" for m in one.bands]
    pairs = "; ".join(f"{value} ({bound})" for value, bound in zip(measured, bounds, strict=True))
    return f"| {one.truth.name} | {one.truth.half} | {one.status} | {score} | {one.found} | {pairs} {one.text}|"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    found = judge_recordings(asked.folder)
    first = next(iter(sorted(asked.folder.glob("*/validation.json")))).parent
    place: dict[str, Any] = read_document(first)[1]["place"]
    print("Machine: " + ", ".join(f"{name} {value}" for name, value in place.items() if value) + "\n")
    print("| workload | half | status | score | class | measured (band) |\n|---|---|---|---|---|---|")
    for one in found:
        print(row(one))
    print("\n```" + "\n".join(end_lines(found)) + "\n```")


if __name__ == "__main__":
    main()
