"""Which checkpoints lie in a folder, in which order, and which of them are whole; also those of scripts that save by themselves."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, BinaryIO, Callable, Optional, Union

from cordee.machine.foreign_files import regular
from cordee.runs.checkpoint import Checkpoint

MANIFEST = "cordee.json"
SCHEMA = "cordee.checkpoint/1"
PATTERN = "step-*"

_WILDCARD = re.compile(r"[*?\[]")
# A number counts after one of these words, the first before the others; a part of a decimal number counts last of all.
_COUNTS = tuple(re.compile(rf"{word}\D{{0,2}}(\d+)", re.IGNORECASE) for word in ("step", "iter(?:ation)?", "epoch"))
_WHOLE_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d+(?!\d|\.\d)")
_NUMBER = re.compile(r"\d+")
_UNFINISHED = re.compile(r"\.|tmp[-_]|.*[-._](?:tmp|part|partial|incomplete|unfinished)\Z", re.IGNORECASE | re.DOTALL)
# What the Trainer of transformers writes into a checkpoint, and what it writes after that.
_OF_TRAINER = re.compile(
    r"training_args\.bin|rng_state.*\.pth|optimizer\.(?:pt|bin)|scheduler\.pt|(?:model|adapter_model|pytorch_model).*"
)
_TRAINER_STATE = "trainer_state.json"
_MOST_BESIDE = 16
# Of a file by itself that is a fault; one among others may be what a script calls so.
_NO_HEADER = "it does not begin as its ending says"
_DATA = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_LARGEST_HEADER_BYTES = 100 << 20
_LARGEST_MANIFEST_BYTES = 64 << 20

Path = Union[str, "os.PathLike[str]"]


@dataclass
class KnownCheckpoints:
    """What earlier looks at a checkpoint folder have found, so that what is unchanged is not looked into again.

    Attributes:
        whole: entries whose files were all seen in full, by path, with their mtime_ns; `there`: all files of which were there.
        faulty: entries that were looked into thoroughly and are not whole.
        operations: metadata operations of the last look.
    """

    whole: dict[str, int] = field(default_factory=dict)
    there: dict[str, int] = field(default_factory=dict)
    faulty: dict[str, int] = field(default_factory=dict)
    operations: int = 0

    def forget(self) -> None:
        """Look anew at everything."""
        self.whole.clear()
        self.there.clear()
        self.faulty.clear()


def find_checkpoints(
    path: Path,
    pattern: str = PATTERN,
    ignore: Optional[Mapping[str, int]] = None,
    problems: Optional[list[str]] = None,
) -> list[Checkpoint]:
    """Return the complete checkpoints of a folder, the newest last.

    They are ordered by the number in their names (after `step`, `iteration` or `epoch` if such a word is there), then by their
    names read naturally, then by time; names without a number come first. Hidden names, and names that end in `.tmp`, `-tmp`,
    `.part`, `.partial` and the like, never count.

    Args:
        path: the checkpoint folder; one that is missing holds none.
        pattern: a shell pattern, also with folders: `run-*/step-*.pt`.
        ignore: name to mtime_ns of entries that do not count as long as they are unchanged.
        problems: receives a sentence for each entry or folder that matched and could not be used.
    """
    return [found for found in candidates(path, pattern, ignore, problems) if _is_complete(found, problems)]


def newest_complete(
    path: Path,
    pattern: str = PATTERN,
    ignore: Optional[Mapping[str, int]] = None,
    problems: Optional[list[str]] = None,
    accept: Optional[Callable[[Checkpoint], bool]] = None,
    known: Optional[KnownCheckpoints] = None,
    *,
    thorough: bool = True,
) -> Optional[Checkpoint]:
    """Return the last of `find_checkpoints`, or None; looks at no more entries than it must.

    Args:
        accept: whether an entry may be it, asked before the entry is looked into.
        known: of earlier looks; this one adds to it.
        thorough: look at the size of each file, one question a file; otherwise a list of names is enough, unless it was
            looked into thoroughly before and not whole.
    """
    known = known or KnownCheckpoints()
    known.operations = 0
    for found in _newest_first(path, pattern, problems, known):
        if (ignore and ignore.get(found.name) == found.mtime_ns) or (accept is not None and not accept(found)):
            continue
        if known.whole.get(found.path) == found.mtime_ns:
            return found
        if not thorough and known.faulty.get(found.path) == found.mtime_ns:
            continue
        if not thorough and known.there.get(found.path) == found.mtime_ns:
            return found
        if _is_complete(found, problems, known, thorough=thorough):
            seen = known.whole if thorough else known.there
            seen.clear()
            seen[found.path] = found.mtime_ns
            return found
        if thorough:
            known.faulty[found.path] = found.mtime_ns
    return None


def checkpoint_at(path: Path, problems: Optional[list[str]] = None) -> Optional[Checkpoint]:
    """Return the complete checkpoint that a path names, None when it is not one; `problems` then says why."""
    full = os.path.abspath(path)
    name = os.path.basename(full)
    try:
        mtime_ns = os.stat(full).st_mtime_ns
    except OSError as error:
        _say(problems, f"{name} cannot be read: {error.strerror}")
        return None
    found = Checkpoint(full, name, _step_of(name, ""), mtime_ns)
    return found if _is_complete(found, problems) else None


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint that Cordée wrote.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is damaged, or written by a newer Cordée.
    """
    with open(os.path.join(path, MANIFEST), "rb", opener=regular) as file:
        return parsed_manifest(file.read(_LARGEST_MANIFEST_BYTES))


def parsed_manifest(text: bytes) -> dict[str, Any]:
    """Return what a manifest holds.

    Raises:
        ValueError: it is damaged, or written by a newer Cordée.
    """
    manifest = _parsed(text, MANIFEST)
    files = manifest.get("files")
    if not isinstance(files, dict) or any(os.path.basename(name) != name for name in files):
        raise ValueError(f"{MANIFEST} is damaged")
    if manifest.get("schema") != SCHEMA:
        raise ValueError(f"{MANIFEST} has schema {manifest.get('schema')!r}, this version reads {SCHEMA!r}")
    return manifest


def run_of(path: Path) -> tuple[bool, Optional[str]]:
    """Return whether a checkpoint has a readable manifest, and the run that it names, None when it names none."""
    try:
        run = read_manifest(path).get("run")
    except (OSError, ValueError):
        return False, None
    return True, run if isinstance(run, str) and run else None


def _parsed(text: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object; whatever else it is raises ValueError, also what is nested too deep to be read."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"{what} is damaged")
    return document


def candidates(
    path: Path,
    pattern: str,
    ignore: Optional[Mapping[str, int]] = None,
    problems: Optional[list[str]] = None,
) -> list[Checkpoint]:
    """Return what `find_checkpoints` would look into, in its order: entries by name, whole or not."""
    found = list(_newest_first(path, pattern, problems, KnownCheckpoints()))
    return [one for one in reversed(found) if not ignore or ignore.get(one.name) != one.mtime_ns]


def _newest_first(
    path: Path, pattern: str, problems: Optional[list[str]], known: KnownCheckpoints
) -> Iterator[Checkpoint]:
    """Yield what matches, the newest first; what is not asked for costs nothing but its name in a listing."""
    root = os.path.abspath(path)
    last_part = pattern.rstrip("/").rpartition("/")[2]
    keyed = []
    for name in _matches(root, [part for part in pattern.split("/") if part], "", problems, known):
        step = _step_of(name.rpartition("/")[2], last_part)
        keyed.append(((-1 if step is None else step, _natural(name)), name, step))
    keyed.sort(reverse=True)
    for _, same in groupby(keyed, key=itemgetter(0)):
        there = []
        for _, name, step in same:
            full = os.path.join(root, name)
            known.operations += 1
            try:
                there.append(Checkpoint(full, name, step, os.stat(full).st_mtime_ns))
            except OSError as error:
                _say(problems, f"{name} cannot be read: {error.strerror}")
        yield from sorted(there, key=attrgetter("mtime_ns"), reverse=True)


def _matches(
    root: str, parts: list[str], below: str, problems: Optional[list[str]], known: KnownCheckpoints
) -> Iterator[str]:
    """Yield the names below `root` that match the pattern's parts."""
    if not parts:
        return
    part, rest = parts[0], parts[1:]
    folder = os.path.join(root, below)
    known.operations += 1
    if not _WILDCARD.search(part):
        names = [part] if os.path.lexists(os.path.join(folder, part)) else []
    else:
        try:
            names = [
                name for name in os.listdir(folder) if fnmatch.fnmatchcase(name, part) and not _is_unfinished(name)
            ]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            _say(problems, f"{folder} cannot be read: {error.strerror}")
            return
    for name in names:
        here = f"{below}/{name}" if below else name
        if rest:
            yield from _matches(root, rest, here, problems, known)
        else:
            yield here


def _is_unfinished(name: str) -> bool:
    return _UNFINISHED.match(name) is not None


def _step_of(name: str, pattern: str) -> Optional[int]:
    for counts in _COUNTS:
        if after_word := counts.search(name):
            return int(after_word.group(1))
    fixed = _WILDCARD.split(pattern, maxsplit=1)[0]
    begin = len(fixed) if name.startswith(fixed) else 0
    number = _WHOLE_NUMBER.search(name, begin) or _NUMBER.search(name, begin)
    return int(number.group()) if number else None


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"([0-9]+)", name)  # numbers are the odd ones
    return tuple((1, int(part), "") if at % 2 else (0, 0, part) for at, part in enumerate(parts) if part)


def _is_complete(
    found: Checkpoint, problems: Optional[list[str]], known: Optional[KnownCheckpoints] = None, *, thorough: bool = True
) -> bool:
    known = known or KnownCheckpoints()
    known.operations += 1
    try:
        is_folder = os.path.isdir(found.path)
        reason = _folder_fault(found.path, known, thorough=thorough) if is_folder else _file_fault(found.path, known)
    except Exception as error:  # whatever lies there, by whomever: it must not end the run
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if reason is not None:
        _say(problems, f"{found.name} is not used: {reason}")
    return reason is None


def _folder_fault(path: str, known: KnownCheckpoints, *, thorough: bool) -> Optional[str]:
    """Return why a folder is no complete checkpoint, or None."""
    names = frozenset(os.listdir(path))
    known.operations += 2  # the listing, and what is read of it
    if MANIFEST in names:
        files = read_manifest(path)["files"]
        if not thorough:
            missing = next((name for name in files if name not in names), None)
            return None if missing is None else f"{missing} is missing"
        for name, size in files.items():
            known.operations += 1
            try:
                actual = os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                return f"{name} is missing"
            if actual != size:
                return f"{name} has {actual} bytes, {size} were written"
        return None
    if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
        return "its .metadata, which is written last, is missing"
    fault = _trainer_fault(path, names, known)
    if fault is not None:
        return fault
    empty = True
    for folder, _, files in os.walk(path):
        empty = empty and not files
        for name in files if thorough else ():
            if name.endswith(_DATA):
                file = os.path.join(folder, name)
                fault = _file_fault(file, known)
                if fault is not None and fault != _NO_HEADER:
                    return f"{os.path.relpath(file, path)}: {fault}"
    return "it holds no file" if empty else None


def _trainer_fault(path: str, names: frozenset[str], known: KnownCheckpoints) -> Optional[str]:
    """Return what a checkpoint of the Trainer of transformers lacks: that one beside it has its state says that this one should."""
    if _TRAINER_STATE in names or not any(_OF_TRAINER.fullmatch(name) for name in names):
        return None
    parent, own = os.path.split(path)
    shape = re.sub(r"[0-9]+", "0", own)
    others = [name for name in os.listdir(parent) if name != own and re.sub(r"[0-9]+", "0", name) == shape]
    others = others[:_MOST_BESIDE]
    known.operations += 1 + len(others)
    of_trainer = "training_args.bin" in names or any(
        os.path.exists(os.path.join(parent, name, _TRAINER_STATE)) for name in others
    )
    return f"its {_TRAINER_STATE}, which is written last, is missing" if of_trainer else None


def _file_fault(path: str, known: KnownCheckpoints) -> Optional[str]:
    """Return why a file is no complete checkpoint, or None; formats that tell their length are looked at."""
    known.operations += 2
    status = os.stat(path)
    size = status.st_size
    if stat.S_ISREG(status.st_mode) and size == 0:
        return "it is empty"
    with open(path, "rb", opener=regular) as file:
        start = file.read(8)
        if start[:4] == b"PK\x03\x04":
            import zipfile

            return None if zipfile.is_zipfile(path) else "its end is missing"
        if path.endswith(".safetensors"):
            return _safetensors_fault(start, file, size)
    return None


def _safetensors_fault(start: bytes, file: BinaryIO, size: int) -> Optional[str]:
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
    if length > _LARGEST_HEADER_BYTES:
        return _NO_HEADER
    if length > size - 8:
        return "its header is cut off"
    header = _parsed(file.read(length), "its header")
    try:
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (TypeError, LookupError, ValueError):
        return "its header is damaged"
    return "its end is missing" if size < 8 + length + max(ends, default=0) else None


def _say(problems: Optional[list[str]], text: str) -> None:
    if problems is not None:
        problems.append(text)
