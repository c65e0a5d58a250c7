"""Scripts with a reading of a file in the place of a key."""

from __future__ import annotations

import ast
import io
import shlex
import tokenize
from pathlib import Path

from cordee.core.secret_forms import Key


def in_shell(text: str, key: Key, place: Path) -> str | None:
    """Return a shell script with a command substitution in a key's place; None in a comment."""
    begin, end = key.begin, key.end
    line = text.rfind("\n", 0, begin) + 1
    quote = _quote_at(text[line:begin])
    if quote == "#":
        return None
    read = f"$(cat {shlex.quote(str(place))})"
    if quote == "'":
        read = f"'\"{read}\"'"
    elif quote == "":
        read = f'"{read}"'
    return text[:begin] + read + text[end:]


def _quote_at(before: str) -> str:
    """Return in which quotes a line is at its end, `#` in a comment."""
    quote, at = "", 0
    while at < len(before):
        letter = before[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif not quote and letter == "#" and (at == 0 or before[at - 1].isspace()):
            return "#"
        elif letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        at += 1
    return quote


def in_python(text: str, key: Key, place: Path) -> str | None:
    """Return a Python script that reads a file where a literal was; None where the key is no whole literal."""
    literal = literal_of(text, key)
    return None if literal is None else f"{text[: literal[0]]}open({str(place)!r}).read(){text[literal[1] :]}"


def literal_of(text: str, key: Key) -> tuple[int, int] | None:
    """Return where the literal begins and ends that is a key as a whole, and that a call can stand for."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    for token in tokens:
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        if token.type == tokenize.STRING and begin < key.begin and key.end < end:
            try:
                whole = ast.literal_eval(token.string)
                if not isinstance(whole, str) or whole.strip() != text[key.begin : key.end].strip():
                    return None
                ast.parse(f"{text[:begin]}open('x').read(){text[end:]}")
            except (ValueError, SyntaxError):
                return None
            return begin, end
    return None
