"""Shell variables of a script: what is known for sure is filled in, the rest stays as it stands."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_SAFE = re.compile(r"(?:[\w@%+=:,./^ -]|\$\w+|\$\{\w+\})*\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)\Z", re.DOTALL)
_PIECE = re.compile(
    r"""(?P<escaped>\\.)
    |"\$\{(?P<list>\w+)\[[@*]\]\}"|\$\{(?P<bare_list>\w+)\[[@*]\]\}
    |(?P<double>"(?:[^"\\]|\\.)*")
    |(?P<single>'[^']*')
    |\$\(\((?P<sum>[\w\s$\{\}+*/%()-]{1,80})\)\)
    |\$\{(?P<braced>\w+)(?:\[0\])?(?::?-(?P<default>[\w./:-]*))?\}
    |\$(?P<plain>[A-Za-z_]\w*|[1-9])""",
    re.DOTALL | re.VERBOSE,
)
# A variable alone, and what may stand between them in a path.
_NAME = re.compile(r"\$(?:([A-Za-z_]\w*)|\{(\w+)\})")
_PATH = re.compile(r"(?:[\w@%+=:,./^ ~-]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*(?::-[\w./-]*)?\})*\Z")
# The folder of the submission, where sbatch starts a script, and what only makes a path absolute.
_HERE = re.compile(r"\$(?:\(pwd\)|PWD\b|\{PWD\}|SLURM_SUBMIT_DIR\b|\{SLURM_SUBMIT_DIR\})")
_REAL = re.compile(r"\$\((?:realpath|readlink -f) ([^\s()]+)\)")
_SUMS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass
class Variables:
    """What is known of a script's variables.

    Attributes:
        known: literal values.
        arrays: literal arrays, as the source of their words.
        alias: variables that stand for one of Cordée's, such as the first node's name for `$MASTER_ADDR`.
        sources: values in which only variables are left that the script does not set, as source without quotes.
        texts: values without quotes in which variables are left, for a shell that evaluates the value.
        unknown: variables that the script sets to what only a shell can know.
    """

    known: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, str] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def path_of(self, source: str) -> str | None:
        """Return a path in which the variables of whoever submits are left as `${NAME}`; None when only a shell can know it.

        What the script sets is filled in, and so are `~` and the folder of the submission, as `.`.
        """

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return self.sources.get(name, self.known.get(name, match[0]))

        text = _REAL.sub(lambda match: match[1] if match[1][0] in "./~$" else f"./{match[1]}", source)
        text = _NAME.sub(value, _HERE.sub(".", text))
        text = re.sub(r"\A~(?=/)", "${HOME}", _HERE.sub(".", text))
        left = {match[1] or match[2] for match in _NAME.finditer(text)}
        if left & self.unknown or any(name.startswith("SLURM_") for name in left) or not _PATH.match(text):
            return None
        return re.sub(r"\$([A-Za-z_]\w*)", r"${\1}", text)

    def fill(self, source: str) -> str:
        """Return source with the variables that are known filled in, outside single quotes."""
        return _PIECE.sub(self._piece, source)

    def evaluated(self, source: str) -> str:
        """Return the text that `eval` or `bash -c` is given by this source."""
        return unquoted(replace(self, known={**self.texts, **self.known}).fill(source))

    def _piece(self, match: re.Match[str]) -> str:
        whole = match.group()
        if match["escaped"] or match["single"]:
            return whole
        if match["double"]:
            fill = self._inner_piece if re.search(r"\$\(|`|\$\{\w+\W*\$", whole) else self._quoted_piece
            return '"' + _PIECE.sub(fill, whole[1:-1]) + '"'
        return self._value(match)

    def _quoted_piece(self, match: re.Match[str]) -> str:
        """Return a piece inside double quotes that hold no command: any value can stand there, with backslashes."""
        if match["single"]:
            return "'" + _PIECE.sub(self._quoted_piece, match["single"][1:-1]) + "'"
        value = self.known.get(match["braced"] or match["plain"] or "", "")
        if not value or _SAFE.match(value):
            return self._inner_piece(match)
        of_ranks = {*self.alias.values(), "$MASTER_PORT"}
        return re.sub(
            r"[\\\"`]|\$\{?\w*", lambda one: one[0] if one[0].replace("{", "") in of_ranks else f"\\{one[0]}", value
        )

    def _inner_piece(self, match: re.Match[str]) -> str:
        if match["single"]:
            return "'" + _PIECE.sub(self._inner_piece, match["single"][1:-1]) + "'"
        if match["escaped"] or match["double"]:
            return match.group()
        return self._joined(match) if match["list"] or match["bare_list"] else self._value(match)

    def _joined(self, match: re.Match[str]) -> str:
        """Return an array inside double quotes: its words without their own quotes."""
        words = self.arrays.get(match["list"] or match["bare_list"], '"')
        text = plain_text(words)
        return text if text is not None and _SAFE.match(text) and words.count('"') % 2 == 0 else match.group()

    def _value(self, match: re.Match[str]) -> str:
        if match["sum"]:
            return self._sum(match)
        name = match["list"] or match["bare_list"]
        if name:
            return self.arrays.get(name, match.group())
        name = match["braced"] or match["plain"]
        if name in self.alias:
            return f"${{{self.alias[name][1:]}}}" if match["braced"] else self.alias[name]
        value = self.known.get(name)
        if value is None or not _SAFE.match(value):
            return match.group()
        return value or match["default"] or value

    def _sum(self, match: re.Match[str]) -> str:
        filled = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: self.known.get(name[1], name[0]), match["sum"])
        try:
            return str(_reckon(ast.parse(filled.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
            return match.group()


def _reckon(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**9:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        return int(_SUMS[type(node.op)](_reckon(node.left), _reckon(node.right)))
    raise ValueError("not a sum of whole numbers")


def assignment(word: str) -> tuple[str, bool, str] | None:
    """Return (name, whether it is appended, source of the value) of `NAME=value`; None for other words."""
    match = _ASSIGNMENT.match(word)
    return (match[1], bool(match[2]), match[3]) if match else None


def needs_shell(source: str) -> bool:
    """Return whether a shell would change the words of this source: variables, commands, wildcards, `~`, braces."""
    before = " "
    for letter, quote in _letters(source):
        if (letter in "$`" and quote in ("", '"')) or (not quote and letter in "*?[{"):
            return True
        if not quote and letter == "~" and before in " \t\n=:":
            return True
        before = letter
    return False


def plain_text(source: str) -> str | None:
    """Return the text that one word stands for; None when only a shell can know it."""
    return None if needs_shell(source) else unquoted(source)


def unquoted(source: str) -> str:
    """Return a word without its quotes and backslashes; variables stay as they stand."""
    return "".join(letter for letter, _ in _letters(source))


def _letters(source: str) -> Iterator[tuple[str, str]]:
    """Yield every letter that remains with what quotes it: nothing, a quote, or a backslash."""
    quote, position = "", 0
    while position < len(source):
        letter = source[position]
        position += 1
        if letter == "\\" and quote != "'" and position < len(source):
            if quote and source[position] not in '"\\$`':
                yield "\\", quote
            yield source[position], "\\"
            position += 1
        elif letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
        else:
            yield letter, quote
