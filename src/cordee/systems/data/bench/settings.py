"""What is measured, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """One measurement.

    Attributes:
        target: the data set: a path (or an address, for Cordée's loader).
        batch: samples of a batch; for a loader of the user's own only a hint of what its batches hold.
        threads, fields, decode: of `cordee.dataset`; None or empty: its defaults.
        length: of a token set: tokens of a sample.
        workers: worker processes of `cordee.dataset(...).loader`.
        seconds: of loading in each round.
        rounds: pairs of loader and bare loop; medians are told.
        cache: `warm`, `cold`, or `auto`: both where the page cache can be emptied of the files.
        function: `module:function` or `file.py:function` that returns an iterable of batches; None: Cordée's loader.
        arguments: of that function.
        need_samples_per_s: what the training takes; None: not known.
    """

    target: str
    batch: int = 256
    threads: int | None = None
    workers: int = 0
    fields: tuple[str, ...] = ()
    decode: str | None = None
    length: int | None = None
    shuffle: bool = True
    seed: int = 0
    seconds: float = 2.0
    rounds: int = 3
    cache: str = "auto"
    function: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    need_samples_per_s: float | None = None

    @property
    def request(self) -> dict[str, Any]:
        """What the loader's process is told."""
        return {
            "target": self.target,
            "batch": self.batch,
            "threads": self.threads,
            "workers": self.workers,
            "fields": list(self.fields) or None,
            "decode": self.decode,
            "length": self.length,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "function": self.function,
            "arguments": dict(self.arguments),
        }
