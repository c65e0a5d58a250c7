"""One command in a container of its own.

The command is a child of this process, moved inside, so that its terminal, environment, limits and cgroup are those of the
caller. When this process ends, by whatever, the container's first process does, and with it all that is inside.
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
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.run import started_up
from cordee.systems.environments.node.engines.podman.container import PodmanContainer

_SIGCONT = 18

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cordee.systems.environments.node.engines.podman.question import PodmanQuestion


def run(asked: PodmanQuestion) -> int:
    """Run the command and return its exit code, 128 and the signal for one that was killed.

    Raises:
        Refused, OSError: the container cannot be opened.
    """
    environment = given_environment()
    mask = kernel.block_signals()
    terminal = kernel.has_terminal()
    container = PodmanContainer(asked, host_processes=False)
    if asked.request.startup:  # while the file that this program comes from is in sight
        import cordee.systems.environments.node.engines.namespace.startup  # noqa: F401
    try:
        container.open(mask)
        spaces = container.namespaces()
        for descriptor, kind in spaces:
            if kind == kernel.NEWPID:
                kernel.enter_namespace(descriptor, kind)
        command = os.fork()
        if command == 0:
            _become(container, spaces, environment, mask, terminal)
        return _stay(command, terminal)
    finally:
        kernel.end(container.servers)


def _become(
    container: PodmanContainer,
    spaces: list[tuple[int, int]],
    environment: dict[bytes, bytes],
    mask: set[int],
    terminal: bool,
) -> None:
    request = container.request
    try:
        for descriptor, kind in spaces:
            if kind != kernel.NEWPID:
                kernel.enter_namespace(descriptor, kind)
        container.become_oneself()
        if not terminal:
            os.setpgid(0, 0)
        # Not earlier: a change of user namespaces ends this promise.
        kernel.die_with_parent()
        begin_in(request.workdir or "/")
        add_variables(environment, container.variables, container.appended)
        environment = started_up(request, environment, mask)
        kernel.set_signals(mask)
        become(request.argv, environment)
    except EngineRefused as refused:
        say(refused.words())
    except OSError as error:
        say(f"the container could not be entered: {error}")
    finally:
        os._exit(ENGINE)


def _stay(command: int, terminal: bool) -> int:
    """Forward signals until the command has ended; return its exit code.

    What a terminal sends reaches the command by itself, which is in the terminal's group of processes then.
    """
    while True:
        number, code = kernel.wait_signal()
        if number == kernel.SIGCHLD:
            ended, status = os.waitpid(command, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                os.kill(os.getpid(), kernel.SIGSTOP)
                os.kill(command, _SIGCONT)
            elif ended:
                return kernel.exit_code(status)
            continue
        if not terminal or code <= 0:
            try:
                os.kill(command, number)
            except ProcessLookupError:
                pass
        if number == kernel.SIGTSTP:
            os.kill(os.getpid(), kernel.SIGSTOP)
