"""One measurement of one peer of `benchmarks/data.py`, in the peers' own interpreter; the last line is JSON.

`python run.py PEER pack|read --files LIST --into FOLDER [--seed N]`. LIST has one `path<TAB>label` a line. Imports are not timed.
Exit code 3: the peer is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import mmap
import os
import resource
import sys
import time
from pathlib import Path

PACKAGES = {
    "webdataset": "webdataset",
    "litdata": "litdata",
    "mosaicml": "mosaicml-streaming",
    "arrow": "datasets",
    "arrow_batches": "datasets",
    "array_record": "array-record",
}


def cpu_s() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def warm(folder: Path) -> None:
    """Bring all files below a folder into the page cache."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(8 << 20):
                    pass


# A loop holds less than this: batches, and what is read ahead.
TAKEN_BYTES = 1 << 30


def take_memory(size: int) -> None:
    """Use memory and free it: a virtual machine gives free memory back to its host, and taking it anew costs 2 s a GB here."""
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=sorted(PACKAGES))
    parser.add_argument("action", choices=["pack", "read"])
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    into = options.into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    os.environ["HOME"] = str(into)  # caches and settings of the peers stay with the benchmark
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        peer = importlib.import_module(f"peer_{options.peer}")
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    lines = (line.split("\t") for line in options.files.read_text().splitlines())
    files = [(path, int(label)) for path, label in lines]
    samples = size = 0
    if options.action == "pack":
        used, began = cpu_s(), time.perf_counter()
        peer.pack(files, into)
        samples, size = len(files), sum(os.path.getsize(path) for path, _ in files)
    else:
        source = peer.opened(into)
        warm(into)
        take_memory(TAKEN_BYTES)
        used, began = cpu_s(), time.perf_counter()
        for data in peer.read(source, options.seed):
            samples += 1
            size += len(data)
    seconds = time.perf_counter() - began
    answer = {"samples": samples, "bytes": size, "seconds": seconds, "cpu_s": cpu_s() - used}
    answer["version"] = importlib.metadata.version(PACKAGES[options.peer])
    sys.stdout.flush()
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)  # threads and processes of some peers do not end by themselves


if __name__ == "__main__":
    import importlib.metadata

    main()
