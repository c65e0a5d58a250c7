"""One dump, read as plain values: nothing that a file says is executed, and no file takes more than its share of memory."""

from __future__ import annotations

import gc
import io
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter, lt
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, NoReturn

from cordee.machine.foreign_files import parse_json, read_regular

LIMIT_BYTES = 64 << 20  # of a file; 2,000 entries with stacks are about 0.5 MB
_LIMIT_MEMORY_BYTES = 1 << 30
_IDENTITY = ("record_id", "time_created_ns", "profiling_name", "collective_seq_id", "p2p_seq_id", "op_id")
_SIZES = ("input_sizes", "output_sizes")
_number = itemgetter("record_id")
_STATM = Path("/proc/self/statm")


class DumpFile(NamedTuple):
    """One file that by its name is a dump.

    Attributes:
        rank: by the name; a dump itself does not say it.
        modified: when it was written, seconds.
        more: other forms of the same rank's dump, taken when this one cannot be read.
    """

    rank: int
    path: Path
    modified: float
    more: tuple[Path, ...] = ()


class DumpError(Exception):
    """A file is no dump that can be read; says why."""


class _Plain(pickle.Unpickler):
    """Numbers, texts, lists and dicts: whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and a dump holds plain values only; nothing was run")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside of it")


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Bound what this process may take, so that a made file meets MemoryError and not the machine's last page.

    What is read has no cycles, and is not searched for them meanwhile.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with _limited():
            yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _limited() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        now = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        yield
        return
    bound = now + _LIMIT_MEMORY_BYTES
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def load_dump(file: DumpFile) -> dict[str, Any]:
    """Return a rank's dump, in its first form that can be read: `entries` is a list and `pg_config` a dict.

    Each record is in `entries` once, in the order of its numbers; `twice` says how many copies were dropped.

    Raises:
        DumpError: none of its forms can be read.
    """
    reasons = []
    for path in (file.path, *file.more):
        try:
            return _load(path)
        except DumpError as error:
            reasons.append(f"{path.name}: {error}" if file.more else str(error))
    raise DumpError("; ".join(reasons))


def _load(path: Path) -> dict[str, Any]:
    try:
        data = read_regular(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        raise DumpError(error.strerror or str(error)) from None
    if not data:
        raise DumpError("it is empty")
    dump = _parsed(data)
    if not isinstance(dump, dict) or not ("entries" in dump or "pg_config" in dump):
        raise DumpError("it is no Flight Recorder dump")
    # PyTorch leaves entries out of JSON where there are none.
    entries, config = dump.get("entries", []), dump.get("pg_config", {})
    if not isinstance(entries, list) or not isinstance(config, dict):
        raise DumpError("it is no Flight Recorder dump: entries are no list, or pg_config no table")
    once = _each_once(entries)
    return {**dump, "entries": once, "pg_config": config, "twice": len(entries) - len(once)}


def _each_once(entries: list[Any]) -> list[Any]:
    """Return records without copies, as a ring has them that is dumped while it is written: of each the newest state.

    A copy differs in its state at most; the parts of a batch have their own numbers and times, and stay.
    """
    try:
        if all(map(lt, map(_number, entries), map(_number, islice(entries, 1, None)))):
            return entries
    except (KeyError, TypeError):
        pass  # some have no number
    newest: dict[Any, Any] = {}
    for place, entry in enumerate(entries):
        try:
            sizes = [(*size, ";") for key in _SIZES for size in (*entry[key], ":")]
            what = (*entry["process_group"], *map(entry.get, _IDENTITY), *chain.from_iterable(sizes))
            if any(type(one) not in (int, str, NoneType) for one in what):  # what is nested could be without end
                raise TypeError
            if what not in newest or _state(entry) >= _state(newest[what]):
                newest[what] = entry
        except (KeyError, TypeError, AttributeError, MemoryError):
            newest[place] = entry  # it is told as one that cannot be understood
    once = list(newest.values())
    numbers = [entry.get("record_id") if isinstance(entry, dict) else None for entry in once]
    if all(type(number) is int for number in numbers) and len(set(numbers)) == len(once):
        once.sort(key=_number)
    return once


def _state(entry: dict[str, Any]) -> tuple[bool, ...]:
    """Return how far a call had come."""
    return entry["state"] == "completed", entry.get("retired") is True, entry["state"] == "started"


def _parsed(data: bytes) -> Any:
    try:
        if data.lstrip()[:1] == b"{":
            return parse_json(data)
        return _Plain(io.BytesIO(data)).load()
    except MemoryError:
        raise DumpError("it would take more than 1 GiB of memory") from None
    except RecursionError:
        raise DumpError("it is nested too deeply") from None
    except EOFError:
        raise DumpError("it is cut off") from None
    except Exception as error:  # the unpickler raises whatever its opcodes meet: IndexError, AttributeError, TypeError
        said = str(error)
        raise DumpError("it is cut off" if "truncated" in said else f"it cannot be read: {said[:200]}") from None
