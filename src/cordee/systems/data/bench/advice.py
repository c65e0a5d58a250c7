"""What to change about a loader, from what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cordee.core.findings import Finding
from cordee.core.units import format_size
from cordee.systems.data.bench.pieces import SampleSpans
from cordee.systems.data.bench.rounds import CacheState
from cordee.systems.data.bench.settings import Settings
from cordee.systems.data.node.read.limits import file_system

# Centres ask for reads of about 100 MB from file systems that many share; below 1 MiB even a local disk loses rate, and an
# object store spends more on the request than on the bytes.
RECOMMENDED_SHARED_BYTES = 100_000_000
RECOMMENDED_LOCAL_BYTES = 1 << 20
SHARED_KINDS = (
    "lustre", "nfs", "nfs4", "gpfs", "beegfs", "ceph", "fuse.ceph", "wekafs", "panfs", "pvfs2", "orangefs",
    "daos", "fuse.daos", "cifs", "smb3", "9p", "virtiofs",
)  # fmt: skip
_MEMORY_BYTES, _NODE_BYTES = 10_000_000_000, 100_000_000_000
_LOW_SHARE = 0.5
_LONG_FIRST_S = 10.0


def advise(
    settings: Settings,
    state: CacheState,
    pieces: SampleSpans | None,
    warm_samples_per_s: float | None = None,
    without_workers: float | None = None,
) -> list[Finding]:
    """Return findings, the gravest first.

    Args:
        state: the main one.
        warm_samples_per_s, without_workers: from the page cache, with worker processes and without; None: not measured.
    """
    found = [
        *_need(settings, state),
        *_requests(settings, state, pieces),
        *_processor(settings, state),
        *_workers(settings, warm_samples_per_s, without_workers),
        *_first_batch(state),
    ]
    share = state.share_of_limit
    if share is not None and share < _LOW_SHARE and not any(finding.severity == "warn" for finding in found):
        found.append(
            Finding(
                f"the loader gives {share:.0%} of what a bare loop reads from the same files, and not for want of storage",
                "warn",
                "data.loader",
                next="read blocks of many samples at once and hand them over whole; threads instead of processes",
                evidence={"share_of_limit": share},
            )
        )
    return sorted(found, key=lambda finding: ("error", "warn", "info").index(finding.severity))


def is_shared(path: str) -> bool:
    """Return whether many nodes share the file system a path lies on."""
    return "://" in path or file_system(path).partition(" ")[0] in SHARED_KINDS


def recommended_bytes(path: str) -> int:
    """Return how large a request should be at least where a path lies."""
    return RECOMMENDED_SHARED_BYTES if is_shared(path) and "://" not in path else RECOMMENDED_LOCAL_BYTES


def _need(settings: Settings, state: CacheState) -> Iterator[Finding]:
    need = settings.need_samples_per_s
    if need is None:
        return
    ratio = state.samples_per_s / need if need else 1.0
    evidence = {"need_samples_per_s": need, "samples_per_s": state.samples_per_s}
    if ratio < 1:
        text = f"too slow: the training takes {need:.0f} samples/s, the loader gives {state.samples_per_s:.0f}"
        yield Finding(text, "error", "data.need", evidence=evidence, next="see the advice below; then measure again")
    else:
        text = f"enough: {ratio:.1f} times what the training takes"
        yield Finding(text, "info" if ratio >= 1.5 else "warn", "data.need", evidence=evidence)


def _requests(settings: Settings, state: CacheState, pieces: SampleSpans | None) -> Iterator[Finding]:
    size, wanted = state.bytes_per_read, recommended_bytes(settings.target)
    if size is None or size >= wanted or not state.reads_seen:
        return
    shared = is_shared(settings.target)
    # Not by the share of the limit: of many small files the bare loop's requests are as small.
    good = not shared and pieces is not None and pieces.kind != "files"
    text = f"requests of {format_size(size)} on average; {format_size(wanted)} or more are recommended here"
    if good:
        text += ", but a disk of this node's own that few files are read from bears it"
    yield Finding(
        text,
        "info" if good else "warn",
        "data.small-requests",
        next=_larger(settings, pieces, shared),
        evidence={"mean_bytes": size, "recommended_bytes": wanted},
    )


def _larger(settings: Settings, pieces: SampleSpans | None, shared: bool) -> str:
    """Return how requests become larger."""
    if "://" in settings.target and not settings.function:
        return "copy the data set to the job's own storage before it is read for many epochs"
    if pieces is None or pieces.kind == "files":
        return f"pack the files into shards: cordee data pack {settings.target} --to PACKED"
    if shared and pieces.bytes <= _MEMORY_BYTES:
        return "copy the shards into the node's memory when the job starts: one large read each, then none"
    if shared and pieces.bytes <= _NODE_BYTES:
        return "copy the shards to the node's own disk when the job starts: one large read each, then none"
    if shared:
        return (
            "shuffle the order when packing, and read it in order (shuffle=False): neighbours are read in one request"
        )
    if settings.function:
        return "read several samples that lie next to each other in one request, by fewer threads or workers"
    return "fewer threads or workers and a longer read-ahead merge requests; on a local disk this is seldom worth it"


def _processor(settings: Settings, state: CacheState) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    low = state.share_of_limit is None or state.share_of_limit < _LOW_SHARE
    if not low or state.cores < 0.8 * min(cores, max(1, state.processes - 1)):
        return
    spare = round(cores - state.cores)
    more = f"{spare} of {cores} cores are idle: more threads or workers" if spare else "all cores are busy"
    yield Finding(
        f"the processor is the limit: {state.cores:.1f} cores are busy, {state.cpu_s:.2f} s of them a thousand samples",
        "warn",
        "data.processor",
        next=f"{more}; decode or resize once, when packing, instead of in every epoch",
        evidence={"cores": state.cores, "cpu_s_per_1000_samples": state.cpu_s, "available_cores": cores},
    )


def _workers(settings: Settings, warm_samples_per_s: float | None, without: float | None) -> Iterator[Finding]:
    if without is None or warm_samples_per_s is None or without < 0.95 * warm_samples_per_s:
        return
    yield Finding(
        f"worker processes do not pay: {without:.0f} samples/s without them, {warm_samples_per_s:.0f} with "
        f"{settings.workers}: handing samples from process to process costs more than reading them",
        "warn",
        "data.workers",
        next="workers=0: files are read and samples decoded by threads",
        evidence={"samples_per_s_without_workers": without, "samples_per_s": warm_samples_per_s},
    )


def _first_batch(state: CacheState) -> Iterator[Finding]:
    if state.first_batch_s > _LONG_FIRST_S:
        yield Finding(
            f"the first batch took {state.first_batch_s:.0f} s: every restart pays for it",
            "warn",
            "data.first-batch",
            next="list and open files lazily, start fewer workers",
            evidence={"first_batch_s": state.first_batch_s},
        )
