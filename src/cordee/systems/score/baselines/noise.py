"""How much a quantity of one run may be off by chance: a block bootstrap over its windows, and quantiles of Student's t.

Samples of a job are not independent: a window resembles the one before it. So whole blocks of windows are drawn, as long as
the memory of the series asks for (Andrews 1991, Bartlett kernel, plugged in for a series that remembers one step), from a circle
(Politis and Romano 1992).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_DRAWS = 400
_FEWEST_WINDOWS = 30
_FEWEST_BLOCKS = 3
_MOST_MEMORY = 0.97
_SEED = 20260101


@dataclass(frozen=True)
class Noise:
    """The standard error of a ratio of sums over one run.

    Attributes:
        error: in the ratio's own unit.
        freedom: degrees of freedom that it was estimated with: blocks less one.
        block: windows per block.
    """

    error: float
    freedom: float
    block: int


def ratio_noise(above: np.ndarray, below: np.ndarray) -> Noise | None:
    """Return the noise of sum(above) / sum(below).

    Args:
        above, below: float64 [window]; a window where either is NaN is left out.

    Returns:
        None where there are too few windows, or too few blocks of them, to say.
    """
    import numpy as np

    there = np.isfinite(above) & np.isfinite(below)
    above, below = above[there], below[there]
    count, total = len(above), float(below.sum())
    if count < _FEWEST_WINDOWS or total == 0:
        return None
    memory = _memory(above - above.sum() / total * below)
    block = _block_length(memory, count)
    blocks = count / block
    if blocks < _FEWEST_BLOCKS:
        return None
    draws = np.random.default_rng(_SEED).integers(0, count, size=(_DRAWS, math.ceil(blocks)))
    top, bottom = _block_sums(above, block)[draws].sum(axis=1), _block_sums(below, block)[draws].sum(axis=1)
    drawn = top / np.where(bottom == 0, np.nan, bottom)
    # The draws are whole blocks, so they may be a little longer than the run; few blocks look more alike than they are.
    error = float(np.nanstd(drawn)) * math.sqrt(math.ceil(blocks) / blocks) * math.sqrt(blocks / (blocks - 1))
    return Noise(error / math.sqrt(_seen(memory, block)), blocks - 1, block)


def _block_sums(values: np.ndarray, length: int) -> np.ndarray:
    """Return the sum of the block that begins at each window, going around at the end."""
    import numpy as np

    around = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    sums: np.ndarray = around[length:] - around[:-length]
    return sums


def _memory(apart: np.ndarray) -> float:
    """Return how much of a window is in the next one (autocorrelation, 0 to 0.97); what few windows hide is added."""
    import numpy as np

    apart = apart - apart.mean()
    square = float(np.dot(apart, apart))
    if square == 0:
        return 0.0
    memory = float(np.dot(apart[1:], apart[:-1])) / square
    return min(max(memory + (1 + 3 * memory) / len(apart), 0.0), _MOST_MEMORY)


def _block_length(memory: float, count: int) -> int:
    alpha = 4 * memory**2 / ((1 - memory) ** 2 * (1 + memory) ** 2)
    return max(1, math.ceil(1.1447 * math.pow(alpha * count, 1 / 3)))


def _seen(memory: float, block: int) -> float:
    """Return which part of the variance blocks of this length show of a series with this memory: it goes on beyond them."""
    return 1 - 2 * memory * (1 - memory**block) / (block * (1 - memory**2))


@lru_cache(maxsize=256)
def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t, for probabilities from 0.5 to 1 and degrees of freedom from 1.

    With t = sqrt(freedom) x tan(a) the density is cos(a)^(freedom - 1), which is summed up here; right to four digits.
    """
    import numpy as np

    angles = np.linspace(0.0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1) if freedom < 1e4 else np.exp(-0.5 * freedom * angles**2)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(2 * probability - 1, below / below[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)
