"""What storage gave when it was measured: kept by `cordee data bench`, so that a training's reading has a limit beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from typing import Mapping, Optional, Union

from cordee.machine.mounts import mount_of, read_mounts

SCHEMA = "cordee.data-limits/1"

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class BareRate:
    """Bytes per second that a bare loop of reads gave for the samples of one data set.

    `cache` is `warm` (from the page cache), `cold` (from the device) or `remote` (from an object store); `measured` is in seconds since 1970.
    """

    bytes_per_s: float
    cache: str
    host: str
    measured: float


def find_limit(
    identity: str,
    path: Path,
    cache: Optional[str] = None,
    environ: Mapping[str, str] = os.environ,
) -> Optional[BareRate]:
    """Return the newest limit that was measured for a data set on the file system it lies on; None: nobody has.

    Those of this host go before those of others. Touches no data: the file system is told by the path's name.

    Args:
        identity: as `Source.identity` says.
        path: where the data set lies now: a copy on another file system has limits of its own.
        cache: only a limit of this kind.
    """
    folder = _folder(identity, environ)
    here, host = file_system(path), socket.gethostname()
    best: Optional[tuple[bool, float, BareRate]] = None
    for name in _names(folder):
        for limit in _read(os.path.join(folder, name), here):
            rank = (limit.host == host, limit.measured)
            if cache in (None, limit.cache) and (best is None or rank > best[:2]):
                best = (*rank, limit)
    return best[2] if best else None


def write_limits(
    identity: str, path: Path, limits: Mapping[str, float], measured: float, environ: Mapping[str, str] = os.environ
) -> str:
    """Keep what was measured on this host and return the file; one file per host, replaced as a whole.

    Args:
        limits: bytes per second, by kind of cache; the last one counts as the newest.
        measured: when, in seconds since 1970.

    Raises:
        OSError: the folder for what can be made again (`~/.cache/cordee`) cannot be written.
    """
    folder, host, here = _folder(identity, environ), socket.gethostname(), file_system(path)
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, f"{_plain(host)}.json")
    kept = [entry for entry in _entries(target) if entry.get("file_system") != here]
    for number, (cache, rate) in enumerate(limits.items()):
        limit = BareRate(rate, cache, host, measured + number * 1e-3)
        kept.append({**asdict(limit), "file_system": here})
    partial = f"{target}.{os.getpid()}.partial"
    with open(partial, "w") as file:
        json.dump({"schema": SCHEMA, "limits": kept}, file)
    os.replace(partial, target)
    return target


def file_system(path: Path) -> str:
    """Return the kind and source of the file system a path lies on, or an address's scheme and bucket."""
    text = os.fspath(path)
    if "://" in text:
        return "/".join(text.split("/")[:3])
    mount = mount_of(os.path.abspath(text), read_mounts("/"))
    return f"{mount.kind} {mount.source}" if mount else "unknown"


def _folder(identity: str, environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CACHE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(base, "cordee", "data-limits", _plain(identity))


def _plain(word: str) -> str:
    """Return a word that is a file name; one that is not becomes its digest."""
    plain = word.replace("-", "").replace(".", "").replace("_", "").isalnum() and not word.startswith(".")
    return word if plain and len(word) <= 64 else hashlib.sha256(word.encode()).hexdigest()[:32]


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder) if name.endswith(".json")]
    return []


def _entries(path: str) -> list[dict[str, object]]:
    """Return what a file holds; one that is damaged or newer holds nothing: it can be measured again."""
    try:
        with open(path) as file:
            document = json.load(file)
    except (OSError, ValueError):
        return []
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return []
    return [entry for entry in document.get("limits", []) if isinstance(entry, dict)]


def _read(path: str, here: str) -> list[BareRate]:
    found = []
    for entry in _entries(path):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            limit = BareRate(
                float(entry["bytes_per_s"]),  # type: ignore[arg-type]
                str(entry["cache"]),
                str(entry["host"]),
                float(entry["measured"]),  # type: ignore[arg-type]
            )
            if entry.get("file_system") == here and limit.bytes_per_s > 0:
                found.append(limit)
    return found
