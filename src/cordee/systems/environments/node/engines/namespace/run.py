"""One command in a container of its own.

Three processes: this one stays on the host's side and forwards signals; the first process inside reaps what is orphaned;
the command. Whoever of them is killed takes all with it, and with the last of them go namespaces and mounts.
"""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.execute import (
    ENGINE,
    add_variables,
    become,
    begin_in,
    given_environment,
    say,
)
from cordee.systems.environments.node.engines.namespace.isolation import leave_host
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.root.mounted_root import MountedRoot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cordee.systems.environments.node.engines.namespace.request import ContainerRequest


def run(request: ContainerRequest) -> int:
    """Run the request's command and return its exit code, 128 and the signal for one that was killed.

    Raises:
        Refused, OSError: the container cannot be made.
    """
    mask = kernel.block_signals()
    environment = given_environment()
    begins_in = os.getcwd() if request.kind == "host" else "/"
    root = MountedRoot(request, leave_host())
    try:
        root.prepare()
        kernel.unshare(kernel.NEWPID)
        terminal = kernel.has_terminal()
        lifeline, held = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(held)
            _inside(root, request.workdir or begins_in, request.argv, environment, mask, lifeline, terminal)
        os.close(lifeline)
        return _stay_outside(first, terminal)
    finally:
        kernel.end(root.servers)


def _stay_outside(first: int, terminal: bool) -> int:
    """Forward signals until the container has ended; return its exit code.

    What a terminal sends reaches the command by itself, which is in the terminal's group of processes then.
    """
    while True:
        number, code = kernel.wait_signal()
        if number == kernel.SIGCHLD:
            ended, status = os.waitpid(first, os.WNOHANG)
            if ended:
                return kernel.exit_code(status)
            continue
        if not terminal or code <= 0:
            kernel.queue_signal(first, number)
        if number == kernel.SIGTSTP:
            os.kill(os.getpid(), kernel.SIGSTOP)


def _inside(
    root: MountedRoot,
    workdir: str,
    argv: list[str],
    environment: dict[bytes, bytes],
    mask: set[int],
    lifeline: int,
    terminal: bool,
) -> None:
    """Be the first process inside; ends with the command's exit code and returns never."""
    try:
        kernel.die_with_parent()
        os.set_blocking(lifeline, False)
        try:
            os.read(lifeline, 1)
            os._exit(ENGINE)  # The parent was gone before this process was tied to it.
        except BlockingIOError:
            pass
        if not terminal:
            os.setpgid(0, 0)
        root.assemble(own_processes=True)
        begin_in(workdir)
        add_variables(environment, root.variables, root.appended)
        environment = started_up(root.request, environment, mask)
        command = os.fork()
        if command == 0:
            kernel.set_signals(mask)
            become(argv, environment)
        os._exit(_reap(command))
    except EngineRefused as refused:
        say(refused.words())
        os._exit(refused.code)
    except OSError as error:
        say(f"the container could not be made: {error}")
    finally:
        os._exit(ENGINE)


def started_up(request: ContainerRequest, environment: dict[bytes, bytes], mask: set[int]) -> dict[bytes, bytes]:
    """Return the environment of the command: as the start-up commands leave it, which begin in the current folder.

    Raises:
        EngineRefused: one of them failed.
    """
    if not request.startup:
        return environment
    from cordee.systems.environments.node.engines.namespace.startup import run_startup

    environment, told = run_startup(request.startup, request.startup_s, environment, ".", mask)
    say(told)
    return environment


def _reap(command: int) -> int:
    """Forward what the outer process sends and bury what is orphaned, until the command has ended; return its exit code."""
    while True:
        number, code = kernel.wait_signal()
        if number != kernel.SIGCHLD:
            if code == kernel.QUEUED:
                _send(command, number)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == command:
                return kernel.exit_code(status)
            if pid == 0:
                break


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
