"""What resolving an EDF of ten levels costs, beside what reading its ten files as TOML costs, each pair one after the other.

python benchmarks/environment_resolve.py --mounts 20 --variables 20 --times 200
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from cordee.systems.environments.edf import resolve

LEVELS = 10
HOST = {"HOME": "/users/me", "SCRATCH": "/scratch/me", "PATH": "/usr/bin:/bin"}


def write_levels(folder: Path, mounts: int, variables: int) -> list[Path]:
    """Write level-0.toml to level-9.toml, each on top of the next."""
    paths = [folder / f"level-{level}.toml" for level in range(LEVELS)]
    for level, path in enumerate(paths):
        lines = [f'base_environment = "./level-{level + 1}.toml"'] if level + 1 < LEVELS else ['image = "ubuntu:24.04"']
        entries = ",\n".join(f'    "${{SCRATCH}}/{level}/{index}:/in/{level}/{index}:ro"' for index in range(mounts))
        lines += [f"mounts = [\n{entries}\n]", "[env]"]
        lines += [f'NAME_{level}_{index} = "${{HOME}}/{index}:${{PATH}}"' for index in range(variables)]
        lines += ["[annotations]", f'com.hooks.level_{level}.enabled = "true"']
        path.write_text("\n".join(lines) + "\n")
    return paths


def seconds(call: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mounts", type=int, default=20, help="in each of the files")
    parser.add_argument("--variables", type=int, default=20, help="in each of the files")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--starts", type=int, default=10, help="of the command, beside a bare interpreter")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_levels(folder, options.mounts, options.variables)
        command = [sys.executable, "-m", "cordee.faces.cli", "env", "resolve", str(paths[0]), "--json"]

        def run(argv: list[str]) -> None:
            subprocess.run(argv, cwd=folder, env={**os.environ, **HOST}, check=True, stdout=subprocess.DEVNULL)

        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "ten files, tomllib alone": (options.times, lambda: [tomllib.loads(path.read_text()) for path in paths]),
            "resolve": (options.times, lambda: resolve(str(paths[0]), cwd=folder, variables=HOST)),
            "resolve, with every origin": (
                options.times,
                lambda: resolve(str(paths[0]), cwd=folder, variables=HOST).origins,
            ),
            "python -c pass": (options.starts, lambda: run([sys.executable, "-c", "pass"])),
            "cordee env resolve --json": (options.starts, lambda: run(command)),
        }
        found: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(options.times):
            for name, (times, call) in calls.items():
                if turn < times:
                    found[name].append(seconds(call))
    print(f"Ten levels, {options.mounts} mounts and {options.variables} variables in each file.\n")
    print("| what | median ms | fastest ms | calls |\n|---|---|---|---|")
    for name, values in found.items():
        print(f"| {name} | {statistics.median(values) * 1e3:.2f} | {min(values) * 1e3:.2f} | {len(values)} |")


if __name__ == "__main__":
    main()
