"""Pickles, run on Python's own machine with nothing behind the names: every class and function is replaced by one that does nothing.

So there is no second parser that could be led astray: what Python would look up is what is asked for here.
"""

from __future__ import annotations

import pickle
import re
from typing import Any, Iterator, NamedTuple, Optional

from cordee.systems.scan.node.formats.pickle_globals import NESTED_LOADERS
from cordee.systems.scan.node.source import Source, TooMuch

_JOBLIB = "joblib.numpy_pickle.NumpyArrayWrapper"
_ITEM = re.compile(r"[<>|=]?([?bBhHiIlLqQuefdgcFDGSaUVOmM])(\d*)")
_SIZES = {
    "?": 1,
    "b": 1,
    "B": 1,
    "h": 2,
    "H": 2,
    "i": 4,
    "I": 4,
    "l": 8,
    "L": 8,
    "q": 8,
    "Q": 8,
    "e": 2,
    "f": 4,
    "d": 8,
    "g": 16,
}
_MOST_STREAMS = 1000
_OLDER_BYTES = 64 << 20
_LOOKED_AT = ("numpy.dtype",)  # calls whose arguments matter later


class PickleStream(NamedTuple):
    """One pickle of a file.

    Attributes:
        names: what it looks up, `(module, name)`, each once and in order.
        nested: bytes that it hands to a call that unpickles them.
        end: where the next byte behind it stands; None: it did not come to its end.
        fault: why not.
        calls: how many calls it makes.
    """

    names: tuple[tuple[str, str], ...]
    nested: tuple[bytes, ...]
    end: Optional[int]
    fault: str
    calls: int


class Nothing:
    """What every name stands for: it can be called, made, filled and changed, and does nothing."""

    full = ""
    machine: Any = None
    given: tuple[Any, ...] = ()

    def __new__(cls, *given: Any, **_: Any) -> Any:
        new: Any = object.__new__(cls)
        if cls.machine is not None:
            cls.machine.called(cls.full, given)
            new.given = given if cls.full in _LOOKED_AT else ()
        return new

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Nothing()

    def __setstate__(self, state: Any) -> None:
        machine = type(self).machine
        if machine is not None and type(self).full == _JOBLIB:
            machine.array_follows(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, _: Any) -> None:
        pass

    def extend(self, _: Any) -> None:
        pass

    def add(self, _: Any) -> None:
        pass

    def update(self, *_: Any) -> None:
        pass


class _Sights:
    """What is common to both machines: Python's own in C, and its older one in Python, which joblib uses and which reads numbers less strictly."""

    _file: Any
    _exact: bool
    names: dict[tuple[str, str], type]
    nested: list[bytes]
    calls: int

    def begin(self, file: Any, exact: bool) -> None:
        """Begin with nothing seen."""
        self._file, self._exact = file, exact
        self.names, self.nested, self.calls = {}, [], 0

    def find_class(self, module: str, name: str) -> Any:
        known = self.names.get((module, name))
        if known is None:
            known = self.names[module, name] = type(
                "Nothing", (Nothing,), {"full": f"{module}.{name}", "machine": self}
            )
        return known

    def persistent_load(self, pid: Any) -> Any:
        return Nothing()

    def called(self, full: str, given: tuple[Any, ...]) -> None:
        self.calls += 1
        if full in NESTED_LOADERS:
            texts = (one.encode("latin1", "replace") if isinstance(one, str) else one for one in given)
            self.nested.extend(bytes(one) for one in texts if isinstance(one, (bytes, bytearray)))

    def array_follows(self, state: Any) -> None:
        """A wrapper of joblib: the array's bytes stand in the file behind it, or a pickle of its objects."""
        if not self._exact or not isinstance(state, dict):
            return
        padded = state.get("numpy_array_alignment_bytes")
        code = _code_of(state.get("dtype"))
        shape = state.get("shape", ())
        if code is None or not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
            raise pickle.UnpicklingError("an array of joblib has a type that is not known")
        if code == "O":
            inner = _Machine(self._file, True)
            inner.names, inner.nested = self.names, self.nested
            inner.load()
            return
        if padded:
            self._file.seek(self._file.read(1)[0], 1)
        count = 1
        for size in shape:
            count *= max(0, size)
        self._file.seek(count * int(code), 1)


class _Machine(_Sights, pickle.Unpickler):
    def __init__(self, file: Any, exact: bool) -> None:
        super().__init__(file, encoding="latin1", buffers=iter(()))
        self.begin(file, exact)


class _OlderMachine(_Sights, pickle._Unpickler):  # type: ignore[name-defined,misc]
    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="latin1", buffers=iter(()))
        self.begin(file, False)


def _code_of(dtype: Any) -> Optional[str]:
    """Return how many bytes an item of a numpy type has, or "O" for objects."""
    given = getattr(dtype, "given", ())
    told = _ITEM.fullmatch(given[0]) if given and isinstance(given[0], str) else None
    if told is None:
        return None
    letter, size = told.groups()
    if letter == "O":
        return "O"
    if letter == "U":
        return str(4 * int(size or 0))
    return size or (str(_SIZES[letter]) if letter in _SIZES else None)


def streams(source: Source) -> Iterator[PickleStream]:
    """Yield the pickles that stand one behind the other at the begin of a source, up to the first that is cut off or none."""
    offset = 0
    for _ in range(_MOST_STREAMS):
        rest = source.part(offset, source.size - offset)
        stream = _run(rest, exact=False)
        if any(".".join(name) == _JOBLIB for name in stream.names):
            stream = _run(rest, exact=True)
        yield stream
        if stream.end is None or not stream.end or offset + stream.end >= source.size:
            return
        offset += stream.end
    raise TooMuch("more than 1,000 pickles one behind the other")


def _run(source: Source, exact: bool) -> PickleStream:
    file = source.file(ahead=not exact)
    machine = _Machine(file, exact)
    stream = _seen(machine, file)
    if stream.end is None and source.size <= _OLDER_BYTES:
        file = source.file()
        older = _seen(_OlderMachine(file), file)
        names = tuple(dict.fromkeys((*stream.names, *older.names)))
        stream = stream._replace(names=names, nested=stream.nested + older.nested, calls=max(stream.calls, older.calls))
    return stream


def _seen(machine: Any, file: Any) -> PickleStream:
    end, fault = None, ""
    try:
        machine.load()
        end = file.tell()
    except TooMuch:
        raise
    except MemoryError:
        fault = "it wants more memory than a scan may have"
    except RecursionError:
        fault = "it is nested too deeply"
    except EOFError:
        fault = "it is cut off"
    except Exception as error:  # the machine raises whatever its opcodes meet
        fault = "it is cut off" if "truncated" in str(error) else f"it cannot be read to its end ({str(error)[:120]})"
    names = tuple(machine.names)
    for kind in machine.names.values():
        kind.machine = None  # type: ignore[attr-defined]
    return PickleStream(names, tuple(machine.nested), end, fault, machine.calls)
