"""Looking for and running things where the ranks are: in the node's container, when there is one."""

from __future__ import annotations

import subprocess
from typing import Optional, Sequence

from cordee.systems.vetting.node.checks._base import CannotTest, Context, find_command

# Of each name: the command that it would start, or an empty line.
_LOOK = 'for name; do command -v "$name" || echo; done'
_LONGEST_S = 10.0


def find(
    names: Sequence[str], context: Context, env: Optional[dict[str, str]] = None
) -> list[tuple[Optional[str], str]]:
    """Return for each name the executable that it would start for a rank, or None with the reason.

    Raises:
        CannotTest: the container does not answer.
    """
    env = context.env if env is None else env
    if not context.inside:
        return [find_command(name, env, context.workdir) for name in names]
    try:
        done = subprocess.run(
            [*context.inside, "/bin/sh", "-c", _LOOK, "sh", *names],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=min(_LONGEST_S, context.deadline_s),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotTest("the container does not answer", "timeout") from None
    except OSError as error:
        raise CannotTest(f"the container cannot be entered: {error}", "error") from None
    lines = done.stdout.decode(errors="replace").splitlines()
    if len(lines) != len(names):
        words = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise CannotTest(f"the container has no shell to look with{''.join(f': {word}' for word in words)}", "error")
    return [(line or None, "" if line else "is not in the container") for line in lines]


def command_line(argv: Sequence[str], context: Context) -> tuple[list[str], str]:
    """Return what is to be started so that `argv` runs where the ranks are, and in which folder of the host."""
    return ([*context.inside, *argv], "/") if context.inside else (list(argv), context.workdir)
