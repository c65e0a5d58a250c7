"""Field types of documents: sizes, durations, commands, and the strict base of all models."""

from __future__ import annotations

import re
import shlex
import signal as signals
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from cordee.core.units import DURATION_FORMS, SIZE_FORMS, parse_duration, parse_size

COMMAND_FORMS = 'a command such as "python train.py --lr 0.1", or a list of its words'
LINES_FORMS = "a text in quotes, or a list of them"
NAME_FORMS = "letters, digits and . _ - (at most 64, beginning with a letter or digit)"
GPU_FORMS = (
    'requirements separated by commas: "memory >= SIZE", "capability >= X.Y", "model = NAME", '
    'such as "memory >= 24GB, capability >= 8.0"'
)
SIGNAL_FORMS = "a signal that a program can handle: USR1, USR2, TERM, INT, HUP, ..."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_MPI_TYPE = re.compile(r"[A-Za-z0-9][\w.+-]*\Z")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_REQUIREMENT = re.compile(r"(?:(memory)\s*>=\s*(.+)|(capability)\s*>=\s*(\d+(?:\.\d+)?)|(model)\s*=\s*([\w .-]+))\Z")


class Document(BaseModel):
    """Base of all models of documents: frozen, unknown keys refused, no silent conversion of text to numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, defer_build=True)


def wrong(text: str, allowed: str) -> PydanticCustomError:
    """Return the error of a value that is not one of the allowed."""
    return PydanticCustomError("wrong_value", "{text}", {"text": text, "allowed": allowed})


def _size(value: Any) -> int:
    try:
        if isinstance(value, (str, int, float)):
            return parse_size(value)
    except (ValueError, OverflowError):
        pass
    raise wrong("is not a size", SIZE_FORMS)


def _duration(value: Any) -> float:
    try:
        if isinstance(value, (str, int, float)):
            seconds = float(parse_duration(value))
            if seconds < 1e10:
                return seconds
    except (ValueError, OverflowError):
        pass
    raise wrong("is not a duration", DURATION_FORMS)


def _argv(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise wrong(f"cannot be split into words: {error}".lower(), f"{COMMAND_FORMS}; quotes in pairs") from None
    elif isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        words = list(value)
    else:
        raise wrong("is not a command", COMMAND_FORMS)
    if not words or not words[0]:
        raise wrong("is empty", COMMAND_FORMS)
    if any("\0" in word for word in words):
        raise wrong("holds a NUL character, which no command can", COMMAND_FORMS)
    return tuple(words)


def _lines(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return tuple(value)
    raise wrong("is neither a text nor a list of texts", LINES_FORMS)


def _gpu(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong("is not a GPU requirement", GPU_FORMS)
    parts = []
    for part in value.split(","):
        match = _REQUIREMENT.match(part.strip())
        if match is None:
            raise wrong(f"holds {part.strip()!r}, which is not a GPU requirement", GPU_FORMS)
        if match.group(1):
            _size(match.group(2))
        parts.append(part.strip())
    return ", ".join(parts)


def is_name(value: str) -> bool:
    """Return whether a text can be the name of a job or cluster."""
    return _NAME.match(value) is not None


def _name(value: str) -> str:
    if not is_name(value):
        raise wrong("is not a valid name", NAME_FORMS)
    return value


def _module(value: str) -> str:
    if _MODULE.match(value) is None:
        raise wrong(
            "is not the name of a Python module", 'a name as in `import`, such as "torch" or "torch.distributed"'
        )
    return value


def _signal_name(value: str) -> str:
    name = value.upper().removeprefix("SIG")
    if not hasattr(signals, f"SIG{name}") or name.startswith("_") or name in ("KILL", "STOP"):
        raise wrong("is not such a signal", SIGNAL_FORMS)
    return name


def _mpi_type(value: str) -> str:
    if _MPI_TYPE.match(value) is None:
        raise wrong("is not a kind of MPI", 'a name that `srun --mpi=list` shows, such as "pmix" or "pmi2"')
    return value


def _text_of_variable(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        text = str(value)
    else:
        raise wrong("is not the value of an environment variable", "a text in quotes or a number")
    if "\0" in text:
        raise wrong("holds a NUL character", "a text without NUL")
    return text


Size = Annotated[int, BeforeValidator(_size)]
Duration = Annotated[float, BeforeValidator(_duration)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv)]
Lines = Annotated[tuple[str, ...], BeforeValidator(_lines)]
GpuRequirement = Annotated[str, BeforeValidator(_gpu)]
Name = Annotated[str, AfterValidator(_name)]
Modules = Annotated[tuple[Annotated[str, AfterValidator(_module)], ...], BeforeValidator(_lines)]
SignalName = Annotated[str, AfterValidator(_signal_name)]
MpiType = Annotated[str, AfterValidator(_mpi_type)]
VariableText = Annotated[str, BeforeValidator(_text_of_variable)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=1_000_000)]
