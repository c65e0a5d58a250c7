"""Splits a shell script into its commands without running or expanding anything.

What it does not know for sure it leaves whole: an `if`, a loop, a function or a group is one compound command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_REDIRECT = re.compile(r"\d*(?:<<<|<<-|<<|>>|>\||[<>]&|<>|>|<)|&>>|&>")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|()]")
_ARRAY = re.compile(r"\w+\+?=")
_CLOSERS = {
    "if": "fi",
    "for": "done",
    "while": "done",
    "until": "done",
    "select": "done",
    "case": "esac",
    "{": "}",
    "[[": "]]",
}
_GO_ON = ("then", "do", "else", "elif", "!", "time")
_ENDS = (";", "&", "\n")


@dataclass(frozen=True)
class ShellToken:
    """A word with its quotes, an operator, a redirection with its target, or the end of a line ("\\n")."""

    kind: str
    text: str
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        words: as they stand there, with quotes and `$`; without redirections.
        text: the whole piece of source.
        after: the operator behind it: "", "\\n", ";", "&", "&&", "||", "|".
        redirects: such as `> log.txt`.
        compound: whether it is an `if`, a loop, a function or a group.
    """

    line: int
    words: tuple[str, ...]
    text: str
    after: str
    redirects: tuple[str, ...] = ()
    compound: bool = False


def read_commands(text: str) -> list[Command]:
    """Return the commands of a script at its outermost level, in order."""
    tokens = [*_tokens(text), ShellToken("op", "\n", text.count("\n") + 1, len(text), len(text))]
    commands: list[Command] = []
    position = 0
    while position < len(tokens):
        if tokens[position].text == "\n" or (tokens[position].kind == "op" and tokens[position].text != "("):
            position += 1
            continue
        end = _compound_end(tokens, position)
        compound, first = end is not None, position
        position = end or position
        while position < len(tokens) and tokens[position].kind != "op":
            position += 1
        words = tuple(token.text for token in tokens[first:position] if token.kind == "word")
        redirects = tuple(token.text for token in tokens[first:position] if token.kind == "redirect")
        source = text[tokens[first].start : tokens[position - 1].end]
        after = tokens[position].text if position < len(tokens) else ""
        commands.append(Command(tokens[first].line, words, source, after, redirects, compound))
        position += 1
    return commands


def chains(commands: list[Command]) -> Iterator[list[Command]]:
    """Yield commands joined by `|`, `||` and `&&` together."""
    chain: list[Command] = []
    for command in commands:
        chain.append(command)
        if command.after in _ENDS or not command.after:
            yield chain
            chain = []
    if chain:
        yield [*chain[:-1], replace(chain[-1], after="")]


def _compound_end(tokens: list[ShellToken], first: int) -> int | None:
    """Return the index behind the compound command that begins at `first`; None for a simple one."""
    texts = [token.text for token in tokens[first : first + 3]]
    function = texts[0] == "function" or texts[1:3] == ["(", ")"]
    if not (function or texts[0] in _CLOSERS or texts[0] == "("):
        return None
    closers: list[str] = []
    begins, position = True, first
    if function:
        position += 3 if texts[1:3] == ["(", ")"] else 2
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if closers and token.text == closers[-1] and (begins or token.text in (")", "]]")):
            closers.pop()
            begins = False
            if not closers:
                return position
        elif token.kind == "op":
            if token.text == "(":
                closers.append(")")
            begins = True
        elif begins and token.text in _CLOSERS:
            closers.append(_CLOSERS[token.text])
            begins = token.text in ("if", "while", "until", "{")
        else:
            begins = token.text in _GO_ON
    return len(tokens) - 1


def _tokens(text: str) -> Iterator[ShellToken]:
    position, line = 0, 1
    waiting: list[str] = []
    while position < len(text):
        start, letter = position, text[position]
        blank = _BLANK.match(text, position)
        if blank:
            position = blank.end()
        elif letter == "#":
            position = _line_end(text, position)
        elif letter == "\n":
            position += 1
            yield ShellToken("op", "\n", line, start, position)
            for mark in waiting:
                position = _document_end(text, position, mark)
            waiting = []
        elif redirect := _REDIRECT.match(text, position):
            position = redirect.end()
            gap = _BLANK.match(text, position)
            position = word_end(text, gap.end() if gap else position)
            if redirect.group().lstrip("0123456789") in ("<<", "<<-"):
                waiting.append(re.sub(r"[\\'\"]", "", text[redirect.end() : position].strip()))
            yield ShellToken("redirect", text[start:position], line, start, position)
        elif operator := _OPERATOR.match(text, position):
            position = operator.end()
            yield ShellToken("op", operator.group(), line, start, position)
        else:
            position = word_end(text, position)
            yield ShellToken("word", text[start:position].replace("\\\n", ""), line, start, position)
        line += text.count("\n", start, position)


def word_end(text: str, start: int) -> int:
    """Return where the word that begins at `start` ends: quotes, `$(...)`, `${...}` and arrays are inside."""
    closers: list[str] = []
    position = start
    while position < len(text):
        letter, inner = text[position], closers[-1] if closers else ""
        if letter == "\\":
            position += 2
            continue
        if letter == inner:
            closers.pop()
        elif letter == "'" and inner != '"':
            end = text.find("'", position + 1)
            position = len(text) if end < 0 else end
        elif letter == "$" and text[position + 1 : position + 2] in ("(", "{"):
            position += 1
            closers.append(")" if text[position] == "(" else "}")
        elif letter in '"`':
            closers.append(letter)
        elif letter == "(" and (inner == ")" or (not closers and _ARRAY.fullmatch(text, start, position))):
            closers.append(")")
        elif letter == "#" and inner == ")" and text[position - 1].isspace():
            position = _line_end(text, position)
        elif not closers and letter in " \t\r\n;&|()<>":
            break
        position += 1
    return min(max(position, start), len(text))


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _document_end(text: str, position: int, mark: str) -> int:
    """Return where a here-document that begins at `position` ends."""
    while position < len(text):
        end = _line_end(text, position)
        found = text[position:end].strip() == mark
        position = end + 1
        if found:
            break
    return min(position, len(text))


def array_words(source: str) -> str:
    """Return the words of an array's value `( ... )` on one line, without comments."""
    inner = source.strip().removeprefix("(").removesuffix(")")
    return " ".join(token.text for token in _tokens(inner) if token.kind == "word")
