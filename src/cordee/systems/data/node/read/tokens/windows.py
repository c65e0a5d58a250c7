"""Windows of a file in the order in which they are read; those that lie near each other are one request."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Answer = Callable[[], bytes]
# Asked to read (offset, bytes), returns at once what waits for them; it may be called several times.
Ask = Callable[[int, int], Answer]
Window = tuple[Answer, int]

_MOST_WINDOWS, _MOST_BYTES = 4096, 8 << 20


class WindowShape(NamedTuple):
    """What requests look like.

    Attributes:
        near_bytes: windows with at most so much between them are read in one.
        waste_bytes: read between windows of one plan, at most; as much as is wanted is always allowed.
        request_bytes: of one request, unless a window is larger.
        early: requests are made one plan before they are waited for, the first plans being small; else they cost nothing
            before they are waited for, and all that is known is planned at once.
    """

    near_bytes: int
    waste_bytes: int
    request_bytes: int
    early: bool


class TokenWindows:
    """Plans requests for what is read next. What was read is held until its last window is taken: about 8 MiB of windows.

    Windows must be taken in the order in which they were told; where others are taken, everything expected is forgotten.
    """

    def __init__(self, ask: Ask, shape: WindowShape) -> None:
        self._ask, self._shape = ask, shape
        self.forget()

    def forget(self) -> None:
        """Drop what was expected."""
        import numpy

        self._begins = self._ends = numpy.zeros(0, numpy.int64)
        self._planned: deque[Window] = deque()
        self._step = 0

    def expect(self, begins: "Array", ends: "Array") -> None:
        """Append to what is read next, in bytes of the file."""
        import numpy

        self._begins = numpy.concatenate([self._begins, begins])
        self._ends = numpy.concatenate([self._ends, ends])

    def take(self, begins: "Array", ends: "Array") -> list[Window]:
        """Return what holds each window's bytes, and where in it they begin."""
        import numpy

        count = len(begins)
        told = self._begins[:count], self._ends[:count]
        if not (numpy.array_equal(told[0], begins) and numpy.array_equal(told[1], ends)):
            self.forget()
            return self._plan(begins, ends)
        while len(self._planned) < min(len(self._begins), self._wanted(count)):
            self._plan_more(count - len(self._planned))
        self._begins, self._ends = self._begins[count:], self._ends[count:]
        return [self._planned.popleft() for _ in range(count)]

    def _wanted(self, count: int) -> int:
        """Return how many windows have to be planned when `count` are taken."""
        return count + max(count, self._step) if self._shape.early else count

    def _plan_more(self, least: int) -> None:
        """Plan the next windows: at first as many as are taken at once where requests are made early, then ever more."""
        at = len(self._planned)
        self._step = min(_MOST_WINDOWS, 2 * self._step or least) if self._shape.early else _MOST_WINDOWS
        begins, ends = self._begins[at : at + max(least, self._step)], self._ends[at : at + max(least, self._step)]
        count = max(1, least, int((ends - begins).cumsum().searchsorted(_MOST_BYTES, side="right")))
        self._planned.extend(self._plan(begins[:count], ends[:count]))

    def _plan(self, begins: "Array", ends: "Array") -> list[Window]:
        """Make requests for windows, in the order of the file."""
        import numpy

        if not len(begins):
            return []
        order = begins.argsort(kind="stable")
        begins, ends = begins[order], numpy.maximum.accumulate(ends[order])
        gaps = begins[1:] - ends[:-1]
        owners = _owners(gaps > self._near(gaps, int((ends - begins).sum())))
        firsts = begins[numpy.searchsorted(owners, owners)]
        # What would be too large is cut at whole multiples of the size that is allowed.
        owners = _owners(numpy.diff(owners * (1 << 40) + (begins - firsts) // self._shape.request_bytes) != 0)
        places = numpy.searchsorted(owners, numpy.arange(owners[-1] + 1))
        firsts, sizes = begins[places], numpy.maximum.reduceat(ends, places) - begins[places]
        answers = [self._ask(first, size) if size else bytes for first, size in zip(firsts.tolist(), sizes.tolist())]
        asked = order.argsort()
        starts = (begins - firsts[owners])[asked].tolist()
        return [(answers[owner], start) for owner, start in zip(owners[asked].tolist(), starts)]

    def _near(self, gaps: "Array", wanted: int) -> int:
        """Return how much may lie between two windows of one request."""
        near = self._shape.near_bytes
        while near and int(gaps[(gaps > 0) & (gaps <= near)].sum()) > max(wanted, self._shape.waste_bytes):
            near //= 2
        return near


def _owners(breaks: "Array") -> "Array":
    """Return the number of the request of each window, from whether another begins between two."""
    import numpy

    return numpy.concatenate([numpy.zeros(1, numpy.int64), breaks.cumsum()])
