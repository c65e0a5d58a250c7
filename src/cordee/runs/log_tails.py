"""What was printed last: the ends of text files however long they are, and lines without colours."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cordee.core.ports.farm import TASK_SECRETS
from cordee.core.registry import offered
from cordee.core.secrets import OutputMask, secret_values
from cordee.machine.foreign_files import read_json, regular_below
from cordee.runs.folder import RunFolder

_TAIL_BYTES = 32 << 10
_LONGEST_LINE = 500
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def last_lines(path: Path, most: int = 40) -> tuple[str, ...]:
    """Return at most `most` last lines of a file, without keys and cut to 500 characters each; none when it cannot be read."""
    try:
        with open(path, "rb", opener=regular_below(path.parent.parent)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError:
        return ()
    mask = OutputMask()
    return tuple(plain(mask.line(line).decode(errors="replace")) for line in lines[-most:])


def output_mask(folder: RunFolder) -> OutputMask:
    """Return what masks the output of a run: it knows the secrets that its ranks or tasks were given."""
    try:
        tasks = read_json(folder.plan)["steps"][0]["tasks"]
        known = secret_values(tasks["env"], [*tasks["argv"], *tasks.get("setup", ())])
        given = offered(TASK_SECRETS) if tasks.get("launch") == "tasks" else None
        return OutputMask(known) if given is None else OutputMask(known, given(folder.root))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # no plan, or one of nobody's
        return OutputMask()


def plain(line: str) -> str:
    """Return a line of output as a person saw it last: no colours, no control characters, at most 500 characters."""
    shown = line.rstrip("\r\n").rpartition("\r")[2]
    return _CONTROLS.sub("", _ESCAPES.sub("", shown))[:_LONGEST_LINE]
