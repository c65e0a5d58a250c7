"""What the GPUs, nodes and ranks of a made run measure: believable numbers, always the same, never measured.

Layout as Megatron-LM orders ranks: tensor parallel innermost, then data, then pipeline; experts are spread over data parallel ranks.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

GPU_METRICS = (
    "gpu_graphics_ratio",
    "gpu_sm_ratio",
    "gpu_tensor_ratio",
    "gpu_dram_ratio",
    "gpu_power_watts",
    "gpu_temperature_celsius",
    "gpu_memory_used_bytes",
)
NODE_METRICS = ("cpu_busy_ratio", "memory_used_bytes", "fabric_transmit_bytes_per_second", "pressure_io_ratio")
RANK_METRICS = ("cpu_cores_ratio", "memory_rss_bytes", "io_write_bytes_per_second")
MEMORY_BYTES = 96e9

# The slow node and the rank that stalls are seen in these.
_BUSY = ("gpu_sm_ratio", "gpu_tensor_ratio", "gpu_power_watts", "gpu_dram_ratio")
_START_S, _CHECKPOINT_S = 15, 6
TRAIN, START, SAVE, STALL, DOWN = range(5)
# By what the job does (train, start, save, stall, down), and the standard deviation of the noise.
_LEVELS: dict[str, tuple[tuple[float, ...], float]] = {
    "gpu_graphics_ratio": ((0.975, 0.21, 0.02, 0.96, 0.0), 0.006),
    "gpu_sm_ratio": ((0.93, 0.12, 0.02, 0.25, 0.0), 0.012),
    "gpu_tensor_ratio": ((0.58, 0.03, 0.0, 0.02, 0.0), 0.015),
    "gpu_dram_ratio": ((0.42, 0.1, 0.12, 0.05, 0.0), 0.012),
    "gpu_power_watts": ((610.0, 190.0, 170.0, 240.0, 95.0), 9.0),
    "gpu_temperature_celsius": ((64.0, 46.0, 55.0, 57.0, 41.0), 0.7),
    "gpu_memory_used_bytes": ((0.81 * MEMORY_BYTES, 0.3 * MEMORY_BYTES, 0.81 * MEMORY_BYTES, 0.81 * MEMORY_BYTES, 4e8), 2e7),
    "cpu_busy_ratio": ((0.22, 0.55, 0.12, 0.31, 0.02), 0.015),
    "memory_used_bytes": ((310e9, 180e9, 420e9, 310e9, 20e9), 2e9),
    "fabric_transmit_bytes_per_second": ((38e9, 2e9, 21e9, 4e8, 1e6), 9e8),
    "pressure_io_ratio": ((0.005, 0.2, 0.35, 0.005, 0.0), 0.003),
    "cpu_cores_ratio": ((3.1, 9.0, 1.4, 6.0, 0.0), 0.2),
    "memory_rss_bytes": ((38e9, 22e9, 52e9, 38e9, 0.0), 3e8),
    "io_write_bytes_per_second": ((2e5, 1e5, 1.4e9, 1e5, 0.0), 4e4),
}  # fmt: skip


@dataclass(frozen=True)
class RankLayout:
    """How ranks, one on each GPU, are placed.

    Attributes:
        gpus: how many; a whole number of nodes.
        per_node: GPUs of one node.
    """

    gpus: int
    per_node: int = 4

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.gpus // self.per_node

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each dimension: tp, dp and pp multiply to `gpus`, ep divides dp."""
        tp = self.per_node
        pp = next(size for size in (8, 4, 2, 1) if self.nodes % size == 0 and size <= self.nodes)
        dp = self.gpus // tp // pp
        return {"tp": tp, "dp": dp, "pp": pp, "ep": next(size for size in (8, 4, 2, 1) if dp % size == 0)}

    def place(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a rank."""
        tp, dp = self.sizes["tp"], self.sizes["dp"]
        at = rank // tp % dp
        return {"tp": rank % tp, "dp": at, "pp": rank // tp // dp, "ep": at % self.sizes["ep"]}

    def node_of(self, rank: int) -> int:
        """Return the number of a rank's node."""
        return rank // self.per_node


@dataclass(frozen=True)
class Story:
    """When what happens, in whole seconds after the ranks started; a longer run goes through it again and again.

    Attributes:
        seconds: one round of it.
    """

    layout: RankLayout
    seconds: int

    @property
    def failed_at(self) -> int:
        """A rank dies; the others are stopped and all start again."""
        return round(self.seconds * 0.45)

    @property
    def back_at(self) -> int:
        """The second attempt starts."""
        return self.failed_at + max(2, min(20, self.seconds // 20))

    @property
    def dead_rank(self) -> int:
        """The rank that dies."""
        return self.layout.gpus // 5

    @property
    def slow_node(self) -> int:
        """A node whose GPUs run at three quarters of the others' speed, always."""
        return self.layout.nodes * 3 // 8

    @property
    def stalled_rank(self) -> int:
        """A rank that computes nothing for a while, so that all others wait."""
        return self.layout.gpus * 2 // 3

    @property
    def stall(self) -> tuple[int, int]:
        """From when to when it stalls: between two checkpoints of the second attempt."""
        every = self.checkpoint_every
        begin = -(-3 * self.seconds // (5 * every)) * every + _CHECKPOINT_S + 2
        return begin, begin + max(4, every // 3)

    @property
    def silent_node(self) -> int:
        """A node whose samples are missing for a while."""
        return self.layout.nodes // 2

    @property
    def silence(self) -> tuple[int, int]:
        """From when to when they are missing."""
        return round(self.seconds * 0.55), round(self.seconds * 0.65)

    @property
    def unmeasured(self) -> int:
        """The GPU that nobody can measure."""
        return self.layout.gpus * 5 // 6

    @property
    def nonsense(self) -> tuple[int, int]:
        """The GPU and the second at which its counter says infinity, for three samples."""
        return self.layout.gpus // 7, round(self.seconds * 0.3)

    @property
    def checkpoint_every(self) -> int:
        """Seconds between two checkpoints."""
        return max(20, self.seconds // 8)

    def doing(self, first: int, count: int) -> np.ndarray:
        """Return what the job does in each second: TRAIN, START, SAVE, STALL or DOWN."""
        import numpy as np

        at = np.arange(first, first + count)
        turn = at % self.seconds
        what = np.full(count, TRAIN)
        what[(turn % self.checkpoint_every < _CHECKPOINT_S) & (turn >= self.checkpoint_every)] = SAVE
        what[(turn >= self.stall[0]) & (turn < self.stall[1])] = STALL
        start = min(_START_S, self.seconds // 20)
        what[(at < start) | ((at >= self.back_at) & (at < self.back_at + start))] = START
        what[(at >= self.failed_at) & (at < self.back_at)] = DOWN
        return what

    def trained(self, second: float) -> int:
        """Return how many seconds the job has trained for: none while it starts, saves, stalls or is down."""
        whole = max(0, int(second))
        return int(_trained(self, 1 << max(10, whole.bit_length()))[whole])

    def checkpoints(self, until: int) -> list[int]:
        """Return the seconds at which a save was done, up to `until`."""
        import numpy as np

        saving = np.concatenate([[0], self.doing(0, until) == SAVE, [0]]).astype(int)
        return [int(at) for at in np.flatnonzero(np.diff(saving) == -1)]


@lru_cache(maxsize=4)
def _trained(story: Story, seconds: int) -> np.ndarray:
    import numpy as np

    return np.concatenate([[0], np.cumsum(story.doing(0, seconds) == TRAIN)])


def gpu_values(story: Story, names: Sequence[str], first: int, count: int) -> dict[str, np.ndarray]:
    """Return float32 [second, GPU] by metric, of `count` seconds; NaN where nothing was measured."""
    import numpy as np

    layout = story.layout
    rank = np.arange(layout.gpus)
    stage = rank // (layout.sizes["tp"] * layout.sizes["dp"])
    slow = rank // layout.per_node == story.slow_node
    found = {}
    for name in names:
        values = _wave(story, name, first, count, layout.gpus)
        if name in _BUSY:
            values *= np.where(slow, 0.75, 1 - 0.02 * (stage == 0) + 0.015 * (stage % 2)).astype(np.float32)
            _stall(story, values, first, count)
        if name == "gpu_temperature_celsius":
            values += np.where(slow, 19, 3 * (rank % layout.per_node)).astype(np.float32)
        if name == "gpu_memory_used_bytes":
            values *= (1 - 0.04 * stage).astype(np.float32)
        values[:, story.unmeasured] = np.nan
        device, at = story.nonsense
        if name == "gpu_power_watts" and first < at + 3 and at < first + count:
            values[max(0, at - first) : at + 3 - first, device] = np.inf
        found[name] = np.minimum(values, 1, out=values) if name.endswith("_ratio") else values
    return found


def node_values(story: Story, names: Sequence[str], first: int, count: int) -> dict[str, np.ndarray]:
    """Return float32 [second, node] by metric."""
    return {name: _wave(story, name, first, count, story.layout.nodes) for name in names}


def rank_values(story: Story, names: Sequence[str], first: int, count: int) -> dict[str, np.ndarray]:
    """Return float32 [second, rank] by metric."""
    return {name: _wave(story, name, first, count, story.layout.gpus) for name in names}


def silent(story: Story, second: int) -> bool:
    """Return whether the samples of the silent node are missing at a second."""
    return story.silence[0] <= second % story.seconds < story.silence[1]


def _stall(story: Story, values: np.ndarray, first: int, count: int) -> None:
    import numpy as np

    turn = np.arange(first, first + count) % story.seconds
    values[(turn >= story.stall[0]) & (turn < story.stall[1]), story.stalled_rank] *= np.float32(0.04)


def _wave(story: Story, name: str, first: int, count: int, devices: int) -> np.ndarray:
    """Return the levels of what the job does, each device a little off in its own way, with noise."""
    import numpy as np

    levels, noise = _LEVELS[name]
    seed = zlib.crc32(name.encode())
    own = np.random.default_rng(seed).standard_normal(devices, dtype=np.float32)
    random = np.random.default_rng([seed, first])
    level = np.array(levels, np.float32)[story.doing(first, count)]
    values = random.standard_normal((count, devices), dtype=np.float32)
    values += own
    values *= np.float32(noise)
    values += level[:, None]
    return np.maximum(values, 0, out=values)
