"""What `decode=` of `cordee.dataset` means."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Union

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.batches.decoders import automatic

Change = Callable[[Any], Any]
Decode = Union[None, str, Change, Mapping[str, Union[str, Change]]]

AUTO = "auto"
_ALLOWED = '"auto", a function of a sample, or by field "auto" or a function of its bytes'


def decoder(decode: Decode) -> "Union[Change, dict[str, Change], None]":
    """Return the function of a sample, or the functions by field; None: bytes stay as they are.

    Raises:
        UsageError: it is neither, or "auto" for a field whose name says nothing.
    """
    if decode is None:
        return None
    if isinstance(decode, str):
        if decode != AUTO:
            raise UsageError("invalid value for decode", given=decode, allowed=_ALLOWED)
        return Automatic()
    if isinstance(decode, Mapping):
        return {field: _of_field(field, change) for field, change in decode.items()}
    if callable(decode):
        return decode
    raise UsageError("invalid value for decode", given=decode, allowed=_ALLOWED)


class Automatic:
    """Decodes every field whose name says how; an object, because worker processes are sent it."""

    def __init__(self) -> None:
        self._by_field: dict[str, Optional[Change]] = {}

    def __call__(self, sample: Any) -> Any:
        for field, value in sample.items():
            if isinstance(value, bytes):
                if field not in self._by_field:
                    self._by_field[field] = automatic(field)
                change = self._by_field[field]
                if change is not None:
                    sample[field] = change(value)
        return sample


def _of_field(field: str, change: Union[str, Change]) -> Change:
    if callable(change):
        return change
    found = automatic(field) if change == AUTO else None
    if found is None:
        raise UsageError(
            f"nothing is known that decodes the field {field!r}"
            if change == AUTO
            else f"the field {field!r} is decoded by no function",
            given=change,
            allowed=_ALLOWED,
        )
    return found
