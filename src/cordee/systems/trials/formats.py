"""Files of tasks: one command a line, and what META, GLOST, disBatch, GNU parallel and job arrays of Slurm have, as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError
from cordee.core.units import parse_duration, parse_size
from cordee.machine.foreign_files import read_regular
from cordee.machine.slots import SlotRequest
from cordee.systems.trials.arrays import MOST_TASKS, JobArray, is_batch_script, read_array
from cordee.systems.trials.node.task_list import FarmTask

_MOST_BYTES = 128 << 20
_OWN = "#cordee"
_KEYS = "cores=2, gpus=0.5, memory=4GB, time=10min"
_READS: dict[str, Callable[[str], float]] = {
    "cores": int,
    "gpus": float,
    "memory": parse_size,
    "time": parse_duration,
}
_DISBATCH = "#DISBATCH"


class TaskDefaults(NamedTuple):
    """What a task asks for where its line says nothing.

    Attributes:
        said: which of `cores`, `gpus`, `memory`, `time` somebody gave for the farm: they go before what a batch script says.
        array_job: the number by which the tasks of a batch script know their array.
    """

    asks: SlotRequest = SlotRequest()
    time_s: float | None = None
    said: frozenset[str] = frozenset()
    array_job: int = 0


class _Line(NamedTuple):
    number: int
    text: str
    asks: TaskDefaults


def read_file(path: Path, kind: str, defaults: TaskDefaults) -> list[FarmTask]:
    """Return the tasks of a file.

    Args:
        kind: one of `cordee.job.trials.FORMATS`, or `auto`.
        defaults: for what lines do not say.

    Raises:
        DocumentError: it cannot be read, holds no task, or something that is not understood; says where.
    """
    text = text_of_list(path)
    kind = _kind_of(text) if kind == "auto" else kind
    lines = list(_READERS[kind](path, text, defaults))
    if not lines:
        raise DocumentError("the file holds no task", file=str(path), allowed="one command a line", next="write one")
    if len(lines) > MOST_TASKS:
        text, allowed = "the file holds too many tasks", f"at most {MOST_TASKS}"
        raise DocumentError(text, file=str(path), given=len(lines), allowed=allowed, next="cut it into several")
    return [
        FarmTask(at, {"line": one.text}, one.asks.asks, one.asks.time_s, one.number) for at, one in enumerate(lines)
    ]


def array_in(path: Path, kind: str) -> JobArray | None:
    """Return the job array of a file of tasks, None where it is no batch script.

    Raises:
        DocumentError: as `read_file`.
    """
    text = text_of_list(path)
    kind = _kind_of(text) if kind == "auto" else kind
    return read_array(path, text) if kind == "array" else None


def text_of_list(path: Path) -> str:
    """Return the text of a file of tasks, with plain line ends.

    Raises:
        DocumentError: it cannot be read, or is no text whose lines are clear.
    """
    try:
        text = text_of(read_regular(path, None, _MOST_BYTES), str(path)).replace("\r\n", "\n")
    except OSError as error:
        text = f"the file of tasks cannot be read: {error.strerror or error}"
        allowed = "a text file with one task a line"
        raise DocumentError(text, given=str(path), allowed=allowed, next="correct the path") from error
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        raise _wrong(path, line, "a line holds a carriage return, which ends no line here", "\\r", "\\n or \\r\\n")
    return text


def _wrong(path: Path, line: int, text: str, given: str, allowed: str, what: str = "correct the line") -> DocumentError:
    return DocumentError(text, file=str(path), line=line, given=given, allowed=allowed, next=what)


def _kind_of(text: str) -> str:
    if _DISBATCH in text:
        return "disbatch"
    return "array" if is_batch_script(text) else "lines"


def _plain(path: Path, text: str, defaults: TaskDefaults) -> Iterator[_Line]:
    """One command a line; empty lines and comments are none, `#cordee` lines say what those behind them ask for."""
    now = defaults
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.split(maxsplit=1)[:1] == [_OWN]:
            now = _asks(path, number, stripped[len(_OWN) :], defaults)
        elif stripped and not stripped.startswith("#"):
            yield _Line(number, stripped, now)


def _asks(path: Path, number: int, words: str, defaults: TaskDefaults) -> TaskDefaults:
    """Return what a `#cordee` line says; what it does not name is as the job document says."""
    found: dict[str, float] = {}
    for word in words.split():
        key, equals, value = word.partition("=")
        try:
            if not equals or key not in _READS:
                raise ValueError(f"{word!r} is not understood")
            found[key] = _READS[key](value)
            if found[key] < 0 or (key in ("cores", "time") and not found[key]):
                raise ValueError(f"{word!r} is too little")
        except ValueError as error:
            raise _wrong(path, number, str(error), word, _KEYS) from None
    asks = SlotRequest(
        int(found.get("cores", defaults.asks.cores)),
        found.get("gpus", defaults.asks.gpus),
        int(found.get("memory", defaults.asks.memory_bytes)),
    )
    return TaskDefaults(asks, found.get("time", defaults.time_s))


def _meta(path: Path, text: str, defaults: TaskDefaults) -> Iterator[_Line]:
    """META's `table.dat`: a case a line; where each begins with its own number, that is no part of the command."""
    lines = list(_plain(path, text, defaults))
    words = [line.text.split(maxsplit=1) for line in lines]
    numbered = bool(words) and all(len(two) == 2 and two[0].isdigit() for two in words)
    numbered = numbered and len({two[0] for two in words}) == len(words)
    for line, two in zip(lines, words, strict=True):
        yield line._replace(text=f"export ID={int(two[0])}; {two[1]}") if numbered else line


def _disbatch(path: Path, text: str, defaults: TaskDefaults) -> Iterator[_Line]:
    """disBatch's file: PREFIX, SUFFIX and REPEAT are honoured; barriers are refused, as tasks here wait for nobody."""
    prefix = suffix = ""
    now, index = defaults, 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.split(maxsplit=1)[:1] == [_OWN]:
            now = _asks(path, number, stripped[len(_OWN) :], defaults)
        elif stripped.startswith(_DISBATCH):
            word, _, rest = stripped[len(_DISBATCH) :].strip().partition(" ")
            if word == "PREFIX":
                prefix = rest
            elif word == "SUFFIX":
                suffix = rest
            elif word == "REPEAT":
                for repeat, command in _repeated(path, number, rest):
                    told = f"export DISBATCH_TASKID={index} DISBATCH_REPEAT_INDEX={repeat}"
                    yield _Line(number, f"{told}; {prefix}{command}{suffix}", now)
                    index += 1
            else:
                text, what = f"{_DISBATCH} {word} cannot be honoured", "run what stands around a barrier as two farms"
                raise _wrong(path, number, text, stripped, "PREFIX, SUFFIX, REPEAT", what)
        elif stripped and not stripped.startswith("#"):
            yield _Line(number, f"export DISBATCH_TASKID={index}; {prefix}{stripped}{suffix}", now)
            index += 1


def _repeated(path: Path, number: int, words: str) -> Iterator[tuple[int, str]]:
    found = re.fullmatch(r"(\d+)((?:\s+(?:start|step)\s+-?\d+)*)(?:\s+(.*))?", words.strip())
    if found is None:
        raise _wrong(path, number, "REPEAT is not understood", words, "REPEAT COUNT [start N] [step N] [COMMAND]")
    options = dict(re.findall(r"(start|step)\s+(-?\d+)", found[2]))
    start, step = int(options.get("start", 0)), int(options.get("step", 1))
    for count in range(min(int(found[1]), MOST_TASKS + 1)):
        yield start + count * step, found[3] or ""


def _array(path: Path, text: str, defaults: TaskDefaults) -> Iterator[_Line]:
    """A batch script with `#SBATCH --array`: it runs once for each index, and has what it asks for as sbatch would have given it."""
    array = read_array(path, text)
    said = {key: value for key, value in defaults.asks._asdict().items() if key.partition("_")[0] in defaults.said}
    time_s = defaults.time_s if "time" in defaults.said else array.time_s
    asks = TaskDefaults(array.asks._replace(**said), time_s)
    for place in range(len(array.indices)):
        yield _Line(array.line, array.task(place, defaults.array_job), asks)


_READERS = {"lines": _plain, "glost": _plain, "parallel": _plain, "meta": _meta, "disbatch": _disbatch, "array": _array}
