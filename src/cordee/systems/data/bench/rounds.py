"""Pairs of rounds: the loader, and a bare loop over the same bytes in the same state of the page cache."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from cordee.systems.data.bench import bare
from cordee.systems.data.bench.pieces import SampleSpans
from cordee.systems.data.bench.remote import LoaderProcess
from cordee.systems.data.bench.settings import Settings
from cordee.systems.data.bench.store import store_rate

# Above this share of cached bytes a state is not cold.
_COLD_SHARE = 0.05
_WARMING = 10


@dataclass(frozen=True)
class CacheState:
    """What rounds in one state of the page cache have shown; rates are medians over rounds.

    Attributes:
        samples_per_s, bytes_per_s: of the loader; bytes as they lie on storage, None where that is not known.
        given_bytes_per_s: what its batches hold, after decoding.
        limit_bytes_per_s: the fastest that bare reading gave: the shuffled loop, or, cold, reading past the cache; of a store,
            large ranges read by several threads.
        bare_bytes_per_s, bare_cpu_s: of the loop of one `pread` per sample; CPU seconds per thousand samples.
        direct_bytes_per_s: large reads one after the other: O_DIRECT, or ranges of a store's objects.
        latency_s: `p50`, `p95`, `p99`, `max` of the wait for a batch, the first of each pass left out.
        cpu_s: of the loader's processes, seconds per thousand samples; `cores` is how many of them it kept busy.
        reads_per_sample, bytes_per_read: of /proc, over all reading of the loader's processes, pipes between them included;
            None: not known.
        device_share: bytes that came from a device, of the bytes on storage.
    """

    cache: str
    rounds: int
    samples: int
    samples_per_s: float
    samples_per_s_rounds: tuple[float, ...]
    bytes_per_s: float | None
    given_bytes_per_s: float
    limit_bytes_per_s: float | None
    share_of_limit: float | None
    bare_samples_per_s: float | None
    bare_bytes_per_s: float | None
    bare_cpu_s: float | None
    direct_bytes_per_s: float | None
    first_batch_s: float
    batches: int
    latency_s: dict[str, float]
    cpu_s: float
    cores: float
    processes: int
    reads_per_sample: float | None
    bytes_per_read: float | None
    device_share: float | None
    cached_share: float | None

    @property
    def reads_seen(self) -> bool:
        """Whether samples come by the calls that /proc counts: files that are mapped, and sockets, have none."""
        if self.bytes_per_s is None or not self.reads_per_sample or not self.bytes_per_read:
            return False
        return 2 * self.reads_per_sample * self.bytes_per_read >= self.bytes_per_s / self.samples_per_s


def play_rounds(
    loader: LoaderProcess,
    settings: Settings,
    cache: str,
    pieces: SampleSpans | None,
    chosen: np.ndarray,
    store: str = "",
) -> CacheState:
    """Play pairs of rounds in one state, the loader and the bare loop in turns first.

    Args:
        cache: `warm`: everything chosen was read once before; `cold`: dropped before each reading; `remote`: from a store.
        chosen: int64[n], the samples that a round takes from, in order; empty where pieces are not known.
        store: address of the object store in which the data set lies; empty: in none.

    Raises:
        DataError: the loader failed. OSError: storage failed.
    """
    played, bares, directs = [], [], []
    files = [pieces.files[at] for at in np.unique(pieces.file[chosen]).tolist()] if pieces else []
    if cache == "warm" and pieces:
        chosen = chosen[: bare.read_bare(pieces, chosen, _WARMING * settings.seconds).samples]
    cached = None
    many = len(chosen)
    for number in range(settings.rounds):
        for turn in ("loader", "bare") if number % 2 == 0 else ("bare", "loader"):
            if cache == "cold":
                bare.drop(files)
            if number == 0 and turn == "loader" and pieces:
                cached = bare.cached_share(pieces, chosen)
            if turn == "loader":
                most = int(len(chosen) / pieces.per_sample) if pieces and pieces.kind != "blocks" else 0
                played.append(loader.play(settings.seconds, samples=most, again=cache != "cold"))
                many = _as_pieces(played[-1], pieces, chosen) if pieces else 0
            elif pieces:
                wanted = np.resize(chosen, many) if cache == "warm" else chosen[:many]
                bares.append(bare.read_bare(pieces, wanted, settings.seconds))
            elif store:
                directs.append(store_rate(store, settings.seconds))
        if cache == "cold" and files:
            directs.append(bare.direct_rate(files, settings.seconds / 2, begin=number << 28))
    return _state(cache, played, bares, [rate for rate in directs if rate], pieces, chosen, cached)


def _as_pieces(round_: dict[str, Any], pieces: SampleSpans, chosen: np.ndarray) -> int:
    """Return how many pieces hold as much as a round gave."""
    if pieces.kind != "blocks":
        return int(sum(round_["samples"]) * pieces.per_sample)
    return max(1, int(sum(round_["bytes"]) / pieces.span[chosen].mean()))


def can_be_cold(pieces: SampleSpans, chosen: np.ndarray) -> bool:
    """Return whether the kernel forgets these files when asked: not in memory file systems, nor while others map them."""
    files = [pieces.files[at] for at in np.unique(pieces.file[chosen]).tolist()]
    for written in (False, True):
        bare.drop(files, written=written)
        share = bare.cached_share(pieces, chosen)
        if share is None or share <= _COLD_SHARE:
            return share is not None
    return False


def _state(
    cache: str,
    played: list[dict[str, Any]],
    bares: list[bare.Read],
    directs: list[float],
    pieces: SampleSpans | None,
    chosen: np.ndarray,
    cached: float | None,
) -> CacheState:
    samples = sum(sum(round_["samples"]) for round_ in played)
    seconds = sum(sum(round_["waits_s"]) for round_ in played)
    rates = [_rate(round_, "samples") for round_ in played]
    rate = statistics.median(rates)
    stored = float(pieces.payload[chosen].mean()) * pieces.per_sample if pieces and pieces.kind != "blocks" else None
    given_rate = statistics.median(_rate(round_, "bytes") for round_ in played)
    asked = _total([round_["stored_bytes"] for round_ in played])
    if asked is not None and pieces is None:
        stored = asked / samples
    bytes_per_s = rate * stored if stored is not None else given_rate
    bare_rate = statistics.median(read.bytes / read.seconds for read in bares) if bares else None
    direct = statistics.median(directs) if directs else None
    limit = max((found for found in (bare_rate, direct) if found is not None), default=None)
    used = {
        key: [round_["used"][key] for round_ in played]
        for key in ("cpu_s", "reads", "read_bytes", "device_bytes", "processes")
    }
    reads, read_bytes, device = (_total(used[key]) for key in ("reads", "read_bytes", "device_bytes"))
    cpu_s = sum(used["cpu_s"])
    later = [wait for round_ in played for wait in _later(round_)]
    return CacheState(
        cache=cache,
        rounds=len(played),
        samples=samples,
        samples_per_s=rate,
        samples_per_s_rounds=tuple(rates),
        bytes_per_s=bytes_per_s,
        given_bytes_per_s=given_rate,
        limit_bytes_per_s=limit,
        share_of_limit=bytes_per_s / limit if limit else None,
        bare_samples_per_s=statistics.median(read.samples / read.seconds for read in bares) if bares else None,
        bare_bytes_per_s=bare_rate,
        bare_cpu_s=statistics.median(1000 * read.cpu_s / read.samples for read in bares) if bares else None,
        direct_bytes_per_s=direct,
        first_batch_s=statistics.median(round_["waits_s"][0] for round_ in played),
        batches=sum(len(round_["waits_s"]) for round_ in played),
        latency_s=_percentiles(later),
        cpu_s=1000 * cpu_s / samples,
        cores=cpu_s / seconds if seconds else 0.0,
        processes=max(used["processes"]),
        reads_per_sample=reads / samples if reads is not None else None,
        bytes_per_read=read_bytes / reads if reads and read_bytes is not None else None,
        device_share=device / (samples * stored) if device is not None and stored else None,
        cached_share=cached,
    )


def sample_rate(round_: dict[str, Any]) -> float:
    """Return samples per second of a round that a loader played."""
    return _rate(round_, "samples")


def _rate(round_: dict[str, Any], what: str) -> float:
    """Return what a round gave per second of waiting, without its first batch, and without every pass's where processes
    start anew in each; all of it where nothing else is left.
    """
    firsts = set(round_["firsts"] if round_["used"]["processes"] > 1 else round_["firsts"][:1])
    there = [at for at in range(len(round_["waits_s"])) if at not in firsts] or range(len(round_["waits_s"]))
    seconds = sum(round_["waits_s"][at] for at in there)
    return sum(round_[what][at] for at in there) / seconds if seconds else 0.0


def _later(round_: dict[str, Any]) -> list[float]:
    """Return the waits for all batches that are not the first of a pass; all where there are no others."""
    firsts = set(round_["firsts"])
    return [wait for at, wait in enumerate(round_["waits_s"]) if at not in firsts] or round_["waits_s"]


def _percentiles(waits: list[float]) -> dict[str, float]:
    found = np.percentile(waits, (50, 95, 99, 100))
    return dict(zip(("p50", "p95", "p99", "max"), (float(value) for value in found), strict=True))


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
