"""Keys that are pressed while something is shown; the terminal is as before afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

_ARROWS = {b"\x1b[A": "k", b"\x1b[B": "j", b"\x1b[C": "n", b"\x1b[D": "p", b"\x1b[5~": "K", b"\x1b[6~": "J"}
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b|.", re.DOTALL)
_GONE = b"q"


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Give a function that waits some seconds and returns what was pressed meanwhile, as letters; nothing without a terminal.

    Arrows are `k` up, `j` down, `n` right, `p` left; pages are `J` down and `K` up. Ctrl-C, Ctrl-D and a
    terminal that is gone are `q`.
    """
    if not sys.stdin.isatty():
        with contextlib.suppress(KeyboardInterrupt):
            yield _sleep
        return
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return letters(os.read(descriptor, 64) or _GONE) if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


def letters(data: bytes) -> str:
    """Return what a terminal sent as letters; Escape alone is `o`, other sequences are left out."""
    found = ""
    for key in _KEY.findall(data):
        if key in _ARROWS:
            found += _ARROWS[key]
        elif key in (b"\x1b", b"\x03", b"\x04"):
            found += "o" if key == b"\x1b" else "q"
        elif len(key) == 1:
            found += chr(key[0])
    return found


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
