"""`cordee data bench`: one measurement from the settings to the result."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cordee.core.errors import DataError
from cordee.core.findings import Finding
from cordee.core.units import utc_text
from cordee.machine.memory import MemorySource
from cordee.systems.data.bench import bare
from cordee.systems.data.bench.advice import advise, is_shared
from cordee.systems.data.bench.pieces import SampleSpans, find_pieces
from cordee.systems.data.bench.remote import LoaderProcess
from cordee.systems.data.bench.rounds import CacheState, can_be_cold, play_rounds, sample_rate
from cordee.systems.data.bench.settings import Settings
from cordee.systems.data.node.read.limits import file_system, write_limits
from cordee.systems.data.node.read.location import located
from cordee.systems.data.node.read.order.permutation import shuffled
from cordee.systems.data.node.shards.index import INDEX_NAME, open_index
from cordee.wire.stores import is_remote

SCHEMA = "cordee.data-bench/1"
_MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class BenchResult:
    """A measurement.

    Attributes:
        main: the state of the page cache that a training will mostly meet: `warm` where the data set fits into half of
            the memory that is available.
        notes: what could not be measured, and why.
        without_workers: samples per second of the same loader without worker processes; None: not measured.
        kept: the file in which the limit was kept.
    """

    settings: Settings
    host: str
    measured: float
    main: str
    states: dict[str, CacheState]
    copy_bytes_per_s: float
    without_workers: float | None
    pieces: SampleSpans | None
    ready_s: float
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    kept: str | None

    @property
    def state(self) -> CacheState:
        """The main one."""
        return self.states[self.main]

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints; the main state's figures stand at the top."""
        main, settings = self.state, self.settings
        about = ("batch", "threads", "workers", "fields", "decode", "length", "shuffle", "seed", "seconds", "rounds")
        return {
            "schema": SCHEMA,
            "target": settings.target,
            "loader": settings.function or "cordee.dataset",
            "measured": utc_text(self.measured),
            "host": self.host,
            "file_system": file_system(settings.target),
            "samples_per_s": main.samples_per_s,
            "bytes_per_s": main.bytes_per_s,
            "limit_bytes_per_s": main.limit_bytes_per_s,
            "share_of_limit": main.share_of_limit,
            "cache": self.main,
            "latency_s": main.latency_s,
            "first_batch_s": main.first_batch_s,
            "start_s": self.ready_s,
            "cpu_s_per_1000_samples": main.cpu_s,
            "copy_bytes_per_s": self.copy_bytes_per_s,
            "reads_per_sample": main.reads_per_sample,
            "bytes_per_read": main.bytes_per_read,
            "samples_per_s_without_workers": self.without_workers,
            "need_samples_per_s": settings.need_samples_per_s,
            "enough": self.enough,
            "states": {name: asdict(state) for name, state in self.states.items()},
            "data": None if self.pieces is None else _described(self.pieces),
            "settings": {name: getattr(settings, name) for name in about},
            "advice": [finding.document() for finding in self.findings],
            "notes": list(self.notes),
            "kept": self.kept,
        }

    @property
    def enough(self) -> bool | None:
        """Whether the loader gives what the training takes; None: the need is not known."""
        need = self.settings.need_samples_per_s
        return None if need is None else self.state.samples_per_s >= need


def measure(settings: Settings, *, keep: bool = True) -> BenchResult:
    """Measure a loader alone, and what storage gives in the same run.

    Args:
        keep: keep the limits, for trainings to compare themselves with.

    Raises:
        DataError: there is no such data set, it cannot be read, or the loader failed.
    """
    notes: list[str] = []
    measured = time.time()
    settings = replace(settings, target=located(settings.target))
    store = _store(settings)
    pieces = None if store else find_pieces(settings.target, settings.fields, settings.length or 0)
    available = _available_bytes()
    chosen = np.zeros(0, np.int64)
    if pieces is not None:
        chosen = bare.fitting(pieces, _order(pieces, settings), min(_MOST_BYTES, available // 4))
        if not pieces.whole:
            notes.append(f"only the first {pieces.samples} files were looked at for the bare loop")
    try:
        with LoaderProcess(settings.request) as loader:
            pieces = _as_read(pieces, loader)
            wanted = _states(settings, pieces, chosen, notes)
            states = {cache: play_rounds(loader, settings, cache, pieces, chosen, store) for cache in wanted}
            ready_s = loader.ready_s
    except OSError as error:
        raise DataError(
            f"the data set cannot be read: {error.strerror}", given=error.filename or settings.target
        ) from None
    main = _main(states, pieces, available)
    without = _without_workers(settings, len(chosen))
    warm = states["warm"].samples_per_s if "warm" in states else None
    found = advise(settings, states[main], pieces, warm, without)
    identity = loader.identity or (pieces.identity if pieces else "")
    kept = _keep(identity, store or os.path.realpath(settings.target), states, measured) if keep else None
    return BenchResult(
        settings=settings,
        host=socket.gethostname(),
        measured=measured,
        main=main,
        states=states,
        copy_bytes_per_s=bare.copy_rate(),
        without_workers=without,
        pieces=pieces,
        ready_s=ready_s,
        notes=tuple(notes),
        findings=tuple(found),
        kept=kept,
    )


def _store(settings: Settings) -> str:
    """Return the address of the store in which the samples lie; an index of them may lie here."""
    target = settings.target
    if is_remote(target):
        return target.removesuffix("/" + INDEX_NAME)
    if target.endswith(".index") or os.path.exists(os.path.join(target, INDEX_NAME)):
        root = open_index(target).root
        return root if is_remote(root) else ""
    return ""


def _as_read(pieces: SampleSpans | None, loader: LoaderProcess) -> SampleSpans | None:
    """Return the pieces as Cordée's loader takes them: its name for the data set; files that belong together are one sample."""
    if pieces is None or loader.identity is None or not loader.size:
        return pieces
    grouped = pieces.samples / loader.size if pieces.kind == "files" and pieces.whole else 1.0
    return replace(pieces, identity=loader.identity, per_sample=grouped)


def _order(pieces: SampleSpans, settings: Settings) -> np.ndarray:
    at = np.arange(pieces.samples, dtype=np.int64)
    return np.asarray(shuffled(at, pieces.samples, settings.seed, 0)) if settings.shuffle else at


def _available_bytes() -> int:
    reading = MemorySource().read()
    return reading.available_bytes if reading is not None else _MOST_BYTES


def _states(settings: Settings, pieces: SampleSpans | None, chosen: np.ndarray, notes: list[str]) -> list[str]:
    """Return the states to measure: cold last, as it empties the cache."""
    if pieces is None:
        if settings.cache != "auto":
            notes.append(f"--cache {settings.cache} says nothing of an object store: its caches are its own")
        return ["remote"]
    if settings.cache == "warm":
        return ["warm"]
    if can_be_cold(pieces, chosen):
        if is_shared(settings.target):
            notes.append(
                "cold is this node's cache alone: the servers of a shared file system have caches of their own"
            )
        return ["cold"] if settings.cache == "cold" else ["warm", "cold"]
    why = "the kernel does not forget these files when asked (a memory file system, or somebody maps them)"
    if settings.cache == "cold":
        raise DataError(f"a cold cache cannot be had: {why}", given=settings.target, allowed="--cache warm")
    notes.append(f"cold is not measured: {why}")
    return ["warm"]


def _main(states: dict[str, CacheState], pieces: SampleSpans | None, available: int) -> str:
    if len(states) == 1 or pieces is None:
        return next(iter(states))
    return "warm" if pieces.whole and pieces.bytes <= available // 2 else "cold"


def _without_workers(settings: Settings, samples: int) -> float | None:
    """Return samples per second of Cordée's loader in one process, to see whether worker processes pay."""
    if settings.function or not settings.workers:
        return None
    alone = {**settings.request, "workers": 0}
    with LoaderProcess(alone) as loader:
        played = loader.play(settings.seconds, samples=samples)
    return sample_rate(played)


def _keep(identity: str, place: str, states: dict[str, CacheState], measured: float) -> str | None:
    """Keep the limits; a folder that cannot be written costs nothing but the comparison."""
    limits = {name: state.limit_bytes_per_s for name, state in states.items() if state.limit_bytes_per_s}
    if not identity or not limits:
        return None
    with contextlib.suppress(OSError):
        return write_limits(identity, place, limits, measured)
    return None


def _described(pieces: SampleSpans) -> dict[str, Any]:
    return {
        "kind": pieces.kind,
        "identity": pieces.identity,
        "samples": round(pieces.samples / pieces.per_sample),
        "bytes": pieces.bytes,
        "files": len(pieces.files),
        "whole": pieces.whole,
    }
