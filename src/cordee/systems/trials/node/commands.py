"""The command of a task: the job's, with what its own values stand for."""

from __future__ import annotations

import re
from typing import Collection, Mapping, Sequence

_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")


def filled_in(argv: Sequence[str], values: Mapping[str, str], names: Collection[str] = ()) -> tuple[str, ...]:
    """Return a command with the values of names in braces; names that have none stay as they are.

    Args:
        names: that have a value in some commands: where they have none, the words that they stand in are left out.
    """
    left_out = {name for name in names if name not in values}
    words = (word for word in argv if not left_out or left_out.isdisjoint(_NAME.findall(word)))
    return tuple(_NAME.sub(lambda found: values.get(found[1], found[0]), word) for word in words)
