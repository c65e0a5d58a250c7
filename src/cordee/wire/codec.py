"""How JSON objects become NamedTuples: each field by its annotation, and refused where it is of another type or too large."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

from cordee.core.errors import WireError

MOST_CHARACTERS = 4 << 20
MOST_ENTRIES = 1 << 20
_INTEGERS = 1 << 63
_SHOWN = 100
_MISSING = object()


class Form(NamedTuple):
    """How values of one type are read: types that JSON gives, what reads one of them (None: as it is), and in words."""

    types: frozenset[type]
    read: Optional[Callable[[Any], Any]]
    words: str


class FieldForm(NamedTuple):
    """How one field is read; see Form."""

    name: str
    types: frozenset[type]
    read: Optional[Callable[[Any], Any]]
    words: str
    default: Any


class MessageRefused(ValueError):
    """A value is not as it should be; says how it should be."""


def fields_of(cls: Any, forms: Mapping[str, Form]) -> tuple[FieldForm, ...]:
    """Return how the fields of a NamedTuple are read, given the form of each annotation as it is written."""
    names = {name: getattr(hint, "__forward_arg__", hint) for name, hint in cls.__annotations__.items()}
    defaults = cls._field_defaults
    return tuple(FieldForm(name, *forms[hint], defaults.get(name, _MISSING)) for name, hint in names.items())


def read_fields(fields: Iterable[FieldForm], document: Mapping[str, Any], what: str) -> list[Any]:
    """Return the values of all fields; those of the object that are none of them are passed over.

    Args:
        fields: of `fields_of`.
        document: the object.
        what: it is, for errors.

    Raises:
        WireError: one is missing, too large or of another type.
    """
    values = []
    for name, types, read, words, default in fields:
        value = document.get(name, default)
        if value is default and default is not _MISSING:
            values.append(value)
            continue
        try:
            if type(value) not in types:
                raise MessageRefused(words)
            values.append(value if read is None else read(value))
        except MessageRefused as refused:
            given = "nothing" if value is _MISSING else shown(value)
            raise WireError(f"{name!r} of {what} is not right", given=given, allowed=str(refused)) from None
    return values


def leave_out(document: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Remove from an object what has its default."""
    for name, default in defaults.items():
        if document[name] == default:
            del document[name]


def shown(value: Any) -> str:
    """Return what was given, in few words whatever it is."""
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) >= _INTEGERS:
        return "a number of more than 64 bits"
    return repr(value[:_SHOWN] if isinstance(value, str) else value)


# Forms made of others


def or_none(form: Form) -> Form:
    """Return the form of a value that may be null."""
    read = form.read

    def read_some(value: Any) -> Any:
        return value if value is None or read is None else read(value)

    return Form(form.types | {type(None)}, read_some, f"{form.words} or null")


def each(form: Form, words: str) -> Form:
    """Return the form of a list of values of one form; it becomes a tuple."""

    def read_each(values: list[Any]) -> tuple[Any, ...]:
        if len(values) > MOST_ENTRIES:
            raise MessageRefused(f"at most {MOST_ENTRIES} entries")
        return tuple([_one(form, value) for value in values])

    return Form(frozenset((list, tuple)), read_each, words)


def named(form: Form, words: str) -> Form:
    """Return the form of an object whose values, by any name, are of one form."""

    def read_named(values: dict[str, Any]) -> dict[str, Any]:
        return {name: _one(form, value) for name, value in _object(values).items()}

    return Form(frozenset((dict,)), read_named, words)


def row(cls: Callable[..., Any], words: str, *forms: Form) -> Form:
    """Return the form of what is sent as a list of fixed length."""

    def read_row(values: list[Any]) -> Any:
        if len(values) != len(forms):
            raise MessageRefused(words)
        return cls(*[_one(form, value) for form, value in zip(forms, values)])

    return Form(frozenset((list, tuple)), read_row, words)


def record(cls: Any, forms: Mapping[str, Form], words: str) -> Form:
    """Return the form of an object that becomes a NamedTuple."""
    fields = fields_of(cls, forms)
    return Form(frozenset((dict,)), lambda value: cls(*read_fields(fields, value, words)), words)


def _one(form: Form, value: Any) -> Any:
    if type(value) not in form.types:
        raise MessageRefused(form.words)
    return value if form.read is None else form.read(value)


def _integer(value: int) -> int:
    if not -_INTEGERS <= value < _INTEGERS:
        raise MessageRefused("a number of at most 64 bits")
    return value


def _number(value: Union[int, float]) -> Union[int, float]:
    if type(value) is int:
        return _integer(value)
    if not math.isfinite(value):
        raise MessageRefused("a finite number")
    return value


def _text(value: str) -> str:
    if len(value) > MOST_CHARACTERS:
        raise MessageRefused(f"at most {MOST_CHARACTERS} characters")
    return value


def _object(value: dict[str, Any]) -> dict[str, Any]:
    if len(value) > MOST_ENTRIES:
        raise MessageRefused(f"at most {MOST_ENTRIES} entries")
    return value


INTEGER = Form(frozenset((int,)), _integer, "a whole number")
NUMBER = Form(frozenset((float, int)), _number, "a number")
TEXT = Form(frozenset((str,)), _text, "a text")
OBJECT = Form(frozenset((dict,)), _object, "an object")
TRUTH = Form(frozenset((bool,)), None, "true or false")
FORMS: dict[str, Form] = {
    "int": INTEGER,
    "float": NUMBER,
    "str": TEXT,
    "bool": TRUTH,
    "Optional[int]": or_none(INTEGER),
    "Optional[float]": or_none(NUMBER),
    "Optional[str]": or_none(TEXT),
    "Optional[bool]": or_none(TRUTH),
    "dict[str, Any]": OBJECT,
    "dict[str, int]": named(INTEGER, "an object of whole numbers"),
    "dict[str, str]": named(TEXT, "an object of texts"),
    "tuple[int, ...]": each(INTEGER, "a list of whole numbers"),
    "tuple[str, ...]": each(TEXT, "a list of texts"),
    "tuple[dict[str, Any], ...]": each(OBJECT, "a list of objects"),
}
