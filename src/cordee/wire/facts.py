"""What a rank says by its channel beside numbers: every fact as a type, and the one codec for them.

In the channel a fact is a JSON object: its kind under `t`, its fields by name. One that is of no known kind, or not as it
should be, is passed over: nothing that a rank writes may stop its agent.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, Mapping, NamedTuple, Optional, Union

from cordee.core.errors import WireError
from cordee.wire.codec import FORMS, fields_of, leave_out, read_fields


class LayoutFact(NamedTuple):
    """Where a rank stands in the training's parallelism.

    Attributes:
        place: the rank's index by dimension.
        sizes: of the dimensions whose size is known.
        source: who said it: `call`, `mesh`, `megatron`.
        refused: why there is none, empty where there is one.
    """

    place: Mapping[str, int] = MappingProxyType({})
    sizes: Mapping[str, int] = MappingProxyType({})
    source: str = "call"
    refused: str = ""


class SourceFact(NamedTuple):
    """What records a metric.

    Attributes:
        also: another source whose values of it were left out.
        counted: its steps are calls, which the source counts from 0 in each process.
    """

    name: str
    source: str = ""
    also: str = ""
    unit: str = ""
    counted: bool = False


class FindingFact(NamedTuple):
    """Something that a rank found and the run should say, such as a checkpoint that could not be used; `next`: what to do."""

    rule: str
    text: str
    next: str = ""


class DataPositionFact(NamedTuple):
    """How far one process is in one data set; positions count samples over all epochs.

    What one says is true by itself: who heard none of those before it takes it for what it is.

    Attributes:
        data_set: its name; a second one of the same name is told of as `NAME.2`.
        turn: counts, from 1, what is between positions that were loaded after a batch was given.
        size: samples of one epoch.
        given, dropped: samples, in this turn.
        begin: the first position given in this turn; None: none yet.
        position: the position after the last batch given.
        saved: the position that the last `state_dict` of this turn said; saved_given: samples given in this turn until then.
    """

    data_set: str
    turn: int
    size: int
    given: int
    dropped: int = 0
    begin: Optional[int] = None
    position: Optional[int] = None
    saved: Optional[int] = None
    saved_given: Optional[int] = None


class CheckpointFact(NamedTuple):
    """The positions told last are those of the checkpoint of this step."""

    step: int


ChannelFact = Union[LayoutFact, SourceFact, FindingFact, DataPositionFact, CheckpointFact]
_CLASSES: dict[str, Any] = {
    "layout": LayoutFact,
    "source": SourceFact,
    "finding": FindingFact,
    "data": DataPositionFact,
    "checkpoint": CheckpointFact,
}
_KINDS = {cls: kind for kind, cls in _CLASSES.items()}
_FORMS = {**FORMS, "Mapping[str, int]": FORMS["dict[str, int]"]}
_FIELDS = {kind: fields_of(cls, _FORMS) for kind, cls in _CLASSES.items()}


def encode_fact(fact: ChannelFact) -> bytes:
    """Return a fact as it travels; what has its default is left out."""
    document: dict[str, Any] = fact._asdict()
    leave_out(document, fact._field_defaults)
    return json.dumps({"t": _KINDS[type(fact)], **document}, separators=(",", ":")).encode()


def decode_fact(text: bytes) -> Optional[ChannelFact]:
    """Return the fact that a rank wrote; None where it is none that is known here."""
    try:
        document = json.loads(text)
        kind = document["t"]
        fact: ChannelFact = _CLASSES[kind](*read_fields(_FIELDS[kind], document, "a fact"))
    except (ValueError, RecursionError, KeyError, TypeError, WireError):
        return None
    return fact
