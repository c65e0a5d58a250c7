"""Which line of a program's output says why it ended: seldom the very last one."""

from __future__ import annotations

import re
from typing import Collection, Iterable, Optional

from cordee.core.secrets import masked_output

_LONGEST = 400
# Ended from outside: nothing that the program printed is the reason.
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
# What libraries print whatever happens: progress, remarks of loggers, the way to a page, the frame of a traceback, torchrun's
# table of failures. The line that says what went wrong stands before or between them.
_REMARK = re.compile(
    r"\s|[\W_\d]*$|wandb: (?!ERROR)|\[Gloo\]|Traceback \(|During handling of|The above exception|"
    r".*\b(DEBUG|INFO|WARN|WARNING)\b|.*:\d+: \w*Warning: |.*\d%\||[IW]\d{4} \d\d:|.*torch/distributed/elastic|"
    r".*(Error|Exception):$|\S+ FAILED$|Failures:$|Root Cause|\[\d+\]:$|.*resource_tracker"
)
_OF_RANK = re.compile(r"\[rank\d+\]: ?")
_ERROR = re.compile(
    r"error|exception|fatal|abort|panic|terminate|fail|assert|signal|fault|violation|overflow|out of memory|"
    r"cannot|can't|could not|unable|denied|refused|no space|not found|no such",
    re.IGNORECASE,
)


def is_remark(line: str) -> bool:
    """Return whether a line says nothing of why a program ended."""
    return _REMARK.match(line) is not None


def reason_in(
    lines: Iterable[str], signal: Optional[str] = None, *, of_errors: bool = False, secrets: Collection[str] = ()
) -> Optional[str]:
    """Return the last line that can say why a program ended, without keys; None without one.

    Args:
        lines: what it printed, in order.
        signal: the one that ended it. Then a line must speak of an error, and none counts for a signal from outside.
        of_errors: a line must speak of an error in any case.
        secrets: that the program was given.
    """
    if signal in FROM_OUTSIDE:
        return None
    for line in reversed(list(lines)):
        said = _OF_RANK.sub("", line.rstrip(), count=1)
        if said and not is_remark(said) and (not (signal or of_errors) or _ERROR.search(said)):
            return masked_output(said[: 4 * _LONGEST], secrets)[:_LONGEST]
    return None
