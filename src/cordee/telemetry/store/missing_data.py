"""What is not there of a run's telemetry, and why: a folder half copied, damage, wrong clocks, what had to be left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cordee.telemetry.node.blocklog import MOST_RUN_NAMES
from cordee.telemetry.store.sealed import STORE, Commit

_MOST_NAMED = 5


class MissingSamples(NamedTuple):
    """One thing that is missing: what, why, and what would bring it back (empty: nothing would)."""

    what: str
    why: str
    next: str = ""


def missing_shards(telemetry: Path, commit: Commit, damaged: Mapping[str, str]) -> list[MissingSamples]:
    """Return what is said to be sealed and cannot be read: files that are not there, or `damaged`, by their names."""
    store = telemetry / STORE
    if store.is_dir() and not (store / "zarr.json").exists():
        return [
            MissingSamples("everything that was sealed", f"{STORE}/zarr.json is not there", "copy the run folder again")
        ]
    gone = [name for name in commit.shards if not (telemetry / STORE / name).exists()]
    copy = "copy the run folder again; what is missing is shown as a gap"
    found = []
    if gone:
        found.append(
            MissingSamples(f"{len(gone)} of {len(commit.shards)} files of samples: {_named(gone)}", "not there", copy)
        )
    for name, reason in damaged.items():
        found.append(MissingSamples(f"samples in {name}", reason, copy))
    return found


def missing_in_log(skipped_bytes: int, malformed_records: int) -> list[MissingSamples]:
    """Return what of the block log makes no sense."""
    found = []
    if skipped_bytes:
        found.append(MissingSamples(f"{skipped_bytes} bytes of the block log", "they were damaged and are passed over"))
    if malformed_records:
        found.append(
            MissingSamples(f"{malformed_records} records of the block log", "they make no sense and are passed over")
        )
    return found


def missing_samples(outside: Mapping[str, int], jumps: Mapping[str, float]) -> list[MissingSamples]:
    """Return, by group and by node, what wrong clocks did to samples."""
    found = [
        MissingSamples(
            f"{count} samples of {group}", "their clock was more than a day before, or 400 days after, all others"
        )
        for group, count in outside.items()
        if count
    ]
    for node, back_s in jumps.items():
        what = f"{back_s:.0f} s of samples of {node}, perhaps"
        found.append(MissingSamples(what, "its clock went back while it measured; the later sample counts"))
    return found


def missing_events(dropped: int, capped_values: int) -> list[MissingSamples]:
    """Return what ranks logged and is not kept."""
    found = []
    if dropped:
        found.append(
            MissingSamples(f"{dropped} events of ranks", "they were logged faster than they could be taken in")
        )
    if capped_values:
        why = f"there are more than {MOST_RUN_NAMES} metric names; those of further names are left out"
        found.append(MissingSamples(f"{capped_values} logged values", why, "log a quantity under one name"))
    return found


def _named(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    )
