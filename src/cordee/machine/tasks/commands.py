"""Commands as the kernel takes and ends them: found on a PATH that is not ours, signals by name."""

from __future__ import annotations

import errno
import os


def find_command(argv: tuple[str, ...], env: dict[str, str], cwd: str) -> list[str]:
    """Return argv with its command looked up on the PATH of `env`, not on the agent's.

    `python` stands for `python3` where only that exists.

    Raises:
        FileNotFoundError: there is no such command.
        PermissionError: it is there and cannot be executed.
    """
    command = argv[0]
    if "/" in command:
        path = os.path.join(cwd, command)
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file")
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, "not executable (chmod +x, or put its interpreter in front)")
        return [path, *argv[1:]]
    for name in (command, "python3") if command == "python" else (command,):
        for folder in env.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(cwd, folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return [path, *argv[1:]]
    raise FileNotFoundError(errno.ENOENT, "not found on PATH")


def not_started(error: Exception, command: str, cwd: str) -> tuple[int, str]:
    """Return the exit code that a shell would give for a command that did not start, and why in words."""
    missing = isinstance(error, FileNotFoundError)
    reason = getattr(error, "strerror", None) or str(error)
    place = f" in {cwd}" if missing and not os.path.isdir(cwd) else ""
    return 127 if missing else 126, f"cannot start {command!r}{place}: {reason}"
