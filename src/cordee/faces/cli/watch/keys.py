"""Keys that are pressed while something is shown; the terminal is as before afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator

_LEAVES = frozenset(b"qQ\x03\x04")  # Ctrl-C and Ctrl-D, where the terminal does not make signals of them


@contextlib.contextmanager
def leaving() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds and returns whether q was pressed meanwhile or the terminal is gone."""
    if not sys.stdin.isatty():
        with contextlib.suppress(KeyboardInterrupt):
            yield _sleep
        return
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor)

    def leaves(seconds: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return False
        typed = os.read(descriptor, 64)
        return not typed or not _LEAVES.isdisjoint(typed)

    try:
        tty.setcbreak(descriptor)
        yield leaves
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
