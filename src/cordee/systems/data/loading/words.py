"""Loading in sentences: what it cost, why, and what to change."""

from __future__ import annotations

from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.systems.data.loading.loads import DECLARED, MEASURED, Load

LEAST_WAIT = 0.05
_LEAST_SPAN_S = 10.0
_REACHED = 0.8
_ONE_FILE_EACH = 0.5
_SMALL_BYTES = 1 << 20
_MOST_READING = 0.5
_FAR_SLOWER = 2.0
_WHOSE = {
    (MEASURED, True): "that cordee data bench measured",
    (DECLARED, True): "that the profile says of the tier, for a node",
    (DECLARED, False): "that the profile says of the whole tier, which others use, too",
}


def load_text(load: Load) -> str:
    """Return what the loading of one data set cost, in a sentence."""
    if load.wait_share is None:
        return f"{load.name}: {int(load.totals['samples']):,} samples; it was told of for too short a time to say more."
    parts = [f"the ranks waited {_percent(load.wait_share)} of the time for data"]
    if load.wait_per_step_s is not None and load.step_s is not None:
        parts[0] += f", {_seconds(load.wait_per_step_s)} of a step's {_seconds(load.step_s)}"
    if load.bytes_per_s is not None and load.samples_per_s is not None:
        parts.append(f"{load.samples_per_s:,.0f} samples/s and {format_size(load.bytes_per_s)}/s together")
    parts.append(limit_text(load))
    return f"{load.name}: {'; '.join(parts)}."


def limit_text(load: Load) -> str:
    """Return the share of the limit in words, or how to have one."""
    if load.limit is None:
        return f"no limit is known beside it: `cordee data bench {load.place or 'PATH'}` measures one"
    share = load.share_of_limit
    limit = f"the {format_size(load.limit.bytes_per_s)}/s {_WHOSE[load.limit.source, load.limit.each_host]}"
    return f"of {limit}, a share that is not known" if share is None else f"{_percent(share)} of {limit}"


def load_findings(load: Load) -> list[Finding]:
    """Return what is worth changing about the loading of one data set; of waits only after ten seconds of telling."""
    long_enough = max((rank.span_s for rank in load.ranks), default=0.0) >= _LEAST_SPAN_S
    return [*(_waiting(load) if long_enough else []), *(_slow_rank(load) if long_enough else []), *_skipped(load)]


def _waiting(load: Load) -> list[Finding]:
    share = load.wait_share
    if share is None or share < LEAST_WAIT:
        return []
    rule, why, what = _cause(load)
    text = f"the ranks waited {_percent(share)} of the time for data ({load.name}): {why}"
    evidence = {
        "page": "data",
        "wait_share": share,
        "share_of_limit": load.share_of_limit,
        "reading_share": load.reading_share,
        "median_request_bytes": load.median_request_bytes,
        "advised_mean_bytes": load.advised_mean_bytes,
        "opens_per_sample": load.opens_per_sample,
    }
    return [Finding(text, "warn", rule, given=load.place, next=what, evidence=evidence)]


def _cause(load: Load) -> tuple[str, str, str]:
    """Return (rule, why the ranks waited, what to change): the first that the numbers speak for."""
    place, opens = load.place or "PATH", load.opens_per_sample
    median = load.median_request_bytes if load.advised_mean_bytes is None else int(load.advised_mean_bytes)
    size = _size_text(load)
    if opens is not None and opens >= _ONE_FILE_EACH and (median is None or median < _SMALL_BYTES):
        share = "every sample" if opens > 0.95 else f"{_percent(opens)} of the samples"
        what = f"pack it: `cordee data pack {place} --to FOLDER`, and let [data] point there"
        return "data-small-files", f"a file is opened for {share}, {size}", what
    if load.share_of_limit is not None and load.share_of_limit >= _REACHED:
        reached = f"the limit is reached, {limit_text(load)}"
        what = "read fewer bytes (smaller samples, `fields=`), spread the run over more nodes, or use a faster tier"
        return "data-limit", reached, what
    if load.reading_share is not None and load.reading_share < _MOST_READING:
        reading = (
            f"storage was read in {_percent(load.reading_share)} of the time only, the rest is decoding and collating"
        )
        what = "give the loader more cores (cpus_per_rank, `threads=`), or store samples that are cheaper to decode"
        return "data-decode", reading, what
    if median is not None and median < _SMALL_BYTES:
        what = (
            f"`cordee data bench {place}` says what storage gives for larger ones; read further ahead (`ahead_bytes=`)"
        )
        return "data-small-requests", size, what
    what = f"`cordee data bench {place}` measures the loader alone, beside what storage gives"
    return "data-wait", "storage did not keep up", what


def _size_text(load: Load) -> str:
    if load.advised_mean_bytes is not None:
        return f"read ahead in stretches of {format_size(load.advised_mean_bytes)} in the mean"
    median = load.median_request_bytes
    return f"requests of at most {power_text(median)} in the median" if median is not None else "no requests counted"


def _slow_rank(load: Load) -> list[Finding]:
    """Name the rank that all others wait for."""
    slowest = load.slowest
    others = sorted(rank.wait_share for rank in load.ranks if rank.wait_share is not None and rank is not slowest)
    if slowest is None or slowest.wait_share is None or len(others) < 2:
        return []
    usual = others[len(others) // 2]
    if slowest.wait_share < LEAST_WAIT or slowest.wait_share < _FAR_SLOWER * usual:
        return []
    where = f" on {slowest.node}" if slowest.node else ""
    text = (
        f"rank {slowest.rank}{where} waited {_percent(slowest.wait_share)} of its time for data ({load.name}), "
        f"the others {_percent(usual)} in the median: all wait for it"
    )
    what = "compare its node's storage with the others' (`cordee vet`), and who else works on it"
    if slowest.reading_share is not None and slowest.reading_share < _MOST_READING:
        what = "it hardly reads: see what else its cores do, and whether its samples take longer to decode"
    evidence = {"rank": slowest.rank, "wait_share": slowest.wait_share, "median_wait_share": usual}
    return [Finding(text, "warn", "data-slow-rank", next=what, evidence=evidence)]


def _skipped(load: Load) -> list[Finding]:
    skipped = int(load.totals["skipped"])
    if not skipped:
        return []
    text = f"{skipped:,} samples of {load.name} were skipped: they are not what the index says"
    what = f"`cordee data verify {load.place or 'PATH'}` names them"
    return [Finding(text, "warn", "data-skipped", given=load.place, next=what, evidence={"page": "data"})]


def power_text(size: int) -> str:
    """Return a power of two of bytes as people know it, such as 64 KiB."""
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else format_duration(seconds)
