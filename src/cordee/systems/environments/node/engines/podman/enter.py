"""A command in a container that is held: the same process, moved inside."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.join import join, open_spaces
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

_NEWIPC = 0x08000000


def enter(words: list[str]) -> None:
    """Join a container and become a command; `words` are those that `hold` printed, and after them the command's.

    Raises:
        Refused: the container is gone.
        OSError: it cannot be joined.
    """
    pid, since, holder, held_since = words[:4]
    # In this order: podman's user namespace has the right to the others, and the holder's the user's own number.
    own = [("user", kernel.NEWUSER)] if holder != "0" else []
    spaces = open_spaces(pid, since, [*own, ("ipc", _NEWIPC), ("mnt", kernel.NEWNS)])
    join(spaces + open_spaces(holder, held_since, own), words[4:])


def check_workdir(pid: int, workdir: str) -> None:
    """Make sure that commands can begin in a folder of a container.

    Raises:
        Refused: there is no such folder.
    """
    child = os.fork()
    if child == 0:
        try:
            descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
            kernel.enter_namespace(descriptor, kernel.NEWNS)
            os.chdir(workdir)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise EngineRefused(
            f"the container has no folder {workdir} to begin in",
            given=workdir,
            next="set workdir to a folder of the image, or mount one there",
        )
