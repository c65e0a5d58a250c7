"""How long a survey of very many small files takes, beside `find` and `du`.

    python benchmarks/data_survey.py --files 1000000 [--in-a-folder 1000] [--folder DIR] [--rounds 5] [--cold] [--keep]

Makes files of half to three kilobytes, a thousand in a folder (1,000,000: 4.1 GB of blocks on ext4, about 40 s), and measures
everything in turn, so that what else the machine does hits all alike; medians are printed, of the ratios too, which are taken
within a round. CPU seconds are of all processes.
`find -printf '%s\\n'` and `du` ask for the same attributes of each file; the survey also makes histograms of sizes and ages,
counts suffixes, and reads the first bytes of a few samples. `--cold` gives the kernel's caches up before each (needs root).
Memory is the largest resident set of one process; the survey has one main process and its workers.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LONGEST = 3000
SURVEY = (
    "import sys\n"
    "from cordee.systems.data.survey.path_survey import survey\n"
    "workers = int(sys.argv[2]) or None\n"
    "found = survey(sys.argv[1], workers=workers)\n"
    "print(found.files, found.bytes)\n"
)


def make(folder: Path, files: int, in_a_folder: int) -> float:
    """Make the files; return the seconds it took."""
    begin = time.monotonic()
    content = os.urandom(LONGEST)
    for first in range(0, files, in_a_folder):
        inner = folder / f"class-{first // in_a_folder:05}"
        inner.mkdir()
        descriptor = os.open(inner, os.O_RDONLY)
        for number in range(first, min(files, first + in_a_folder)):
            file = os.open(f"{number:08}.jpg", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=descriptor)
            os.write(file, content[: 500 + number * 37 % (LONGEST - 500)])
            os.close(file)
        os.close(descriptor)
    os.sync()
    return time.monotonic() - begin


def measured(argv: list[str], cold: bool) -> tuple[float, float, float]:
    """Run a command; return its seconds, its CPU seconds, and megabytes of the largest process."""
    if cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert child.stdout is not None
    lines = child.stdout.read().count(b"\n")
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or not lines:
        raise SystemExit(f"{argv[0]} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, usage.ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--in-a-folder", type=int, default=1000, metavar="N")
    parser.add_argument("--folder", type=Path, help="where the files are made (default: a temporary folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave the files in --folder for the next time")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="survey-", dir=given.folder))
    folder = (given.folder or scratch) / "files"
    os.environ["XDG_CACHE_HOME"] = str(scratch)
    try:
        if not folder.exists():
            folder.mkdir()
            print(f"made {given.files:,} files in {make(folder, given.files, given.in_a_folder):.1f} s")
        commands = {
            "find -printf '%s\\n'": ["find", str(folder), "-printf", r"%s\n"],
            "du -s": ["du", "-s", str(folder)],
            "survey, 1 process": [sys.executable, "-c", SURVEY, str(folder), "1"],
            "survey": [sys.executable, "-c", SURVEY, str(folder), "0"],
        }
        rounds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for _ in range(given.rounds):
            for name, argv in commands.items():
                rounds[name].append(measured(argv, given.cold))
        first = next(iter(rounds.values()))
        state = "cold" if given.cold else "warm"
        print(f"| {state}, median of {given.rounds} | seconds | CPU s | MB | seconds, beside find | CPU, beside find |")
        print("|---|---|---|---|---|---|")
        for name, found in rounds.items():
            seconds, cpu, megabytes = (statistics.median(column) for column in zip(*found, strict=True))
            beside = [
                statistics.median(each[column] / other[column] for each, other in zip(found, first, strict=True))
                for column in (0, 1)
            ]
            print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {megabytes:.0f} | {beside[0]:.2f} | {beside[1]:.2f} |")
    finally:
        shutil.rmtree(scratch)
        if not given.keep and given.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
