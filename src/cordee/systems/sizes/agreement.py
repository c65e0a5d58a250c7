"""Whether the results of two runs are the same, bit for bit: what they logged, and the newest checkpoint of each."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder

_MANIFEST = "cordee.json"
# Names the place of the checkpoint and an id of this save: no two are alike.
_OF_ITS_PLACE = (".metadata",)
_MOST_BYTES = 1 << 30


class Agreement(NamedTuple):
    """What was compared of two runs; `checkpoint`: `equal`, `differ`, or why it was not compared."""

    equal: tuple[str, ...]
    differ: tuple[str, ...]
    checkpoint: str

    @property
    def bitwise(self) -> bool | None:
        """Whether all that could be compared is the same; None: there was nothing."""
        if self.differ or self.checkpoint == "differ":
            return False
        return True if self.equal or self.checkpoint == "equal" else None

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**self._asdict(), "bitwise": self.bitwise}

    def line(self) -> str:
        """Return it in words."""
        if self.bitwise is None:
            return f"bit for bit: nothing to compare (no metric was logged; checkpoint: {self.checkpoint})"
        said = f"{len(self.equal)} {'metric' if len(self.equal) == 1 else 'metrics'} equal at each step"
        if self.differ:
            said += f", not {', '.join(self.differ)}"
        return f"bit for bit: {'yes' if self.bitwise else 'no'} ({said}; checkpoint: {self.checkpoint})"


def agreement(before: RunFolder, after: RunFolder) -> Agreement:
    """Compare what two runs left.

    Raises:
        CordeeError: a run cannot be read.
    """
    from cordee.telemetry.store.reader import Run

    runs = Run(before), Run(after)
    logged = [{name for name in run.logged() if not name.startswith("cordee/")} for run in runs]
    equal: list[str] = []
    differ = sorted(logged[0] ^ logged[1])
    for name in sorted(logged[0] & logged[1]):
        (equal if _values(runs[0], name) == _values(runs[1], name) else differ).append(name)
    return Agreement(tuple(equal), tuple(differ), _checkpoints(runs[0], runs[1]))


def _values(run: Any, name: str) -> tuple[bytes, ...]:
    series = run.series(name)
    return tuple(part.tobytes() for part in (series.steps, series.mean, series.low, series.high, series.ranks))


def _checkpoints(before: Any, after: Any) -> str:
    names = [run.state.checkpoint for run in (before, after)]
    if None in names:
        return "not compared: " + ("none was saved" if names == [None, None] else "one run has none")
    places = [
        Path(run.plan["steps"][0]["checkpoint"]["path"]) / name
        for run, name in zip((before, after), names, strict=True)
    ]
    try:
        if all((place / _MANIFEST).is_file() for place in places):
            one, other = (_sums_of_manifest(place) for place in places)
        else:
            one, other = (_sums_of_files(place) for place in places)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not compared: {error}"
    return "equal" if one == other else "differ"


def _sums_of_manifest(place: Path) -> str:
    """Return sizes and CRC-32 of a checkpoint's files, as its manifest has them."""
    manifest = read_json(place / _MANIFEST, place)
    kept = {
        name: (size, manifest["crc32"][name]) for name, size in manifest["files"].items() if name not in _OF_ITS_PLACE
    }
    return json.dumps({"step": manifest["step"], "files": kept}, sort_keys=True)


def _sums_of_files(place: Path) -> str:
    """Return SHA-256 of what a script saved by itself; ValueError: it is too large to be read here."""
    files = (
        {"": place}
        if place.is_file()
        else {
            str(path.relative_to(place)): path
            for path in sorted(place.rglob("*"))
            if path.is_file() and not path.is_symlink() and path.name not in (*_OF_ITS_PLACE, _MANIFEST)
        }
    )
    if sum(os.stat(path).st_size for path in files.values()) > _MOST_BYTES:
        raise ValueError("it has no manifest, and is larger than 1 GiB")
    found = {}
    for name, path in files.items():
        with open(path, "rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    if not found:
        raise ValueError("it has no files")
    return json.dumps(found)
