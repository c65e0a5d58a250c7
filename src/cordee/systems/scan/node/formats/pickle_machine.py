"""Pickles, run on Python's own machine with nothing behind the names: every class and function is replaced by one that does nothing.

So there is no second parser that could be led astray: what Python would look up is what is asked for here.
"""

from __future__ import annotations

import pickle
import re
from collections import deque
from encodings.aliases import aliases
from itertools import islice
from typing import Any, ClassVar, Iterator, NamedTuple, Optional, Union

from cordee.systems.scan.node.formats.pickle_globals import NESTED_LOADERS, ONLY_MADE, PARTIAL
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
_MOST_STREAMS, _MOST_WALKED, _MOST_HANDED = 1000, 10_000, 100_000
_OLDER_BYTES = 64 << 20
# How Python pickles a class method, `getattr` of the class, and a type hint, `getitem`. Some uses are known to be harmless, no other is.
_REACH = (("builtins", "getattr"), ("__builtin__", "getattr"), ("_operator", "getitem"))
_METHODS = {("zoneinfo.ZoneInfo", "_unpickle")}
_WATCHED = frozenset({*_REACH, *(full.rpartition(".")[::2] for full in NESTED_LOADERS | ONLY_MADE)})
# The opcodes that put into a list, table or set, and how many of the newest on the stack they put there; 0: all since the last mark.
_PUTS = {
    pickle.APPEND: 1, pickle.SETITEM: 2, pickle.APPENDS: 0, pickle.SETITEMS: 0, pickle.ADDITEMS: 0, pickle.LIST: 0, pickle.DICT: 0,
}  # fmt: skip
_LOOKED_AT = ("numpy.dtype",)  # calls whose arguments matter later
# How bytes stand in pickles of protocols that have none: their text, or other bytes, and how to make them of it.
_ENCODE = "_codecs.encode"
_BYTES = {f"{module}.{kind.__name__}": kind for module in ("builtins", "__builtin__") for kind in (bytes, bytearray)}
_ENCODINGS = {"latin_1", "utf_8", "ascii"}


class PickleStream(NamedTuple):
    """One pickle of a file.

    Attributes:
        names: what it looks up, `(module, name)`, each once and in order, but for a `getattr` or `getitem` of which all uses are harmless.
        nested: pickles in its bytes: handed to a call that unpickles them, or held for whoever loads it.
        end: where the next byte behind it stands; None: it did not come to its end.
        fault: why not.
        calls: how many calls it makes.
        unseen: names of which it makes a use whose effect cannot be seen: given to a call, or given what the pickle makes itself.
    """

    names: tuple[tuple[str, str], ...]
    nested: tuple[bytes, ...]
    end: Optional[int]
    fault: str
    calls: int
    unseen: tuple[str, ...] = ()


class Nothing:
    """What every name stands for: it can be called, made, filled and changed, and does nothing."""

    full = ""
    machine: Any = None
    given: tuple[Any, ...] = ()

    def __new__(cls, *given: Any, **named: Any) -> Any:
        new: Any = object.__new__(cls)
        if cls.machine is not None:
            cls.machine.called(cls.full, (*given, *named.values()))
            made = _made(cls.full, given)
            if made is not None:
                return made
            new.given = given if cls.full in _LOOKED_AT else ()
        return new

    def __init__(self, *_: Any, **__: Any) -> None:
        if type(self).machine is not None and type(self).full in ONLY_MADE:
            type(self).machine.unseen[type(self).full] = None

    def __call__(self, *given: Any, **_: Any) -> Any:
        self._takes(*given)
        return object.__new__(type(self))

    def __setstate__(self, state: Any) -> None:
        self._takes(state)
        machine = type(self).machine
        if type(self).full in _LOOKED_AT:
            self.given = (*self.given, state)
        if machine is not None and type(self).full == _JOBLIB:
            machine.array_follows(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._takes(key, value)

    def _takes(self, *given: Any) -> None:
        machine = type(self).machine
        if machine is not None:
            machine.handed_on(given)

    append = extend = add = update = _takes


class _Sights:
    """What is common to both machines: Python's own in C, and its older one in Python, which joblib uses and which reads numbers less strictly."""

    _file: Any
    _exact: bool
    names: dict[tuple[str, str], type]
    nested: list[bytes]
    unseen: dict[str, None]
    calls: int

    def __init__(self, file: Any, exact: bool) -> None:
        super().__init__(file, encoding="latin1", buffers=iter(()))  # type: ignore[call-arg]
        self._file, self._exact = file, exact
        self.names, self.nested, self.unseen, self.calls = {}, [], {}, 0

    def find_class(self, module: str, name: str) -> Any:
        known = self.names.get((module, name))
        if known is None:
            known = self.names[module, name] = type(
                "Nothing", (Nothing,), {"full": f"{module}.{name}", "machine": self}
            )
        return known

    def persistent_load(self, pid: Any) -> Any:
        self.handed_on(pid)
        return Nothing()

    def called(self, full: str, given: tuple[Any, ...]) -> None:
        self.calls += 1
        self.handed_on(given)
        if full.rpartition(".")[::2] in _REACH:
            of = given[0].full if len(given) == 2 and _is_class(given[0]) else ""
            hint = full.endswith("getitem") and of.startswith("typing.")
            if not hint and (full.endswith("getitem") or (of, given[-1]) not in _METHODS):
                self.unseen[full] = None
        if full == PARTIAL and not (given and (_is_class(given[0]) or isinstance(given[0], Nothing))):
            self.unseen[full] = None
        if full in NESTED_LOADERS:
            # A text is bytes to whoever reads the strings of Python 2 as such.
            seen = [one.encode("latin1", "replace") if isinstance(one, str) else one for one in given]
            self.nested += [bytes(one) for one in seen if isinstance(one, (bytes, bytearray))]
            if len(seen) != 1 or not isinstance(seen[0], (bytes, bytearray)) or seen[0][:1] not in (b"\x80", b"P"):
                self.unseen[full] = None

    def handed_on(self, given: Any) -> None:
        """Something is given to a call, to an object or to a container: if a watched name is in it, whoever gets it may call that."""
        self.unseen.update((".".join(name), None) for name in self._held(given))

    def harmless(self, result: Any) -> tuple[tuple[str, str], ...]:
        """Return those of `_REACH` that a pickle, read to its end, has used for nothing but harmless methods of classes and type hints."""
        held = self._held(result)
        return tuple(
            name for name in _REACH if name in self.names and not (name in held or ".".join(name) in self.unseen)
        )

    def watches(self) -> set[tuple[str, str]]:
        """Return the names that it looked up of which the use matters."""
        return self.names.keys() & _WATCHED

    def _held(self, value: Any) -> set[tuple[str, str]]:
        """Return the watched names that it holds, not in what can be changed: they were seen when they were put there."""
        watched = {id(self.names[name]): name for name in self.watches()}
        held: set[tuple[str, str]] = set()
        left, looked_at = [value] if watched else [], 0
        while left:
            one = left.pop()
            looked_at += 1
            if looked_at > _MOST_HANDED:
                return set(watched.values())
            if id(one) in watched:
                held.add(watched[id(one)])
            if isinstance(one, (tuple, frozenset)):
                left += one
            elif isinstance(one, Nothing):
                left += one.given
        return held

    def array_follows(self, state: Any) -> None:
        """A wrapper of joblib: the array's bytes stand in the file behind it, or a pickle of its objects."""
        if not self._exact:
            return
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("an array of joblib is described in another way")
        padded = state.get("numpy_array_alignment_bytes")
        code = _code_of(state.get("dtype"))
        shape = state.get("shape", ())
        if code is None or not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
            raise pickle.UnpicklingError("an array of joblib has a type that is not known")
        if code == "O":
            inner: Any = type(self)(self._file, True)
            inner.names, inner.nested, inner.unseen = self.names, self.nested, self.unseen
            inner.load()
            return
        if padded:
            self._file.seek(self._file.read(1)[0], 1)
        count = 1
        for size in shape:
            count *= max(0, size)
        self._file.seek(count * int(code), 1)


class _Machine(_Sights, pickle.Unpickler):
    pass


def _putting(load: Any, count: int) -> Any:
    def put(machine: Any) -> None:
        for one in machine.stack[-count:]:
            if isinstance(one, (type, tuple, frozenset, Nothing)):
                machine.handed_on(one)
        load(machine)

    return put


class _OlderMachine(_Sights, pickle._Unpickler):  # type: ignore[name-defined,misc]
    """Sees also what is put into lists, tables and sets: something that calls it may hold them already."""

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,  # type: ignore[attr-defined]
        **{code[0]: _putting(pickle._Unpickler.dispatch[code[0]], count) for code, count in _PUTS.items()},  # type: ignore[attr-defined]
    }


def _is_class(value: Any) -> bool:
    """Return whether it is what stands for a name."""
    return isinstance(value, type) and issubclass(value, Nothing)


def _made(full: str, given: tuple[Any, ...]) -> Optional[Union[bytes, bytearray]]:
    """Return the bytes that a call makes of a text or of other bytes, exactly as Python would; None: it makes others, or none.

    Raises:
        ValueError: so would Python.
    """
    kind = bytes if full == _ENCODE else _BYTES.get(full)
    if kind is None or not given:
        return None
    if isinstance(given[0], str) and all(isinstance(word, str) for word in given[1:]):
        encoding = (given[1] if len(given) > 1 else "utf_8").lower().replace("-", "_")
        encoding = aliases.get(encoding, encoding)
        return kind(given[0].encode(encoding, *given[2:3])) if encoding in _ENCODINGS else None
    if full != _ENCODE and len(given) == 1 and isinstance(given[0], (bytes, bytearray, list, tuple)):
        return kind(given[0]) if not isinstance(given[0], (list, tuple)) or _are_bytes(given[0]) else None
    return None


def _are_bytes(values: Any) -> bool:
    return all(isinstance(value, int) and 0 <= value <= 255 for value in values)


def _code_of(dtype: Any) -> Optional[str]:
    """Return how many bytes an item of a numpy type has, or "O" where it has objects."""
    given = getattr(dtype, "given", ())
    if _has_objects(dtype):
        return "O"
    told = _ITEM.fullmatch(given[0]) if given and isinstance(given[0], str) else None
    if told is None:
        return None
    letter, size = told.groups()
    if letter == "O":
        return "O"
    if letter == "U":
        return str(4 * int(size or 0))
    return size or (str(_SIZES[letter]) if letter in _SIZES else None)


def _has_objects(dtype: Any) -> bool:
    """Return whether a numpy type, or what its state names, is one of objects."""
    left, seen = [dtype], set[int]()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, Nothing):
                if one.given and isinstance(one.given[0], str) and one.given[0].lstrip("<>|=").startswith("O"):
                    return True
                left += one.given
            elif isinstance(one, dict):
                left += one.values()
            elif isinstance(one, (tuple, list)):
                left += one
    return False


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
    machine = _Machine(file := source.file(ahead=not exact), exact)
    stream, watched = _seen(machine, file), machine.watches()
    del machine
    if not watched and (stream.end is not None or source.size > _OLDER_BYTES):
        return stream
    if sum(map(len, stream.nested)) > _OLDER_BYTES:
        stream = stream._replace(nested=())  # the older machine holds them as well, and both do not fit into memory
    older = _seen(_OlderMachine(file := source.file(ahead=not exact), exact), file)
    unseen = {*stream.unseen, *older.unseen}
    if older.end is None and stream.end is not None:
        unseen |= {".".join(name) for name in watched}
    return stream._replace(
        names=tuple(dict.fromkeys((*stream.names, *older.names))),
        nested=tuple(dict.fromkeys((*stream.nested, *older.nested))),
        calls=max(stream.calls, older.calls),
        unseen=tuple(sorted(unseen - {".".join(name) for name in _REACH})),
    )


def _seen(machine: Any, file: Any) -> PickleStream:
    end, fault, harmless = None, "", ()
    try:
        result = machine.load()
        machine.nested.extend(_pickles_in(result))
        end, harmless = file.tell(), machine.harmless(result)
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
    names = tuple(name for name in machine.names if name not in harmless)
    for kind in machine.names.values():
        kind.machine = None  # type: ignore[attr-defined]
    return PickleStream(names, tuple(machine.nested), end, fault, machine.calls, tuple(machine.unseen))


def _pickles_in(value: Any) -> Iterator[bytes]:
    """Yield the bytes in dicts, lists and tuples that begin and end as pickles do: scripts unpickle what a checkpoint holds so."""
    left, seen = deque([value]), set()
    for _ in range(_MOST_WALKED):  # what lies near the top: to walk all costs ten times the machine's own time
        if not left:
            return
        one = left.popleft()
        if isinstance(one, (bytes, bytearray)) and one[:1] == b"\x80" and one[1:2] <= b"\x05" and one[-1:] == b".":
            yield bytes(one)
        elif isinstance(one, (dict, list, tuple)) and id(one) not in seen:
            seen.add(id(one))
            left.extend(islice(one.values() if isinstance(one, dict) else one, _MOST_WALKED - len(left)))
