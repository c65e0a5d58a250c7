"""The part of a workload that its label is about: after imports and warming up, until the time is over."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Steady:
    """Says when the labelled part goes on, and when it was.

    Args:
        seconds: how long it lasts.

    Attributes:
        elapsed_s: how long it really was; set when `going` has said no.
        began_at: UTC epoch seconds.
        until: its end by `time.monotonic`.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.elapsed_s = 0.0
        self.began_at = 0.0
        self.until = 0.0

    def begin(self) -> None:
        """Start the labelled part."""
        self.began_at = time.time()
        self.until = time.monotonic() + self.seconds

    @property
    def going(self) -> bool:
        """Whether it goes on; the first question begins it."""
        if not self.until:
            self.begin()
        left_s = self.until - time.monotonic()
        if left_s <= 0 and not self.elapsed_s:
            self.elapsed_s = self.seconds - left_s
        return left_s > 0

    def write(self, path: Path, told: dict[str, float]) -> None:
        """Write when it was, and what the workload knows of itself: `{began, ended, told}` in UTC epoch seconds."""
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps({"began": self.began_at, "ended": self.began_at + self.elapsed_s, "told": told}))
        os.replace(beside, path)
