"""What is said when a place does not take what is written to it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from cordee.core.errors import DataError

_FULL = {
    errno.ENOSPC: "the file system is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "a file is too large",
}


@contextmanager
def writing_to(place: str, again: str = "it continues where it ended") -> Iterator[None]:
    """Tell errors of the operating system as what they are: `place` cannot be written to.

    Args:
        again: what the same command does when it is repeated.

    Raises:
        DataError: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        reason = _FULL.get(error.errno or 0, error.strerror or str(error))
        raise DataError(
            f"the data set cannot be written: {reason}",
            given=place,
            next=f"make space, or choose a place that can be written to, and repeat the command: {again}",
        ) from None
