"""Data sets of many small files: packing, reading, feeding and resuming, beside bare reads and beside the peers.

    python benchmarks/data.py --peers /path/to/python --folder /scratch/bench > results/DATE-data.md

Measured, each in a process of its own, in rounds whose order is turned round every time; medians, and medians of the ratios
within a round. CPU seconds are those of whole processes. One data set: files of log-normal size, mean 50.7 kB, of random bytes,
1,000 classes. `--only pack,warm` takes parts, `--files 2000` makes it small. About 8 GB of disk at 50,000 files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
PEERS = ("webdataset", "litdata", "mosaicml", "arrow", "array_record")
# The same library read in a second way, told apart: only it hands out many samples in one call.
BATCHED = "arrow_batches"
PARTS = ("pack", "warm", "cold", "feed", "resume")
MEAN_BYTES, SIGMA, CLASSES = 50_700, 0.6, 1000

Measured = dict[str, Any]
Measurement = Callable[[int], "Measured | None"]


class Bench:
    """The folder, the options, and what is known to be missing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder.absolute()
        self.plain, self.packed = self.folder / "plain", self.folder / "packed"
        self.list = self.folder / "files.txt"
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    @property
    def bytes(self) -> int:
        """All bytes of the files."""
        return sum(os.path.getsize(line.split("\t")[0]) for line in self.list.read_text().splitlines())

    def make(self) -> None:
        """Write the files unless they are there."""
        if self.list.exists() and len(self.list.read_text().splitlines()) == self.options.files:
            return
        shutil.rmtree(self.plain, ignore_errors=True)
        random = np.random.default_rng(7)
        sizes = random.lognormal(np.log(MEAN_BYTES) - SIGMA**2 / 2, SIGMA, self.options.files).astype(int) + 1
        lines = []
        for label in range(CLASSES):
            (self.plain / f"class-{label:04d}").mkdir(parents=True)
        for number, size in enumerate(sizes.tolist()):
            label = number % CLASSES
            path = self.plain / f"class-{label:04d}" / f"{number:06d}.bin"
            path.write_bytes(random.bytes(size))
            lines.append(f"{path}\t{label}")
        self.list.write_text("\n".join(lines) + "\n")
        os.sync()

    def warm_files(self) -> None:
        """Bring the files into the page cache."""
        for line in self.list.read_text().splitlines():
            Path(line.split("\t")[0]).read_bytes()

    def pack(self) -> None:
        """Pack them unless they are."""
        if not (self.packed / "dataset.index").exists():
            command = [*cordee(), "data", "pack", str(self.plain), "--to", str(self.packed), "--json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def ours(self, what: str, seed: int, *more: str) -> Measured:
        """Measure in this interpreter."""
        command = [sys.executable, str(HERE / "data_ours.py"), what, "--seed", str(seed), *more]
        command += ["--files", str(self.list), "--plain", str(self.plain), "--packed", str(self.packed)]
        answer = last_json(command)
        if answer is None:
            raise SystemExit(f"{what} failed")
        return answer

    def peer(self, name: str, action: str, seed: int) -> Measured | None:
        """Measure in the peers' interpreter; None: it is not there, or failed, which is kept in `missing`."""
        if name in self.missing:
            return None
        if self.options.peers is None:
            self.missing[name] = "no --peers"
            return None
        command = [self.options.peers, str(HERE / "data_peers" / "run.py"), name, action, "--seed", str(seed)]
        answer = last_json([*command, "--files", str(self.list), "--into", str(self.folder / name)])
        if answer is None:
            self.missing[name] = "not installed, or it failed"
            return None
        self.versions[name] = answer["version"]
        return answer


def cordee() -> list[str]:
    """Return the command line of this interpreter's Cordée."""
    return [sys.executable, "-m", "cordee.faces.cli"]


def last_json(command: Sequence[str]) -> Measured | None:
    """Run a measurement; what it says goes to standard error."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        print(f"exit code {done.returncode}: {' '.join(command)}", file=sys.stderr)
        return None
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


def whole(command: Sequence[str], stdin: bytes = b"") -> Measured:
    """Run a program and return its wall and CPU seconds, with those of its children."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(stdin)
        process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"it failed: {' '.join(command)}")
    return {"seconds": time.perf_counter() - began, "cpu_s": used.ru_utime + used.ru_stime}


def in_rounds(rounds: int, measurements: dict[str, Measurement]) -> dict[str, list[Measured]]:
    """Take every measurement once a round, in turned order; those that are missing are left out."""
    found: dict[str, list[Measured]] = {name: [] for name in measurements}
    for number in range(rounds):
        names = list(measurements) if number % 2 == 0 else list(reversed(measurements))
        for name in names:
            print(f"  round {number + 1}: {name}", file=sys.stderr, flush=True)
            answer = measurements[name](number)
            if answer is not None:
                found[name].append(answer)
    return {name: answers for name, answers in found.items() if len(answers) == rounds}


def median(answers: Sequence[Measured], key: str) -> float:
    """Return the median over rounds."""
    return statistics.median(answer[key] for answer in answers)


def ratio(found: dict[str, list[Measured]], of: str, to: str, key: str = "seconds", per: str = "") -> float | None:
    """Return how many times less of `key` (for each `per`) one takes than another: the median over rounds."""
    if of not in found or to not in found:
        return None

    def each(answer: Measured) -> float:
        return float(answer[key]) / (float(answer[per]) if per else 1.0)

    return statistics.median(each(b) / each(a) for a, b in zip(found[of], found[to], strict=True))


def said(value: float | None, form: str = ".2f") -> str:
    """Return a number, or that there is none."""
    return "not measured" if value is None else format(value, form)


def pack(bench: Bench) -> list[str]:
    """Packing: ours with one process and with several, with and without waiting for the disk; tar, cat, the peers."""
    target, paths = bench.folder / "target", bench.list.read_text().splitlines()
    names = "\0".join(line.split("\t")[0] for line in paths).encode()

    def ours(*more: str) -> Measurement:
        def run(number: int) -> Measured:
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
            return whole([*cordee(), "data", "pack", str(bench.plain), "--to", str(target), "--json", *more])

        return run

    def shell(script: str) -> Measurement:
        def run(number: int) -> Measured:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            os.sync()
            return whole(["sh", "-c", script.format(plain=bench.plain, out=target / "out")], names)

        return run

    def peer(name: str) -> Measurement:
        def run(number: int) -> Measured | None:
            shutil.rmtree(bench.folder / name, ignore_errors=True)
            os.sync()
            answer = bench.peer(name, "pack", number)
            shutil.rmtree(bench.folder / name, ignore_errors=True)
            return answer

        return run

    measurements = {
        "cordee, 1 process": ours("--workers", "1", "--no-sync"),
        "cordee, 1 process, on disk at the end": ours("--workers", "1"),
        "cordee, all cores": ours("--no-sync"),
        "GNU tar": shell("tar -C {plain} -cf {out} ."),
        "GNU tar, then sync": shell("tar -C {plain} -cf {out} . && sync -f {out}"),
        "cat": shell("xargs -0 cat > {out}"),
        **{name: peer(name) for name in PEERS},
    }
    bench.warm_files()
    found = in_rounds(bench.options.rounds, measurements)
    shutil.rmtree(target, ignore_errors=True)
    size = bench.bytes
    lines = ["| packing | GB/s | wall s | CPU s |", "|---|---|---|---|"]
    for name, answers in found.items():
        seconds = median(answers, "seconds")
        lines.append(f"| {name} | {size / seconds / 1e9:.2f} | {seconds:.2f} | {median(answers, 'cpu_s'):.2f} |")
    one, durable = "cordee, 1 process", "cordee, 1 process, on disk at the end"
    cpu = ratio(found, "webdataset", one, "cpu_s")
    return [
        *lines,
        "",
        f"- rate of one process: **{said(ratio(found, one, 'GNU tar'))} x GNU tar** (target 1.0); "
        f"both waiting for the disk: {said(ratio(found, durable, 'GNU tar, then sync'))} x",
        f"- CPU seconds: {said(None if (r := ratio(found, one, 'GNU tar', 'cpu_s')) is None else 1 / r)} x GNU tar, "
        f"**{said(cpu)} x webdataset** (target at most 0.25)",
    ]


def warm(bench: Bench) -> list[str]:
    """Shuffled reading from the page cache, one process; each peer in rounds of its own beside cordee.dataset."""
    measurements: dict[str, Measurement] = {
        what: lambda number, what=what: bench.ours(what, number)
        for what in ("bare", "bare-held", "bare-threads", "source", "dataset", "files")
    }
    small = ["--settings", '{"batch": 32}']
    measurements |= {
        f"{what}, 32": lambda number, what=what: bench.ours(what, number, *small) for what in ("source", "dataset")
    }
    found = in_rounds(bench.options.rounds, measurements)
    beside = {name: times for name in PEERS if (times := beside_peer(bench, name, found))}
    best = min(beside, key=lambda name: beside[name], default="")
    batched = beside_peer(bench, BATCHED, found)
    return [
        *rates(found),
        "",
        f"- beside a bare loop that holds a batch of 256 as they do: PackedSource "
        f"**{said(ratio(found, 'source', 'bare-held'))} x**, "
        f"cordee.dataset **{said(ratio(found, 'dataset', 'bare-held'))} x** (target 0.9)",
        f"- beside a bare loop that drops every sample at once: {said(ratio(found, 'source', 'bare'))} x, "
        f"{said(ratio(found, 'dataset', 'bare'))} x; in batches of 32: {said(ratio(found, 'source, 32', 'bare'))} x, "
        f"{said(ratio(found, 'dataset, 32', 'bare'))} x",
        f"- cordee.dataset beside the best peer, {best or 'none'}: **{said(beside.get(best))} x** (target 1.5); all: "
        + ", ".join(f"{name} {times:.1f} x" for name, times in beside.items()),
        f"- cordee.dataset beside Hugging Face datasets read in batches of 256 rows: {said(batched)} x",
        f"- beside plain files: {said(ratio(found, 'dataset', 'files'))} x; beside the bare loop in two threads: "
        f"{said(ratio(found, 'dataset', 'bare-threads'))} x",
    ]


def beside_peer(bench: Bench, name: str, found: dict[str, list[Measured]]) -> float | None:
    """Pack for a peer, measure it beside ours, add it to what was found, remove its copy; return how much faster ours is."""
    folder = bench.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    if bench.peer(name, "pack", 0) is None:
        return None
    pair = in_rounds(
        bench.options.rounds,
        {"ours": lambda number: bench.ours("dataset", number), name: lambda number: bench.peer(name, "read", number)},
    )
    if not bench.options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    if name in pair:
        found[name] = pair[name]
    return ratio(pair, "ours", name)


def rates(found: dict[str, list[Measured]]) -> list[str]:
    """Return a table of rates."""
    lines = ["| reading | samples/s | GB/s | CPU s per 1000 samples |", "|---|---|---|---|"]
    for name, answers in found.items():
        seconds, samples = median(answers, "seconds"), answers[0]["samples"]
        each = f"{1000 * median(answers, 'cpu_s') / samples:.3f}" if samples else ""
        per_s = f"{samples / seconds:.0f}" if samples else ""
        lines.append(f"| {name} | {per_s} | {median(answers, 'bytes') / seconds / 1e9:.2f} | {each} |")
    return lines


def cold(bench: Bench) -> list[str]:
    """Shuffled reading from the disk, one process."""
    more = ["--cold", *(["--drop-caches"] if bench.options.drop_caches else [])]
    measurements: dict[str, Measurement] = {
        what: lambda number, what=what: bench.ours(what, number, *more)
        for what in ("direct", "bare", "source", "dataset", "files")
    }
    found = in_rounds(bench.options.rounds, measurements)
    per = {"key": "seconds", "per": "bytes"}
    return [
        *rates(found),
        "",
        f"- beside the disk's direct rate: PackedSource {said(ratio(found, 'source', 'direct', **per))} x, "
        f"cordee.dataset **{said(ratio(found, 'dataset', 'direct', **per))} x** (target 0.8)",
        f"- beside plain files: cordee.dataset **{said(ratio(found, 'dataset', 'files'))} x** (target 3)",
    ]


def feed(bench: Bench) -> list[str]:
    """Feeding a small torch model."""
    measurements: dict[str, Measurement] = {
        "cordee.dataset, threads": lambda number: bench.ours("feed-cordee", number),
        "DataLoader over files, 2 workers": lambda number: bench.ours("feed-files", number),
        "DataLoader over files, no workers": lambda number: bench.ours(
            "feed-files", number, "--settings", '{"workers": 0}'
        ),
    }
    found = in_rounds(bench.options.rounds, measurements)
    ours = ratio(found, "cordee.dataset, threads", "DataLoader over files, 2 workers")
    return [*rates(found), "", f"- beside the DataLoader with 2 workers: **{said(ours)} x** (target 2)"]


def resume(bench: Bench) -> list[str]:
    """Stopping and going on with another number of workers and ranks."""
    found = bench.ours("resume", 0)
    wrong = f"; not exact: {', '.join(found['wrong'])}" if found["wrong"] else ""
    return [
        f"- workers 0, 1, 2, 4 x ranks 1, 2, 4, 8, each stopped in an epoch and gone on with as another of them: "
        f"**{found['exact']} of {found['of']} exact** (every batch of the whole epoch the same){wrong}",
        f"- state: {found['state_bytes']} bytes of JSON (target below 1,000); "
        f"to a rank's first batch after a restart: at most {found['seconds_to_first_batch']['threads']:.2f} s "
        f"(target below 1), {found['seconds_to_first_batch']['workers']:.2f} s with worker processes to start",
    ]


TITLES = {
    pack: "Packing",
    warm: "Reading, shuffled, from the page cache, one process",
    cold: "Reading, shuffled, from the disk, one process",
    feed: "Feeding a torch loop (linear 4096 x 16, one thread)",
    resume: "Resuming",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where files and copies lie; 8 GB at 50,000 files")
    parser.add_argument("--peers", help="an interpreter that has the peers")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--keep", action="store_true", help="keep the peers' copies")
    parser.add_argument("--drop-caches", action="store_true", help="cold: names and sizes of files too; needs root")
    options = parser.parse_args()
    bench = Bench(options)
    bench.folder.mkdir(parents=True, exist_ok=True)
    bench.make()
    chosen = [part for part in TITLES if part.__name__ in options.only.split(",")]
    load = os.getloadavg()[0]
    print(f"# Data sets of many small files\n\n{time.strftime('%Y-%m-%d')}. `python {' '.join(sys.argv)}`\n")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f} at the beginning"
    )
    print(f"\n{options.files} files, {bench.bytes / 1e9:.2f} GB, {options.rounds} rounds")
    for part in chosen:
        print(f"{part.__name__}", file=sys.stderr, flush=True)
        if part is not pack:
            bench.pack()
        lines = part(bench)
        print(f"\n## {TITLES[part]}\n\n{part.__doc__}\n" if part.__doc__ else "")
        print("\n".join(lines), flush=True)
    if bench.versions:
        print("\nPeers: " + ", ".join(f"{name} {version}" for name, version in sorted(bench.versions.items())))
    for name, why in bench.missing.items():
        print(f"\n{name}: {why}")


if __name__ == "__main__":
    main()
