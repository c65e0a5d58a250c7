"""What was brought to a node is looked at before ranks can load it; what has the same digest was looked at before."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

from cordee.core.findings import Finding
from cordee.core.words import counted
from cordee.runs.folder import write_atomically
from cordee.systems.scan.node.scanner import Scanner

# A look that takes minutes is switched off: what loads by itself goes first, and what was not looked at is said.
_MOST_FILES, _MOST_SNIFFED, _MOST_S, _MOST_TOLD = 2_000, 100_000, 120.0, 5
_LOADED = (b"\x80", b"PK", b"\x89HDF", b"GGUF", b"c", b"(", b"\x08")
_FORM = "1"  # of what is kept


def staged_findings(target: Path, key: str, part: Mapping[str, Any]) -> list[Finding]:
    """Return what is to be said of a data set that was staged: an error where the job's policy refuses it.

    Args:
        target: the file or folder, as it lies on the node.
        key: the digest of what it is: names, sizes, times or tags of its objects.
        part: of the plan: `policy` and `allow`.
    """
    policy, allowed = str(part.get("policy", "")), list(part.get("allow", ()))
    if policy == "off":
        return []
    told = hashlib.sha256("\n".join([_FORM, key, *sorted(allowed)]).encode()).hexdigest()
    kept = _cache() / f"{told[:40]}.json"
    known = _known(kept)
    if known is None:
        known = _looked(target, allowed)
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(kept, json.dumps(known))
    return list(_findings(known, target, policy))


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "cordee" / "scan" / "staged"


def _known(kept: Path) -> Optional[dict[str, Any]]:
    try:
        known = json.loads(kept.read_text())
        return {
            "files": int(known["files"]),
            "looked": int(known["looked"]),
            "bad": [tuple(one) for one in known["bad"]],
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _looked(target: Path, allowed: list[str]) -> dict[str, Any]:
    """Return how many files there are, how many were looked at, and of those that are not clean (name, verdict, rule, text)."""
    until = time.monotonic() + _MOST_S
    files = sorted(_files(target))
    loaded = [path for path in files[:_MOST_SNIFFED] if _loads(path)]
    first, bad, looked = set(loaded), [], 0

    def in_time() -> Iterator[str]:
        for path in islice((*loaded, *(path for path in files if path not in first)), _MOST_FILES):
            if time.monotonic() > until:
                return
            yield path

    with Scanner(allowed, min(4, os.cpu_count() or 1), patience=lambda _: until - time.monotonic() + 1.0) as scanner:
        for verdict in scanner.scan_all(in_time()):
            late = time.monotonic() > until and any(one.rule == "file-too-much" for one in verdict.sights)
            looked += not late
            sights = [] if late else [one for one in verdict.sights if one.severity in ("block", "unknown")]
            if sights:
                sight = max(sights, key=lambda one: one.severity == "block")
                where = f" ({sight.where})" if sight.where else ""
                name = os.path.relpath(verdict.path, target.parent)
                bad.append((name, sight.severity, sight.rule, sight.text + where))
    return {"files": len(files), "looked": looked, "bad": sorted(bad, key=lambda one: (one[1] != "block", one))[:100]}


def _files(target: Path) -> Iterator[str]:
    if target.is_file():
        yield str(target)
    for folder, _, names in os.walk(target):
        yield from (path for name in names if os.path.isfile(path := os.path.join(folder, name)))


def _loads(path: str) -> bool:
    """Return whether a file begins as those do that are loaded as a whole: pickles, checkpoints, models."""
    try:
        with open(path, "rb") as file:
            head = file.read(9)
    except OSError:
        return False
    return head.startswith(_LOADED) or head[8:9] == b"{"


def _findings(known: Mapping[str, Any], target: Path, policy: str) -> Iterator[Finding]:
    stops = {"warn": (), "": ("block",)}.get(policy, ("block", "unknown"))
    for name, verdict, rule, text in known["bad"][:_MOST_TOLD]:
        what = f"`cordee scan --explain {rule}` says what this is; take it out of the data set, or name what is harmless in [scan] allow"
        severity = "error" if verdict in stops else "warn"
        yield Finding(f"{name}: {text}", severity, f"scan-{rule}", file=str(target.parent / name), next=what)
    left = known["files"] - known["looked"]
    if left > 0:
        said = f"{known['looked']:,} files of {target.name} were looked at, {counted(left, 'file')} not"
        yield Finding(said, "info", "scan-not-all", next="look at the rest once by `cordee scan`")
