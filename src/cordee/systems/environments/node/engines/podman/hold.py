"""One container, kept open for the commands of a node.

This process holds the end of the pipe that the container's first process waits for. A second one, the watch, sits outside:
when the holder has ended, by whatever, it kills what is still inside.
"""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.answer import say_open, say_refused
from cordee.systems.environments.node.engines.namespace.execute import ENGINE
from cordee.systems.environments.node.engines.namespace.join import enter_words, started
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.watch import be_watched, start_watch
from cordee.systems.environments.node.engines.podman.boot import first_words
from cordee.systems.environments.node.engines.podman.container import PodmanContainer
from cordee.systems.environments.node.engines.podman.enter import check_workdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cordee.systems.environments.node.engines.podman.question import PodmanQuestion


def hold(asked: PodmanQuestion) -> int:
    """Open the container, say how to enter it, and keep it until standard input ends; return the exit code."""
    for number in (2, 15):
        kernel.default_signal(number)
    container = PodmanContainer(asked, host_processes=True)
    try:
        watch = start_watch()
        container.open(set())
        be_watched(watch, container.pid)
        check_workdir(container.pid, asked.request.workdir or "/")
        container.become_oneself()
    except (EngineRefused, OSError) as error:
        say_refused(
            error if isinstance(error, EngineRefused) else EngineRefused(f"the container could not be opened: {error}")
        )
        kernel.end(container.servers)
        return ENGINE
    say_open(_enter(container), container.pid, container.user)
    while os.read(0, 4096):
        pass
    kernel.end(container.servers)
    return 0


def _enter(container: PodmanContainer) -> list[str]:
    """Return the words that enter: the container's first process, and for a user the holder, who is called by name again."""
    words = [*first_words(), "enter", str(container.pid), started(container.pid)]
    words += [str(os.getpid()), started(os.getpid())] if container.user else ["0", "0"]
    return words + enter_words(container.variables, container.appended)
