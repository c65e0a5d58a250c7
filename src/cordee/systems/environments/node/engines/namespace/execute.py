"""Becoming a command, inside: found on the PATH of the environment that it gets, its failures told apart."""

from __future__ import annotations

import os
import sys

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NOT_FOUND, NOT_EXECUTABLE, ENGINE = 127, 126, 125
_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The field of an ELF file that says for which processors it is.
_MACHINES = {3: "i386", 20: "ppc", 21: "ppc64le", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def given_environment() -> dict[bytes, bytes]:
    """Return the environment that this process was started with, exactly: Python may have changed its own copy."""
    with open("/proc/self/environ", "rb") as file:
        content = file.read()
    pairs = (each.partition(b"=") for each in content.split(b"\0") if b"=" in each)
    return {name: value for name, _, value in pairs}


def add_variables(
    environment: dict[bytes, bytes], variables: list[tuple[str, str]], appended: list[tuple[str, str]]
) -> None:
    """Add what a container's devices need: a variable that the environment has stays, a list gets longer."""
    for name, value in variables:
        environment.setdefault(os.fsencode(name), os.fsencode(value))
    for name, value in appended:
        key, folder = os.fsencode(name), os.fsencode(value)
        there = environment.get(key, _PATH if key == b"PATH" else b"")
        if folder not in there.split(b":"):
            environment[key] = there + b":" + folder if there else folder


def begin_in(workdir: str) -> None:
    """Make a folder inside the working folder.

    Raises:
        Refused: it is not there or not a folder.
    """
    try:
        os.chdir(workdir)
    except OSError as error:
        raise EngineRefused(
            f"the command cannot begin in {workdir}: {error.strerror}",
            given=workdir,
            next="set workdir to a folder of the image, or mount one there",
        ) from None


def become(argv: list[str], environment: dict[bytes, bytes]) -> None:
    """Execute the command in place of this process; return only by ending it, with words and 127 or 126."""
    kernel.restore_ignored()
    failure: Optional[OSError] = None
    failed = b""
    for path in _candidates(argv[0], environment):
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            if failure is None and os.path.lexists(path):
                failed, failure = path, error
        except OSError as error:
            failed, failure = path, error
            if not isinstance(error, PermissionError):
                break
    if failure is None:
        say(
            f"there is no command {argv[0]} inside\n  given:   {argv[0]}\n  next:    it is looked up on the PATH inside"
        )
        os._exit(NOT_FOUND)
    say(f"{os.fsdecode(failed)} cannot be executed: {_reason(failed, failure)}")
    os._exit(NOT_FOUND if isinstance(failure, FileNotFoundError) else NOT_EXECUTABLE)


def _candidates(name: str, environment: dict[bytes, bytes]) -> list[bytes]:
    word = os.fsencode(name)
    if b"/" in word:
        return [word]
    return [(folder or b".") + b"/" + word for folder in environment.get(b"PATH", _PATH).split(b":")]


def _reason(path: bytes, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "the program that its first line or its header names is not there"
    if error.errno != 8:  # ENOEXEC
        return error.strerror or str(error)
    with open(path, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF":
        return "it is no program of this system, and has no first line that names one (#!/bin/sh)"
    number = int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")
    return f"it is made for {_MACHINES.get(number, f'ELF machine {number}')} and this machine is {os.uname().machine}"


def say(words: str) -> None:
    """Write words on standard error, as Cordée's."""
    sys.stderr.write(f"cordee: {words}\n")
    sys.stderr.flush()
