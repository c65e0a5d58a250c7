"""The statements of a submit file, as condor_submit reads them: commands, attributes, macros and `queue`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cordee.core.documents.faults import fault_error
from cordee.job.conversion import Left

_STATEMENT = re.compile(r"(\+\s*|MY\.)?([A-Za-z_][\w.]*)\s*(?:=\s*(.*)|@=\s*(\w+))\Z", re.DOTALL | re.IGNORECASE)
_QUEUE = re.compile(r"queue\b(?!\s*[=.])(.*)\Z", re.DOTALL | re.IGNORECASE)
_REFUSED = re.compile(r"(if|elif|else|endif|include)\b(?!\s*=)", re.IGNORECASE)
_OPENS_LIST = re.compile(r"\b(?:in|from|matching)\b[^(]*\(\s*(?!.*\))", re.IGNORECASE | re.DOTALL)
_MACRO = re.compile(r"(?<!\$)\$\((\w+)(?::([^()]*))?\)")
_ROWS = re.compile(
    r"(?P<count>\d+)?\s*(?P<names>[A-Za-z_]\w*(?:[\s,]+[A-Za-z_]\w*)*?)?\s*"
    r"(?:\b(?P<how>in|from|matching)\b\s*(?P<kind>(?:files|dirs|any)\b)?\s*(?P<slice>\[[-\d:\s]*\])?\s*(?P<what>.*))?\Z",
    re.IGNORECASE | re.DOTALL,
)
_DEEPEST = 20
_LONGEST = 64 << 10
_DOLLAR = "\0"
_SUBMITTED_ALONE = "belongs to a later `queue`: each is a job of its own, and this document is that of the first"
_NO_STATEMENT = "no statement of a submit file"
_REFUSALS = {
    "include": "give a file in which the included lines stand themselves",
    "if": "give a file with the lines that hold, without the conditions",
}


@dataclass(frozen=True)
class SubmitValue:
    """What a command of a submit file is set to, with its line and its name as it is written there."""

    line: int
    name: str
    text: str

    @property
    def shown(self) -> str:
        """The statement."""
        return f"{self.name} = {self.text}"


@dataclass(frozen=True)
class QueueStatement:
    """A `queue` statement.

    Attributes:
        count: how many jobs of each item, None where it does not say.
        names: of the variables that items give values to.
        how: "in", "from", "matching", or "" where there are no items.
        kind: what `matching` is to match: "files", "dirs" or "".
        part: of the items, as a slice of Python.
        what: the items, or the name of their file.
        inline: whether `what` is the items themselves.
    """

    line: int
    text: str
    count: int | None = None
    names: tuple[str, ...] = ()
    how: str = ""
    kind: str = ""
    part: slice = field(default_factory=lambda: slice(None))
    what: str = ""
    inline: bool = False


@dataclass
class SubmitDescription:
    """A submit file.

    Attributes:
        values: of commands and macros by their name in small letters; of attributes by `+name`.
        queue: the first `queue` statement, None where there is none.
        left: what is no statement, or belongs to a further `queue`.
    """

    values: dict[str, SubmitValue] = field(default_factory=dict)
    queue: QueueStatement | None = None
    left: list[Left] = field(default_factory=list)

    def filled(self, text: str, own: Mapping[str, str], missing: set[str]) -> str:
        """Return a text with its macros filled in; those that nobody defines become nothing, and are added to `missing`.

        Args:
            text: with `$(NAME)` in it.
            own: values by name in small letters, which go before those of the file.
            missing: receives names.
        """

        def value(match: re.Match[str]) -> str:
            name = match[1].lower()
            if name == "dollar":
                return _DOLLAR
            if name in own:
                return own[name]
            if name in self.values:
                return self.values[name].text
            if match[2] is None:
                missing.add(match[1])
            return match[2] or ""

        # One level at a time: a value, and a default, may have macros in it; one that has itself would never end.
        for _ in range(_DEEPEST):
            if len(text) > _LONGEST or not _MACRO.search(text):
                break
            text = _MACRO.sub(value, text)
        return text.replace(_DOLLAR, "$")


def is_submit_file(text: str) -> bool:
    """Return whether a text is a submit file: it names what is to be executed or queues jobs, and has statements alone."""
    if text.startswith("#!") or "\n#SBATCH" in f"\n{text}":
        return False
    lines = [line for _, line in _logical_lines(text)]
    starts = any(_QUEUE.match(line) or re.match(r"executable\s*=", line, re.IGNORECASE) for line in lines)
    return starts and all(any(form.match(line) for form in (_STATEMENT, _QUEUE, _REFUSED)) for line in lines)


def read_description(text: str, file: str) -> SubmitDescription:
    """Return the statements of a submit file up to its first `queue`.

    Raises:
        DocumentError: it has conditions or includes other files, of which it depends what it says.
    """
    found = SubmitDescription()
    for number, line in _logical_lines(text):
        statement, queue = _STATEMENT.match(line), _QUEUE.match(line)
        if refused := _REFUSED.match(line):
            word = refused[1].lower()
            raise fault_error(
                f"`{word}` is decided by condor_submit: what the file says is not known without it",
                "bad-script",
                file=file,
                line=number,
                given=line.partition("\n")[0],
                allowed="commands, macros and queue",
                next=_REFUSALS["include" if word == "include" else "if"],
            )
        if found.queue is not None:
            found.left.append(Left(number, line, _SUBMITTED_ALONE))
        elif queue:
            found.queue = _queue(number, line, queue[1])
        elif statement is None:
            found.left.append(Left(number, line, _NO_STATEMENT))
        else:
            own = f"+{statement[2]}" if statement[1] else statement[2]
            before = found.values.get(own.lower())
            value = (statement[3] or "").strip()
            # A macro in its own value is what it was before.
            value = re.sub(rf"\$\({re.escape(own)}\)", lambda _, old=before: old.text if old else "", value, flags=re.I)  # type: ignore[misc]
            found.values[own.lower()] = SubmitValue(number, own, value)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the statements with the number of their first line: a backslash at the end goes on, `@=` and lists until their end."""
    found: list[tuple[int, str]] = []
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        number, line = position + 1, lines[position].strip()
        position += 1
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\") and position < len(lines):
            line = f"{line[:-1].rstrip()} {lines[position].strip()}".rstrip()
            position += 1
        statement = _STATEMENT.match(line)
        if statement and statement[4]:
            rest = []
            while position < len(lines) and lines[position].strip() != f"@{statement[4]}":
                rest.append(lines[position].strip())
                position += 1
            position += 1
            line = f"{statement[1] or ''}{statement[2]} = {' '.join(rest)}"
        elif _QUEUE.match(line) and _OPENS_LIST.search(line):
            while position < len(lines) and not line.endswith(")"):
                line += "\n" + lines[position].strip()
                position += 1
        found.append((number, line))
    return found


def _queue(line: int, text: str, rest: str) -> QueueStatement:
    match = _ROWS.match(rest.strip())
    if match is None:
        return QueueStatement(line, text, how="?")
    what = (match["what"] or "").strip()
    inline = what.startswith("(")
    bounds = [int(part) if part.strip() else None for part in (match["slice"] or "[]")[1:-1].split(":")]
    return QueueStatement(
        line,
        text,
        count=int(match["count"][:9]) if match["count"] else None,
        names=tuple(re.split(r"[\s,]+", match["names"])) if match["names"] else ("Item",) if match["how"] else (),
        how=(match["how"] or "").lower(),
        kind=(match["kind"] or "").lower(),
        part=slice(*bounds[:3]) if match["slice"] and len(bounds) > 1 else slice(None),
        what=what.removeprefix("(").removesuffix(")").strip() if inline else what,
        inline=inline,
    )


def argument_words(text: str) -> list[str]:
    """Return the words of `arguments`, in the old or (within double quotes) the new syntax.

    In the new one single quotes hold words together, and two quotes stand for one.
    """
    text = text.strip()
    if not (text.startswith('"') and text.endswith('"') and len(text) > 1):
        return [word.replace('\\"', '"') for word in text.split()]
    words: list[str] = []
    word, begun, quoted, position = "", False, False, 0
    text = text[1:-1].replace('""', '"')
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "'" and quoted and text[position : position + 1] == "'":
            word, position = f"{word}'", position + 1
        elif letter == "'":
            quoted, begun = not quoted, True
        elif letter.isspace() and not quoted:
            words += [word] if begun else []
            word, begun = "", False
        else:
            word, begun = word + letter, True
    return [*words, word] if begun else words


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of `environment`: `"A=1 B='x y'"`, or `A=1;B=2` in the old syntax."""
    text = text.strip()
    pairs = argument_words(text) if text.startswith('"') else [part.strip() for part in text.split(";")]
    return {name.strip(): value for name, equals, value in (pair.partition("=") for pair in pairs) if equals and name}
