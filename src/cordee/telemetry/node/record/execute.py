"""Becoming a command exactly as it would have been started without us."""

from __future__ import annotations

import errno
import os
import signal
from typing import Mapping, NoReturn, Sequence

from cordee.telemetry.node.record.options import CommandError

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
# Python ignores these in itself, and what is ignored stays ignored over exec.
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGXFZ")


def find_program(name: str, environ: Mapping[str, str]) -> str:
    """Return the file of a command, as a shell would look for it.

    Raises:
        CommandError: there is none (127), or it may not be executed (126).
    """
    if not name:
        raise CommandError("the command is an empty word", _NOT_FOUND, name)
    folders = [""] if "/" in name else environ.get("PATH", os.defpath).split(os.pathsep)
    refused = ""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        if os.path.exists(path) and not (refused or (os.path.isdir(path) and "/" not in name)):
            refused = path
    if refused:
        what = "is a folder" if os.path.isdir(refused) else "is not executable"
        raise CommandError(f"the command {what}", _NOT_EXECUTABLE, refused)
    raise CommandError("there is no such command", _NOT_FOUND, name)


def execute(program: str, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command.

    Signals, files, terminal, group and limits are those that this process was started with; handlers end with it.

    Raises:
        CommandError: the kernel refuses.
    """
    for name in _IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    environment = as_given(environ)
    try:
        os.execve(program, list(argv), environment)
    except OSError as error:
        refused = error
    if refused.errno == errno.ENOEXEC:  # a script without a first line: execvp gives it to the shell
        try:
            os.execve("/bin/sh", ["/bin/sh", program, *argv[1:]], environment)
        except OSError as error:
            refused = error
    code = _NOT_FOUND if refused.errno == errno.ENOENT else _NOT_EXECUTABLE
    raise CommandError(f"the command cannot be executed: {refused.strerror}", code, program)


def as_given(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what Python put into it when it started: LC_CTYPE where the locale was C (PEP 538)."""
    kept = dict(environ)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read()
    except OSError:
        return kept
    if kept.get("LC_CTYPE", "").startswith("C.") and not (b"\0" + given).count(b"\0LC_CTYPE="):
        del kept["LC_CTYPE"]
    return kept
