"""Whether a step has been done: digests of what it runs, reads and leaves."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

from cordee.runs.folder import RunFolder
from cordee.runs.snapshot import code_entries

# Of larger files size and time of the last change count, not the content.
LARGE_BYTES = 64 << 20
_ALL_BYTES = 1 << 30


def digest_of_place(place: Path) -> Optional[str]:
    """Return a digest of a file, or of all files in a folder; None where there is none."""
    if not place.exists():
        return None
    digest, left = hashlib.sha256(), _ALL_BYTES
    for path in [place] if not place.is_dir() else _files(place):
        digest.update(str(path.relative_to(place)).encode() + b"\0")
        try:
            status = path.stat()
            if status.st_size > min(LARGE_BYTES, left):
                digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
                continue
            left -= status.st_size
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()


def _files(folder: Path) -> List[Path]:
    return sorted(Path(at) / name for at, _, names in os.walk(folder) for name in names)


def digests_of(folder: Path, names: Iterable[str]) -> Dict[str, Optional[str]]:
    """Return the digests of outputs below a job's folder, by name; None: it is not there."""
    return {name: digest_of_place(folder / name) for name in names}


def step_digest(parent: RunFolder, about: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one digest of what a step runs and reads.

    Args:
        parent: the run whose snapshot of the code counts where the step names no inputs.
        about: the step's part of the graph.
        before: what the steps that it comes after have left: digests by output, by the step's name.
    """
    folder = Path(str(about["folder"]))
    if about["inputs"]:
        named = sorted({match for name in about["inputs"] for match in _matches(folder, str(name))})
        read: Any = {name: digest_of_place(folder / name) for name in named}
    else:
        without = (str(about["document"]), *about["all_outputs"])
        read = code_entries(parent.code_manifest, without)
    told = {"step": about["identity"], "reads": read, "before": {name: dict(left) for name, left in before.items()}}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _matches(folder: Path, name: str) -> List[str]:
    found = glob.glob(os.path.join(glob.escape(str(folder)), name), recursive=True)
    return [os.path.relpath(match, folder) for match in found] or [name]
