"""What reading has cost so far: plain counters that whoever reads adds to and whoever measures looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


@dataclass
class ReadCounts:
    """Totals since the start; `sizes[k]` counts requests of 2**(k-1) < bytes <= 2**k.

    `busy_s` is the time in which at least one request was under way, `wait_s` what the training waited for samples.
    `advised` counts the stretches that the kernel was told to read ahead and `advised_bytes` their bytes: with them the
    storage sees those, and the requests are answered from memory.
    """

    samples: int = 0
    bytes: int = 0
    requests: int = 0
    opens: int = 0
    busy_s: float = 0.0
    wait_s: float = 0.0
    batches: int = 0
    skipped: int = 0
    advised: int = 0
    advised_bytes: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * 64)

    def request(self, size: int, seconds: float = 0.0) -> None:
        """Count one request to storage of `size` bytes."""
        self.requests += 1
        self.bytes += size
        self.busy_s += seconds
        self.sizes[max(0, size - 1).bit_length()] += 1

    def block(self, sizes: "Array", seconds: float) -> None:
        """Count the requests of one block of samples: their sizes in bytes, and how long they took together."""
        import numpy

        self.requests += len(sizes)
        self.bytes += int(sizes.sum())
        self.busy_s += seconds
        # The exponent of a float64 is the bit length of an integer below 2**53.
        for power, count in enumerate(numpy.bincount(numpy.frexp(numpy.maximum(sizes - 1, 0))[1]).tolist()):
            if count:
                self.sizes[power] += count
