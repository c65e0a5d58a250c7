"""The way into a container that is held: for both engines whose containers a process can join."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.execute import (
    add_variables,
    become,
    begin_in,
    given_environment,
)
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks: with its id, that names it for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def enter_words(variables: list[tuple[str, str]], appended: list[tuple[str, str]]) -> list[str]:
    """Return the words that `join` understands, for variables of the container and for values that lists get."""
    words = [word for name, value in variables for word in ("--variable", name, value)]
    return words + [word for name, value in appended for word in ("--append", name, value)]


def open_spaces(pid: str, since: str, kinds: list[tuple[str, int]]) -> list[tuple[int, int]]:
    """Return descriptors of a process' namespaces, each with its kind; `since` is when the process started.

    Raises:
        Refused: that process has ended.
        OSError: they cannot be opened.
    """
    gone = EngineRefused(
        "the container is gone: the process that held it has ended", given=f"process {pid}", next="start it again"
    )
    try:
        spaces = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), kind) for name, kind in kinds]
        if kinds and started(int(pid)) != since:
            raise gone
    except (FileNotFoundError, ProcessLookupError):
        raise gone from None
    return spaces


def join(spaces: list[tuple[int, int]], words: list[str]) -> None:
    """Enter namespaces, in their order, and become a command.

    Args:
        spaces: as of `open_spaces`.
        words: those of `enter_words`, `--workdir FOLDER` and, after `--`, the command.

    Raises:
        Refused, OSError: they cannot be joined, or the words are wrong.
    """
    environment = given_environment()
    variables, appended, workdir, argv = _options(words)
    before = kernel.dies_with_parent()
    for descriptor, kind in spaces:
        kernel.enter_namespace(descriptor, kind)
        os.close(descriptor)
    # Joining a user namespace ends this promise, which whoever started the command relies on.
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
            raise EngineRefused("the engine was called with a word it does not know", given=word)
    argv = list(rest)
    if not argv:
        raise EngineRefused("there is no command to run in the container", next="give a command after --")
    return variables, appended, workdir, argv
