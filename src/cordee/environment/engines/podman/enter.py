"""A command in a container that is held: the same process, moved inside."""

from __future__ import annotations

import os

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.execute import add_variables, become, begin_in, given_environment
from cordee.environment.engines.namespace.kernel import Refused

_NEWIPC = 0x08000000


def enter(words: list[str]) -> None:
    """Join a container and become a command; `words` are those that `hold` printed, and after them the command's.

    Raises:
        Refused: the container is gone.
        OSError: it cannot be joined.
    """
    pid, since, holder, held_since = words[:4]
    environment = given_environment()
    variables, appended, workdir, argv = _options(words[4:])
    # In this order: podman's user namespace has the right to the others, and the holder's the user's own number.
    spaces = [("user", kernel.NEWUSER)] if holder != "0" else []
    opened = _open(pid, since, [*spaces, ("ipc", _NEWIPC), ("mnt", kernel.NEWNS)])
    opened += _open(holder, held_since, spaces)
    before = kernel.dies_with_parent()
    for descriptor, kind in opened:
        kernel.enter_namespace(descriptor, kind)
        os.close(descriptor)
    # Joining a user namespace ends this promise, which whoever started the command relies on.
    kernel.die_with_parent(before)
    begin_in(workdir)
    add_variables(environment, variables, appended)
    become(argv, environment)


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks: with its id, that names it for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


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
        raise Refused(
            f"the container has no folder {workdir} to begin in",
            given=workdir,
            next="set workdir to a folder of the image, or mount one there",
        )


def _options(words: list[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]], str, list[str]]:
    variables, appended, workdir, rest = [], [], "/", iter(words)
    for word in rest:
        if word == "--variable":
            variables.append((next(rest), next(rest)))
        elif word == "--append":
            appended.append((next(rest), next(rest)))
        elif word == "--workdir":
            workdir = next(rest)
        elif word == "--":
            break
        else:
            raise Refused("the engine was called with a word it does not know", given=word)
    argv = list(rest)
    if not argv:
        raise Refused("there is no command to run in the container", next="give a command after --")
    return variables, appended, workdir, argv


def _open(pid: str, since: str, spaces: list[tuple[str, int]]) -> list[tuple[int, int]]:
    gone = Refused(
        "the container is gone: the process that held it has ended", given=f"process {pid}", next="start it again"
    )
    try:
        opened = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in spaces]
        if spaces and started(int(pid)) != since:
            raise gone
    except (FileNotFoundError, ProcessLookupError):
        raise gone from None
    return opened
