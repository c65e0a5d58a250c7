"""A command in a container that is held: the same process, moved inside."""

from __future__ import annotations

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.join import join, open_spaces


def enter(words: list[str]) -> None:
    """Join a container and become a command; `words` are those that `hold` printed, and after them the command's.

    Raises:
        Refused: the container is gone.
        OSError: it cannot be joined.
    """
    pid, since, user = words[:3]
    own = [("user", kernel.NEWUSER)] if user == "1" else []
    join(open_spaces(pid, since, [*own, ("mnt", kernel.NEWNS)]), words[3:])
