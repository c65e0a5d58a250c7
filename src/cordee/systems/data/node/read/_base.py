"""The seam between what gives samples (shards, tokens) and what orders, shares out and batches them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Union

from cordee.systems.data.node.read.batches.columns import SampleTable

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.node.read.counters import ReadCounts

    Array = numpy.ndarray[Any, Any]

Sample = dict[str, Any]
# None stands for a damaged one that is skipped.
Samples = Union[list[Any], SampleTable]


class Unread(ABC):
    """Samples that are read in parts, each by whichever thread asks for it, in any order.

    Attributes:
        bytes: of all of them, exactly or about.
    """

    bytes: int

    @abstractmethod
    def read(self, begin: int, end: int) -> Samples:
        """Return those from place `begin` to `end`, as `SampleSource.read` does; each is asked for once.

        Raises:
            DataError, CorruptDataError: as `SampleSource.read`.
        """


class SampleSource(ABC):
    """A data set that gives samples by number. Called by one reader at a time, in one process; forked copies open anew.

    Attributes:
        name: how people call it.
        size: samples from 0 to size - 1.
        identity: changes when the samples do; kept with a checkpoint to refuse the position in another data set.
        counts: what was read so far; who measures takes it from here.
        ahead_samples: how many samples ahead `expect` can make use of; 0: none.
        at_once: how many reads may be begun before the first is waited for.
        in_parts: whether `unread` may be called.
    """

    name: str
    size: int
    identity: str
    counts: "ReadCounts"
    ahead_samples: int = 0
    at_once: int = 1
    in_parts: bool = False

    @abstractmethod
    def read(self, samples: "Array") -> list[Sample]:
        """Return samples in the order asked for (int64[n], repetition allowed); raw values, not decoded.

        A source that was told to skip damaged samples gives None in the place of one, and counts it.

        Raises:
            DataError: storage failed. CorruptDataError: a sample is not what the index says; names its key.
        """

    def begin(self, samples: "Array") -> "Callable[[], Samples]":
        """Begin to read samples, in threads where there are some; return what waits for them and returns what `read` would.

        What was begun is waited for in the same order, each once. A read in between is no error.
        """
        return partial(self.read, samples)

    def unread(self, samples: "Array") -> Unread:
        """Return samples that the threads that decode them read, as `read` would: each has little in hand at a time.

        Called in the order of `expect`.
        """
        raise NotImplementedError

    def expect(self, samples: "Array") -> None:  # noqa: B027
        """Append to what is read next, so that storage is asked early and in its own order. Returns at once.

        Samples must be read in the order in which they are told here; a read of others forgets all that is expected.
        """

    def verify(self, sample: int, values: Sample) -> None:  # noqa: B027
        """Compare a sample's bytes, as read, with what was packed: to tell damage from what no decoder understands.

        Raises:
            CorruptDataError: they differ.
        """

    def describe(self, sample: int) -> str:
        """Return a sample's key and where it lies, for messages."""
        return f"{self.name}[{sample}]"

    def close(self) -> None:  # noqa: B027
        """Give back files and threads."""
