"""A command in a container that is held: the same process, moved inside."""

from __future__ import annotations

import os

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.execute import add_variables, become, begin_in, given_environment
from cordee.environment.engines.namespace.kernel import Refused


def enter(words: list[str]) -> None:
    """Join a container and become a command; `words` are those that `hold` printed, and after them the command's.

    Raises:
        Refused: the container is gone.
        OSError: it cannot be joined.
    """
    pid, started, user = words[:3]
    environment = given_environment()
    variables, appended, workdir, argv = _options(words[3:])
    spaces = _open(pid, started, user == "1")
    before = kernel.dies_with_parent()
    for descriptor, kind in spaces:
        kernel.enter_namespace(descriptor, kind)
        os.close(descriptor)
    # Joining a user's namespace ends this promise, which whoever started the command relies on.
    kernel.die_with_parent(before)
    begin_in(workdir)
    add_variables(environment, variables, appended)
    become(argv, environment)


def _options(words: list[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]], str, list[str]]:
    variables, appended, workdir = [], [], "/"
    rest = iter(words)
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


def _open(pid: str, started: str, user: bool) -> list[tuple[int, int]]:
    gone = Refused(
        "the container is gone: the process that held it has ended", given=f"process {pid}", next="start it again"
    )
    kinds = [("user", kernel.NEWUSER), ("mnt", kernel.NEWNS)] if user else [("mnt", kernel.NEWNS)]
    try:
        spaces = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in kinds]
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[19] != started.encode():
                raise gone
    except (FileNotFoundError, ProcessLookupError):
        raise gone from None
    return spaces
