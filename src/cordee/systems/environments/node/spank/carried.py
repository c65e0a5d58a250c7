"""How an environment travels with a job: its canonical document as one word of letters, digits, `+`, `/` and `=`."""

from __future__ import annotations

import base64
import json
import zlib

from cordee.machine.foreign_files import parse_json
from cordee.systems.environments.node.document import Environment, environment_of

# Variables of a job are limited to 2 MB together by the kernel's usual settings, and this is copied with every step.
LONGEST = 1_000_000


def carry(environment: Environment) -> str:
    """Return the environment as one word.

    Raises:
        ValueError: the word would be longer than `LONGEST` characters.
    """
    text = json.dumps(environment.document(), separators=(",", ":"))
    word = base64.b64encode(zlib.compress(text.encode("utf-8", "surrogateescape"), 9)).decode()
    if len(word) > LONGEST:
        raise ValueError(f"{len(word)} characters when compressed, more than {LONGEST}")
    return word


def carried(word: str) -> Environment:
    """Return the environment that `carry` made a word of.

    Raises:
        ValueError: it is no such word, or of another version of Cordée.
    """
    try:
        text = zlib.decompress(base64.b64decode(word, validate=True)).decode("utf-8", "surrogateescape")
    except zlib.error as error:
        raise ValueError(str(error)) from None
    return environment_of(parse_json(text))
