"""Closing what nobody has closed."""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
from typing import Callable

# Bound where it is used in `__del__` and in generators that may end late: while the interpreter ends, the names of modules
# are None. All files and threads end then by themselves.
ENDING = staticmethod(sys.is_finalizing)


def close_elsewhere(close: Callable[[], None]) -> None:
    """Close something whose `__del__` this is called from, in a thread of its own.

    An object may be let go in the middle of anything, `threading`'s own work included: to wait there for a thread, or for a
    lock that one holds, would be to wait for ever where that thread needs what is being done here to go on.
    """
    with contextlib.suppress(RuntimeError):
        _thread.start_new_thread(_start, (close,))


def _start(close: Callable[[], None]) -> None:
    # Only from here, because starting it waits for `threading`'s own lock.
    with contextlib.suppress(RuntimeError):  # the interpreter is ending
        threading.Thread(target=close, name="cordee-close", daemon=True).start()
