"""The tokens that a collector knows, each with what it allows."""

from __future__ import annotations

import hmac
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from cordee.core.documents.texts import text_of
from cordee.core.errors import DocumentError, UsageError

SCOPES = ("read", "write")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]{24,512}\Z")


@dataclass(frozen=True)
class Token:
    """Who a token stands for, and what it allows: `write`, `read` or both."""

    name: str
    scopes: frozenset[str]
    secret: str


def read_tokens(path: str | Path) -> list[Token]:
    """Return the tokens in a file: one a line, `NAME SCOPES TOKEN`, scopes joined by commas, `#` begins a comment.

    Raises:
        UsageError: it cannot be read, or others may read it.
        DocumentError: a line is wrong.
    """
    full = Path(path).expanduser()
    try:
        with full.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = text_of(file.read(1_000_000), str(full)).split("\n")
    except OSError as error:
        raise UsageError(f"the tokens cannot be read: {error}", given=str(path)) from None
    if mode & 0o077:
        raise UsageError("others can read the tokens", given=f"{full} with mode {mode:o}", next=f"chmod 600 {full}")
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        scopes = frozenset(words[1].split(",")) if len(words) == 3 else frozenset[str]()
        if not scopes or not scopes <= set(SCOPES) or not _NAME.match(words[0]) or not _TOKEN.match(words[2]):
            raise DocumentError(
                "this is no line of tokens",
                file=str(full),
                line=number,
                allowed="NAME read|write|read,write TOKEN, the token of at least 24 characters",
                next="`openssl rand -hex 24` makes one",
            )
        tokens.append(Token(words[0], scopes, words[2]))
    if not tokens:
        raise DocumentError("the file holds no token", file=str(full), allowed="a line `NAME SCOPES TOKEN` for each")
    return tokens


def find_token(tokens: list[Token], given: str) -> Token | None:
    """Return the token that was given, in the same time whichever it is."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token.secret.encode(), given.encode(errors="replace")):
            found = token
    return found
