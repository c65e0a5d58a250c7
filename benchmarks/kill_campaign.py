"""What campaigns of kills share: their options, runs by seeds whose weights must be those of an undisturbed one, and a file of results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[["int | None"], "dict[str, Any]"]


def options(about: str | None, kills: int, results: str) -> argparse.ArgumentParser:
    """Return the options of a campaign.

    Args:
        about: its module's documentation.
        kills, results: what is meant without these options.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=kills, help="at least so many, those that the file has included")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--slurm", type=int, default=0, metavar="NODES")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further run after so long")
    parser.add_argument("--results", type=Path, default=Path(results))
    return parser


def campaign(run: Run, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run trainings until enough was killed; return what happened in each, also those that the file has.

    Args:
        run: makes one, undisturbed where the seed is None; `killed`, `weights`, `wrong` and `seed` are in what it returns.
    """
    text = given.results.read_text() if given.results.exists() else ""
    done: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    began, expected = time.monotonic(), run(None)
    print(f"undisturbed: {expected}", file=sys.stderr, flush=True)
    seed = max([given.seed - 1, *(one["seed"] for one in done)])
    while sum(len(one["killed"]) for one in done) < given.kills and time.monotonic() - began < given.seconds:
        seed += 1
        one = run(seed)
        if one["weights"] != expected["weights"]:
            one["wrong"].append(f"weights {one['weights']}, not {expected['weights']}")
        done.append(one)
        print(json.dumps(one), file=sys.stderr, flush=True)
        with given.results.open("a") as results:
            results.write(json.dumps(one) + "\n")
    return done


def seeds_of(wrong: list[dict[str, Any]]) -> str:
    """Return how many runs were not right, and their seeds."""
    seeds = [one["seed"] for one in wrong if one["wrong"]]
    return f"{len(seeds)}{f': seeds {seeds}' if seeds else ''}"
