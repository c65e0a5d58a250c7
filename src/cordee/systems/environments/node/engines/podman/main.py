"""The engine's own command line: `run`, `hold` or `enter`, and the words of `question`."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.execute import ENGINE, say
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused


def main(words: list[str]) -> None:
    """Do what the words say and end the process: with the command's exit code, or 125 and words on standard error."""
    code = ENGINE
    try:
        if words[0] == "enter":
            from cordee.systems.environments.node.engines.podman.enter import enter

            enter(words[1:])
        else:
            from cordee.systems.environments.node.engines.podman.question import asked_of

            if words[0] == "run":
                from cordee.systems.environments.node.engines.podman.run import run

                code = run(asked_of(words[1:]))
            elif words[0] == "hold":
                from cordee.systems.environments.node.engines.podman.hold import hold

                code = hold(asked_of(words[1:]))
    except EngineRefused as refused:
        say(refused.words())
    except OSError as error:
        say(f"the container could not be opened: {error}")
    os._exit(code)
