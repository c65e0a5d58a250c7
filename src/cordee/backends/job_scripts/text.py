"""The text of a job script, whatever its encoding."""

from __future__ import annotations

import re
from pathlib import Path

from cordee.core.documents.faults import fault_error
from cordee.core.documents.texts import text_of

LARGEST_BYTES = 256 << 10
_SHELL = re.compile(r"#!\s*\S*/(?:env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|z|k|da)?sh\b")


def is_shell(first_line: str) -> bool:
    """Return whether a first line names a shell: `#!/bin/bash`."""
    return _SHELL.match(first_line) is not None


def read_script_text(path: Path, what: str) -> str:
    """Return the text of a script, with plain line ends.

    Args:
        path: of the script.
        what: is expected, such as `an sbatch script`.

    Raises:
        DocumentError: it cannot be read, is larger than 256 KiB, or in no encoding that is clear.
    """
    file = str(path)
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is not a file")
        with path.open("rb") as stream:
            data = stream.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        text = f"cannot read it: {getattr(error, 'strerror', None) or error}"
        raise fault_error(
            text, "unreadable", file=file, given=file, allowed=what, next="give its path with --from"
        ) from None
    if len(data) > LARGEST_BYTES:
        raise fault_error(
            "is too large for a job script",
            "bad-script",
            file=file,
            line=1,
            given=file,
            allowed=f"at most {LARGEST_BYTES} bytes",
            next=f"give {what}, or write cordee.toml without it",
        )
    return text_of(data, file).replace("\r\n", "\n").replace("\r", "\n")
