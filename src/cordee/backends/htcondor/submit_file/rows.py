"""What one submit file makes many jobs of: their number, the lines of a file, the items of a list."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.backends.htcondor.submit_file.description import QueueStatement
from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError
from cordee.job.conversion import Left
from cordee.job.trials import SweepSettings

MOST_JOBS = 1000  # of a farm or a sweep
_MOST_BYTES = 16 << 20
_TOKEN = re.compile(r"@@(\w+)@@")
_SEPARATORS = " ,;|\t"
_TAKEN = {*SweepSettings.model_fields, "line", "number"}
_NUMBERS = {"process": "process", "procid": "process", "step": "step", "itemindex": "process", "row": "process"}
_ALIKE = "these jobs differ in nothing that the document has: it is one of them; for more give them a [sweep], such as of a seed"
_GOAL = (
    "a job that logs no `loss` by cordee.log would count as failed: name in [sweep] goal what yours logs; "
    "jobs with no such number are a [farm], with their values in a file"
)
_FROM_COMMAND = "what a command prints: write it into a file, and name that"
_COMMENTS = "lines of the file that begin with # are no tasks here; condor_submit takes them for items"
_WORDS = "a value with blanks stays one word here; condor_submit makes several words of it"
_UNREAD = "the file cannot be read here: [farm] has its name"
_NO_MATCH = "matches nothing here: give the values in [sweep]"
_FORM = "a form of `queue` that is not understood"
_EACH = "each item only once: give [sweep] a further parameter, such as a seed, for the others"


@dataclass
class JobRows:
    """The jobs of a `queue` statement.

    Attributes:
        names: of the variables that differ, in small letters.
        rows: a value for each name and each job, None where a file has them.
        file: that has a job a line.
        jobs: how many they are, None where nobody knows.
        left: what of it is not carried over.
    """

    names: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] | None = None
    file: str = ""
    jobs: int | None = 1
    left: list[Left] = field(default_factory=list)

    @property
    def own(self) -> dict[str, str]:
        """What macros stand for while it is not known which job is meant: a mark for those that differ."""
        if not self.file and len(self.rows or [()]) == 1:
            return {**dict.fromkeys(_NUMBERS, "0"), **dict(zip(self.names, (self.rows or [()])[0], strict=False))}
        names = {name: f"@@{name}@@" for name in self.names}
        return {**{name: f"@@{mark}@@" for name, mark in _NUMBERS.items()}, **names}


def read_rows(queue: QueueStatement | None, folder: Path) -> JobRows:
    """Return the jobs of a `queue` statement; lists lie in the folder of the submit file."""
    if queue is None:
        return JobRows()
    found = JobRows(names=[name.lower() for name in queue.names])

    def leave(why: str) -> None:
        found.left.append(Left(queue.line, queue.text, why))

    if queue.how == "":
        found.jobs = 1 if queue.count is None else queue.count
        found.rows = [()] * min(found.jobs, 1_000_000)
        return found
    items: list[str] | None = []
    if queue.how == "?" or (queue.how == "from" and not queue.inline and queue.what.endswith("|")):
        leave(_FROM_COMMAND if queue.how == "from" else _FORM)
        return JobRows(left=found.left)
    if queue.how == "from":
        items = queue.what.split("\n") if queue.inline else _lines_of(folder / queue.what)
        items = None if items is None else [item.strip() for item in items if item.strip()]
        if queue.inline:
            items = [item for item in items or [] if not item.startswith("#")]
    elif queue.how == "in":
        items = [item for item in re.split(r"[\s,]+", queue.what) if item]
    else:
        items = _matching(queue, folder)
        if not items:
            leave(_NO_MATCH)
    if (queue.count or 1) > 1:
        leave(_EACH)
    if queue.how == "from" and not queue.inline and queue.part == slice(None):
        found.file, found.jobs = queue.what, None if items is None else len(items)
        if items is None:
            leave(_UNREAD)
        elif any(item.startswith("#") for item in items):
            leave(_COMMENTS)
        if any(" " in _split(item, len(found.names))[-1] for item in items or []):
            leave(_WORDS)
        return found
    items = (items or [])[queue.part]
    found.rows = [_split(item, len(found.names)) for item in items] or [queue.names]
    found.jobs = len(found.rows)
    if found.jobs > 1 and any(" " in value for row in found.rows for value in row):
        leave(_WORDS)
    return found


def _split(item: str, count: int) -> tuple[str, ...]:
    """Return the values of an item as HTCondor splits it: by commas and blanks, and the rest is the last one's."""
    parts = re.split(r"\s*,\s*|\s+", item, maxsplit=count - 1) if count > 1 else [item]
    return (*parts, *[""] * (count - len(parts)))


def _lines_of(path: Path) -> list[str] | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return text_of(path.read_bytes(), str(path)).splitlines()
    except (OSError, DocumentError):
        return None


def _matching(queue: QueueStatement, folder: Path) -> list[str]:
    names = [name for form in re.split(r"[\s,]+", queue.what) for name in sorted(glob.glob(form, root_dir=folder))]
    if not queue.kind:
        return names
    return [name for name in names if os.path.isdir(folder / name) == (queue.kind == "dirs")] if names else []


@dataclass(frozen=True)
class ManyRuns:
    """`run` of a job that is many, with the table that says of which values."""

    run: str | list[str]
    sweep: dict[str, Any] = field(default_factory=dict)
    farm: dict[str, Any] = field(default_factory=dict)
    left: tuple[Left, ...] = ()


def differs(text: str) -> bool:
    """Return whether a text has marks of what differs from job to job."""
    return _TOKEN.search(text) is not None


def spread(run: str | list[str], env: dict[str, str], rows: JobRows, queue: QueueStatement | None) -> ManyRuns:
    """Return the command of all jobs: marks become `{name}`, or variables of a shell that takes the values of a line apart.

    Args:
        run: with marks.
        env: variables that differ from job to job, which must stand in the command.
        rows: the jobs.
        queue: their statement.
    """
    words = shlex.split(run) if isinstance(run, str) else list(run)
    words = [*(["env", *(f"{name}={value}" for name, value in env.items())] if env else []), *words]
    used = list(dict.fromkeys(name for word in words for name in _TOKEN.findall(word)))
    if not used or queue is None:
        several = rows.jobs is None or rows.jobs > 1
        left = (Left(queue.line, queue.text, _ALIKE),) if several and queue else ()
        return ManyRuns(run, left=left)
    jobs = {"jobs": min(rows.jobs, MOST_JOBS)} if rows.jobs and rows.jobs > 1 else {}
    if rows.file:
        farm = {"file": rows.file, "format": "lines", **jobs}
        if len(rows.names) == 1 and used == rows.names and not _is_shell(words):
            return ManyRuns(_in_words(run if not env else words, {used[0]: "line"}), farm=farm)
        numbers = [name for name in used if name not in rows.names]
        return ManyRuns(_in_shell(words, rows.names, _SEPARATORS[:2] + "\t", "{line}", numbers), farm=farm)
    goal = (Left(queue.line, queue.text, _GOAL),)
    table = [_values(rows, used, at) for at in range(len(rows.rows or ()))]
    if len(used) == 1:
        name = f"{used[0]}_value" if used[0] in _TAKEN else used[0]
        values = [row[0] for row in table]
        whole: list[Any] = [int(value) for value in values] if used[0] in _NUMBERS.values() else values
        sweep = {name: whole, "goal": "min loss", **jobs}
        if _is_shell(words):
            return ManyRuns(_in_shell(words, used, "", f"{{{name}}}", []), sweep, left=goal)
        return ManyRuns(_in_words(run if not env else words, {used[0]: name}), sweep, left=goal)
    firsts = "".join(value for row in table for value in row[:-1])
    separator = next((one for one in _SEPARATORS if one not in firsts), "\t")
    items = [separator.join(row) for row in table]
    return ManyRuns(
        _in_shell(words, used, separator, "{item}", []), {"item": items, "goal": "min loss", **jobs}, left=goal
    )


def _values(rows: JobRows, used: Sequence[str], at: int) -> tuple[str, ...]:
    row = dict(zip(rows.names, (rows.rows or [])[at], strict=True)) if rows.names else {}
    return tuple(row.get(name, "0" if name == "step" and rows.names else str(at)) for name in used)


def _is_shell(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["bash", "-c"]


def _in_words(run: str | list[str], names: dict[str, str]) -> str | list[str]:
    def named(text: str) -> str:
        return _TOKEN.sub(lambda match: f"{{{names[match[1]]}}}", text)

    return named(run) if isinstance(run, str) else [named(word) for word in run]


def _in_shell(words: list[str], names: Sequence[str], separators: str, item: str, numbers: Sequence[str]) -> list[str]:
    """Return a shell that reads the variables of an item, which it is given as a word, and becomes the command."""
    if _is_shell(words):
        command, behind = _TOKEN.sub(r"${\1}", words[2]), words[4:]
    else:
        command, behind = "exec " + " ".join(map(_source, words)) + ' "$@"', []
    if separators:
        quoted = "$'" + separators.replace("\t", "\\t") + "'"
        takes = [f'IFS={quoted} read -r {" ".join(names)} <<< "$1"']
    else:
        takes = [f'{names[0]}="$1"']
    takes += [f'{name}="$2"' for name in numbers]
    given = [item, *(["{number}"] if numbers else [])]
    return ["bash", "-c", "; ".join([*takes, f"shift {len(given)}", command]), "bash", *given, *behind]


def _source(word: str) -> str:
    """Return a word as a shell has it, its marks as variables in double quotes."""
    parts = _TOKEN.split(word)
    pieces = [f'"${{{part}}}"' if at % 2 else shlex.quote(part) if part else "" for at, part in enumerate(parts)]
    return "".join(pieces) or "''"
