"""The start-up commands of an environment, run inside by the process that made the container; what they export is kept."""

from __future__ import annotations

import os
import select
import time

from cordee.machine.tasks.shell_lines import environment_in, failed_line, lines_shell, lost_environment, timings_in
from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.execute import say
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

WHAT = "start-up command"
_OUTPUT, _TICK_S, _SHOWN_S = 3, 0.02, 0.1
# Whoever sends one of these to a command that has not begun wants none.
_ENDING = (1, 2, 15)
_OF_THE_SHELL = (b"PWD", b"OLDPWD")


def run_startup(
    lines: list[str],
    limit_s: float,
    environment: dict[bytes, bytes],
    workdir: str,
    blocked: set[int],
    unless_ended: int = -1,
) -> tuple[dict[bytes, bytes], str]:
    """Run the commands in one shell and return the environment that they leave, and a line about how long they took.

    What they leave running stays in the container. What they print goes to standard error.

    Args:
        lines: of shell.
        limit_s: they are killed after this many seconds.
        environment: that they begin with.
        workdir: where.
        blocked: signals that they shall have blocked, and no others.
        unless_ended: a descriptor whose end ends them; -1: none.

    Raises:
        EngineRefused: one failed, took too long or was interrupted.
    """
    reading, writing = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become_shell(lines, environment, workdir, writing, blocked)
    os.close(writing)
    output, status = _await(pid, reading, began + limit_s, unless_ended)
    os.close(reading)
    seconds = time.monotonic() - began
    done = timings_in(output)
    lost = lost_environment(output, status, lines, WHAT)
    if lost is not None:
        raise EngineRefused(lost[0], given=lost[1], next=lost[2])
    if status != 0:
        failed = failed_line(done, len(lines))
        line = lines[failed - 1]
        how = f"did not end within {limit_s:g} s" if status is None else f"ended with exit code {status}"
        raise EngineRefused(
            f"{WHAT} {failed} of {len(lines)} {how}",
            given=line,
            next=f"what it printed stands above; correct it in {where(line)}"
            if status is not None
            else "give more time by `[startup] timeout`, or correct the command",
        )
    left = {os.fsencode(name): os.fsencode(value) for name, value in environment_in(output).items()}
    # Where the shell went is no part of what it leaves.
    kept = {name: value for name, value in environment.items() if name in _OF_THE_SHELL}
    env = {**{name: value for name, value in left.items() if name not in _OF_THE_SHELL}, **kept}
    return env, told(lines, [(each.number, each.seconds) for each in done], seconds)


def where(line: str) -> str:
    """Return the key of the EDF that a line comes from."""
    return "`[stack] modules`" if line.startswith("module load ") else "`[startup] commands`"


def told(lines: list[str], timings: list[tuple[int, float]], seconds: float) -> str:
    """Return one line about start-up commands that went well: how many, how long, and which took longest."""
    text = f"start-up: {len(lines)} command{'s' if len(lines) > 1 else ''} in {seconds:.1f} s"
    number, longest = max(timings, key=lambda each: each[1], default=(0, 0.0))
    if len(timings) > 1 and longest >= _SHOWN_S:
        text += f", of which {longest:.1f} s: {lines[number - 1].strip()[:80]}"
    return text


def _become_shell(
    lines: list[str], environment: dict[bytes, bytes], workdir: str, writing: int, blocked: set[int]
) -> None:
    try:
        kernel.die_with_parent()
        kernel.restore_ignored()
        kernel.set_signals(blocked)
        silent = os.open("/dev/null", os.O_RDONLY)
        for number, source in ((_OUTPUT, writing), (0, silent), (1, 2)):
            os.dup2(source, number, inheritable=True)
        if not kernel.has_terminal():
            os.setpgid(0, 0)
        os.chdir(workdir)
        argv = lines_shell(lines, "", True, "")
        os.execve(argv[0], argv, environment)
    except OSError as error:
        say(f"{WHAT}s cannot be run: {error.strerror}: {error.filename}")
    finally:
        os._exit(127)


def _await(pid: int, reading: int, deadline: float, unless_ended: int) -> tuple[bytes, int | None]:
    """Return what the shell wrote, and its exit code; None: it was killed at the deadline."""
    output, status = b"", None
    os.set_blocking(reading, False)
    while status is None:
        ready, _, _ = select.select([reading, *([unless_ended] if unless_ended >= 0 else [])], [], [], _TICK_S)
        ended, word = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = kernel.exit_code(word)
        output += _drained(reading)
        signals = [number for number in _ENDING if number in kernel.pending_signals()]
        if (signals or unless_ended in ready) and status != 0:  # a terminal sends it to the shell, too
            if status is None:
                _kill(pid)
            code = 128 + signals[0] if signals else 125
            raise EngineRefused("the start-up was interrupted by a signal", code=code)
        if status is None and time.monotonic() > deadline:
            _kill(pid)
            break
    return output, status


def _drained(reading: int) -> bytes:
    found = b""
    while True:
        try:
            more = os.read(reading, 65536)
        except BlockingIOError:
            return found
        if not more:
            return found
        found += more


def _kill(pid: int) -> None:
    for target in (-pid, pid):
        try:
            os.kill(target, kernel.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(pid, 0)
