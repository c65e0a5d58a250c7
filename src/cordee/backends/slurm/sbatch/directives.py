"""`#SBATCH` lines, read as sbatch reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cordee.backends.job_scripts.options import SBATCH_OPTIONS, GivenOption, parse_options
from cordee.job.conversion import Left

UNKNOWN = "not an option of sbatch itself; where a plug-in of the site has it, add it to [slurm] options"
_MARK = "#SBATCH"
_ESCAPED = ("'", '"', "\\")
_SEPARATORS = (["hetjob"], ["packjob"])


@dataclass
class Directives:
    """What the `#SBATCH` lines say: all options in order, and what sbatch or Cordée passes over."""

    given: list[GivenOption] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


def read_directives(text: str) -> Directives:
    """Return the options of a script: `#SBATCH` at the beginning of a line, before the first command."""
    found, in_header = Directives(), True
    why = "sbatch ignores it: it stands after the first command"
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_MARK):
            if not in_header:
                found.left.append(Left(number, line, why))
                continue
            words = split_words(line[len(_MARK) :])
            if words in _SEPARATORS:
                in_header, why = False, "a part of a heterogeneous job: only the first part became the document"
                found.left.append(Left(number, line, "heterogeneous jobs have no counterpart"))
                continue
            _read_line(words, number, found)
        elif in_header and line.strip() and not line.startswith("#"):
            in_header = False
    return found


def _read_line(words: list[str], number: int, found: Directives) -> None:
    given, rest = parse_options(words, SBATCH_OPTIONS, number)
    found.given += [one for one in given if one.option is not None]
    for one in given:
        if one.option is None:
            found.left.append(Left(number, one.text, UNKNOWN))
    if rest:
        found.left.append(Left(number, " ".join(rest), "not an option: sbatch refuses it"))


def split_words(text: str) -> list[str]:
    r"""Split an option line as sbatch does: quotes hold words together, \' is a quote, # ends the line."""
    words: list[str] = []
    word, quote, begun, position = "", "", False, 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == "\\" and text[position : position + 1] in _ESCAPED:
            word, begun, position = word + text[position], True, position + 1
        elif quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "'\"":
            quote, begun = letter, True
        elif letter == "#":
            break
        elif letter.isspace():
            if begun or word:
                words.append(word)
            word, begun = "", False
        else:
            word += letter
    return [*words, word] if begun or word else words
