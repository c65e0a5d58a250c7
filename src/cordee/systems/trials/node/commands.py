"""The command of a task: the job's, with what its own values stand for."""

from __future__ import annotations

import re
from typing import Mapping, Sequence

_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")


def filled_in(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command with the values of names in braces; names that have none stay as they are."""
    return tuple(_NAME.sub(lambda found: values.get(found[1], found[0]), word) for word in argv)
