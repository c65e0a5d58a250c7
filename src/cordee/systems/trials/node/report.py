"""What a trial logs while it runs: the agent's end of its channel, of which the goal's last value counts."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from cordee.wire.channel import ChannelReader, create_channel


class TrialReport:
    """One trial's channel.

    Args:
        path: of its file, which is made.
        metric: the name of what counts.

    Attributes:
        value: the last one, None before the first. NaN and infinity are kept.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, path: Path, metric: str) -> None:
        self.path, self.value = path, None  # type: Path, Optional[float]
        self._metric = metric
        create_channel(path)
        self._reader = ChannelReader(path)

    def read(self) -> None:
        """Take what has been logged since the last time."""
        while True:
            events, cursor = self._reader.read()
            for _, _, _, values in events:
                self.value = values.get(self._metric, self.value)
            self._reader.told()
            self._reader.acknowledge(cursor)
            if not events:
                return

    def close(self) -> Optional[float]:
        """Take the rest, and return the value where it is a finite number."""
        self.read()
        self._reader.close()
        with suppress(OSError):
            os.unlink(self.path)
        return self.value if self.value is not None and math.isfinite(self.value) else None
