"""One measurement of `benchmarks/data.py` in this interpreter: Cordée, bare reads, plain files; the last line is JSON.

`python data_ours.py WHAT --files LIST --packed FOLDER [--cold] [--seed N]`. Imports are not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cordee.systems.data.bench.bare import cached_share, direct_rate, drop, read_bare
from cordee.systems.data.bench.pieces import SampleSpans, find_pieces
from cordee.systems.data.node.read.order.permutation import shuffled

sys.path.insert(0, str(Path(__file__).parent / "data_peers"))
from run import TAKEN_BYTES, cpu_s, take_memory, warm

BATCH = 256
ANNOUNCED = 4096
WIDTH = 4096


class Given:
    """What a loop was given, and when it began: set by a measurement once its imports and openings are done.

    Args:
        prepare: done right before: a kernel may take pages from the cache, and a host memory, that were not used for seconds.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self.samples = self.bytes = 0
        self._prepare = prepare
        self.cpu_s, self.time = cpu_s(), time.perf_counter()

    def begin(self) -> None:
        """Begin to measure."""
        self._prepare()
        self.cpu_s, self.time = cpu_s(), time.perf_counter()

    def document(self) -> dict[str, Any]:
        """Return the totals."""
        seconds = time.perf_counter() - self.time
        return {"samples": self.samples, "bytes": self.bytes, "seconds": seconds, "cpu_s": cpu_s() - self.cpu_s}


def listed(options: argparse.Namespace) -> list[str]:
    """Return the paths of the files."""
    return [line.split("\t")[0] for line in options.files.read_text().splitlines()]


def make_cold(options: argparse.Namespace) -> None:
    """Put what is read out of the page cache."""
    pieces = find_pieces(str(read_from(options)))
    drop(list(pieces.files), written=True)
    if options.drop_caches:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    share = cached_share(pieces, np.arange(pieces.samples))
    if share is None or share > 0.05:
        raise SystemExit(f"the page cache still holds {share} of the files")


def read_from(options: argparse.Namespace) -> Path:
    """Return the folder that a measurement reads."""
    folder: Path = options.plain if options.what in ("files", "feed-files") else options.packed
    return folder


def prepare(options: argparse.Namespace) -> None:
    """Bring what is read into the page cache, if it is to be there, and take memory back."""
    if not options.cold:
        warm(read_from(options))
        take_memory(TAKEN_BYTES)
        return
    size = sum(path.stat().st_size for path in read_from(options).rglob("*") if path.is_file())
    take_memory(TAKEN_BYTES + size)


def order_of(pieces: SampleSpans, seed: int) -> np.ndarray:
    """Return a global shuffle."""
    return np.asarray(shuffled(np.arange(pieces.samples), pieces.samples, seed, 0))


def bare(options: argparse.Namespace, given: Given) -> None:
    """One pread per sample from the shards, globally shuffled."""
    pieces = find_pieces(str(options.packed))
    order = order_of(pieces, options.seed)
    given.begin()
    read = read_bare(pieces, order)
    given.samples, given.bytes = read.samples, read.bytes


def direct(options: argparse.Namespace, given: Given) -> None:
    """The shards one after the other past the page cache."""
    pieces = find_pieces(str(options.packed))
    given.begin()
    rate = direct_rate(pieces.files, 60.0)
    if rate is None:
        raise SystemExit("the file system has no O_DIRECT")
    given.bytes = round(rate * (time.perf_counter() - given.time))


def bare_held(options: argparse.Namespace, given: Given) -> None:
    """The same, but 256 samples are held at once, as a batch is: they do not fit into the processor's caches."""
    pieces = find_pieces(str(options.packed))
    order = order_of(pieces, options.seed)
    descriptors = [os.open(path, os.O_RDONLY) for path in pieces.files]
    fds = [descriptors[at] for at in pieces.file[order].tolist()]
    plan = list(zip(fds, pieces.span[order].tolist(), pieces.offset[order].tolist(), strict=True))
    given.begin()
    for first in range(0, len(plan), BATCH):
        batch = [os.pread(fd, span, offset) for fd, span, offset in plan[first : first + BATCH]]
        given.samples += len(batch)
    given.bytes = int(pieces.payload.sum())


def bare_threads(options: argparse.Namespace, given: Given) -> None:
    """The bare loop in two threads, each with half of the samples."""
    pieces = find_pieces(str(options.packed))
    halves = np.array_split(order_of(pieces, options.seed), 2)
    given.begin()
    with ThreadPoolExecutor(2) as pool:
        for read in pool.map(lambda half: read_bare(pieces, half), halves):
            given.samples += read.samples
            given.bytes += read.bytes


def source(options: argparse.Namespace, given: Given) -> None:
    """`PackedSource.read`, a batch at a time, groups of samples announced one ahead."""
    from cordee.systems.data.node.read.sources import open_source

    opened = open_source(str(options.packed))
    order = order_of(find_pieces(str(options.packed)), options.seed)
    batch = options.settings.get("batch", BATCH)
    given.begin()
    opened.expect(order[:ANNOUNCED])
    for first in range(0, len(order), batch):
        if not first % ANNOUNCED:
            opened.expect(order[first + ANNOUNCED : first + 2 * ANNOUNCED])
        given.samples += len(opened.read(order[first : first + batch]))
    given.bytes = opened.counts.bytes
    opened.close()


def dataset(options: argparse.Namespace, given: Given) -> None:
    """`cordee.dataset`, raw bytes."""
    import cordee

    settings = {"batch": BATCH, **options.settings}
    made = cordee.dataset(str(options.packed), seed=options.seed, rank=0, world=1, **settings)
    given.begin()
    for batch in made:
        given.samples += len(next(column for column in batch.values() if isinstance(column, list)))
    given.bytes = made.counts.bytes


def files(options: argparse.Namespace, given: Given) -> None:
    """Every file opened, read and closed, globally shuffled."""
    paths = listed(options)
    random.Random(options.seed).shuffle(paths)
    given.begin()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            given.bytes += len(file.readall())
        given.samples += 1


def train(batches: Iterator[tuple[Any, int]], given: Given) -> None:
    """Feed a small model: float32 of [batch, 4096], forward and backward on one thread."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(WIDTH, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    given.begin()
    for tensor, size in batches:
        optimizer.zero_grad()
        model(tensor.float()).square().mean().backward()
        optimizer.step()
        given.samples += len(tensor)
        given.bytes += size


def cut(data: bytes) -> np.ndarray:
    """Return the last 4,096 bytes, after all were looked at as a decoder does."""
    return np.frombuffer(data[-WIDTH:].ljust(WIDTH, b"\0"), np.uint8)


def feed_cordee(options: argparse.Namespace, given: Given) -> None:
    """`cordee.dataset` and a training loop in one process."""
    import torch

    import cordee

    def made(sample: dict[str, Any]) -> dict[str, Any]:
        data = sample["bin"]
        return {"data": cut(data), "size": len(data)}

    loader = cordee.dataset(
        str(options.packed), batch=BATCH, seed=options.seed, transform=made, rank=0, world=1, **options.settings
    )
    train(((torch.as_tensor(batch["data"]), int(batch["size"].sum())) for batch in loader), given)


class Files:
    """The files as a map-style data set for torch."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, at: int) -> tuple[np.ndarray, int]:
        with open(self._paths[at], "rb", buffering=0) as file:
            data = file.readall()
        return cut(data), len(data)


def feed_files(options: argparse.Namespace, given: Given) -> None:
    """A DataLoader over files with two worker processes and a training loop."""
    import torch

    loader = torch.utils.data.DataLoader(
        Files(listed(options)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=options.settings.get("workers", 2),
        generator=torch.Generator().manual_seed(options.seed),
    )
    train(((data, int(sizes.sum())) for data, sizes in loader), given)


def resume(options: argparse.Namespace, given: Given) -> None:
    """Stop and go on with other workers and ranks: the union of all ranks' samples against a run that was not stopped.

    torch is imported before, as in every training that asks for tensors.
    """
    import torch  # noqa: F401

    import cordee

    def batches(
        world: int, workers: int, state: dict[str, Any] | None, most: int
    ) -> tuple[list[list[int]], Any, float]:
        """Return the labels of each global batch, the state after them, and the seconds to the first one."""
        every, last, seconds = [], None, 0.0
        for rank in range(world):
            made = cordee.dataset(str(options.packed), batch=64, seed=5, rank=rank, world=world, keys=True)
            began = time.perf_counter()
            if state is not None:
                made.load_state_dict(state)
            loader = made.loader(workers=workers) if workers else made
            own = []
            for batch in loader:
                seconds = max(seconds, time.perf_counter() - began) if not own else seconds
                own.append(list(batch["key"]))
                if len(own) == most:
                    last = made.state_dict()
                    break
            every.append(own)
        joined = [[key for part in parts for key in part] for parts in zip(*every, strict=True)]
        return joined, last, seconds

    combinations = [(workers, world) for workers in (0, 1, 2, 4) for world in (1, 2, 4, 8)]
    whole, _, _ = batches(1, 0, None, 0)
    exact, state_bytes = 0, 0
    slowest = {"threads": 0.0, "workers": 0.0}
    wrong: list[str] = []
    for number, (workers, world) in enumerate(combinations):
        after = combinations[(number + 5) % len(combinations)]
        head, state, _ = batches(world, workers, None, 1 + number % (len(whole) - 1))
        state_bytes = max(state_bytes, len(json.dumps(state)))
        tail, _, seconds = batches(after[1], after[0], json.loads(json.dumps(state)), 0)
        kind = "workers" if after[0] else "threads"
        slowest[kind] = max(slowest[kind], seconds)
        if head + tail == whole:
            exact += 1
        else:
            wrong.append(f"{workers} workers x {world} ranks to {after[0]} x {after[1]}")
    given.samples = len(combinations)
    options.more = {
        "exact": exact,
        "of": len(combinations),
        "state_bytes": state_bytes,
        "seconds_to_first_batch": slowest,
    }
    options.more["wrong"] = wrong


MEASUREMENTS: dict[str, Callable[[argparse.Namespace, Given], None]] = {
    "bare": bare,
    "bare-held": bare_held,
    "bare-threads": bare_threads,
    "direct": direct,
    "source": source,
    "dataset": dataset,
    "files": files,
    "feed-cordee": feed_cordee,
    "feed-files": feed_files,
    "resume": resume,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=list(MEASUREMENTS))
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--plain", type=Path, required=True, help="the folder of the files")
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--drop-caches", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", type=json.loads, default={})
    options = parser.parse_args()
    options.more = {}
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="cordee-bench-")
    if options.cold:
        make_cold(options)
    given = Given(lambda: prepare(options))
    MEASUREMENTS[options.what](options, given)
    print("\n" + json.dumps({**given.document(), **options.more}), flush=True)


if __name__ == "__main__":
    main()
