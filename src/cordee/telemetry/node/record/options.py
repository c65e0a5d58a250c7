"""What `cordee record` is asked for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

from cordee.core.errors import CordeeError

EXIT_OURS = 125
SOURCES = ("auto", "nvml-gpm", "dcgm", "nvml", "amdsmi", "cpu")
_REPLAY = "replay:"
SHORTEST_S, LONGEST_S = 0.1, 60.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|min|)")


class RecordError(CordeeError):
    """`cordee record` itself failed, before the command was started."""

    kind = "record"
    exit_code = EXIT_OURS


class CommandError(CordeeError):
    """The command cannot be executed, or is not there.

    Args:
        text: what is wrong.
        exit_code: 126 or 127, as a shell has it.
    """

    kind = "command"

    def __init__(self, text: str, exit_code: int, given: str) -> None:
        super().__init__(text, given=given, next="write the command as you would without `cordee record --`")
        self.exit_code = exit_code


@dataclass(frozen=True)
class RecordOptions:
    """One call of `cordee record`.

    Attributes:
        argv: the command.
        output: the recording's folder; None: one below `recordings/`.
        interval_s: seconds between samples.
        source: one of `SOURCES`, or `replay:DIR`.
        threads: whether each thread is looked at for the busiest one; None: from 1 s between samples on.
        bind: `gpu` binds the command to the CPUs near its GPU, `none` leaves it where it is.
        quiet: say nothing.
    """

    argv: tuple[str, ...]
    output: Optional[str] = None
    interval_s: float = 1.0
    source: str = "auto"
    threads: Optional[bool] = None
    bind: str = "none"
    quiet: bool = False

    @property
    def sample_threads(self) -> bool:
        """Whether threads are sampled: each costs as much as a process."""
        return self.interval_s >= 1.0 if self.threads is None else self.threads


def parse_interval(text: str) -> float:
    """Return an interval in seconds.

    Raises:
        RecordError: it is none, or too short or long.
    """
    allowed = f"{SHORTEST_S:g} s (GPUs count over 0.1 s at least) to {LONGEST_S:g} s, such as 1s, 100ms, 0.5"
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise RecordError("invalid --interval", given=text, allowed=allowed)
    seconds = float(found.group(1)) * {"ms": 0.001, "min": 60.0}.get(found.group(2), 1.0)
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise RecordError("the interval is too short or too long", given=text, allowed=allowed)
    return seconds


def checked_source(text: str) -> str:
    """Return a source as it was given, the folder of a replay from the root: the sampler works in another folder.

    Raises:
        RecordError: there is none of this name, or no such folder.
    """
    if text in SOURCES:
        return text
    if text.startswith(_REPLAY):
        folder = os.path.abspath(text[len(_REPLAY) :])
        if not os.path.isdir(folder):
            raise RecordError(
                "there is no recording to replay", given=text, allowed="replay:DIR of `cordee record -o DIR`"
            )
        return _REPLAY + folder
    raise RecordError("there is no such source", given=text, allowed=[*SOURCES, "replay:DIR"])
