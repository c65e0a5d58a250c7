"""The engine's own command line: `run`, `hold`, `enter`, `probe` or `build`, and the words of each."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.execute import ENGINE, say
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.request import request_of


def main(words: list[str]) -> None:
    """Do what the words say and end the process: with the command's exit code, or 125 and words on standard error."""
    code = ENGINE
    try:
        if words[0] == "run":
            from cordee.systems.environments.node.engines.namespace.run import run

            code = run(request_of(words[1:]))
        elif words[0] == "hold":
            from cordee.systems.environments.node.engines.namespace.hold import hold

            code = hold(words[1:])
        elif words[0] == "enter":
            from cordee.systems.environments.node.engines.namespace.enter import enter

            enter(words[1:])
        elif words[0] == "probe":
            from cordee.systems.environments.node.engines.namespace.probe import probe

            code = probe(words[1])
        elif words[0] == "build":
            from cordee.systems.environments.node.engines.namespace.builds.build_step import build_step

            code = build_step(words[1])
    except EngineRefused as refused:
        say(refused.words())
    except OSError as error:
        say(f"the container could not be made: {error}")
    os._exit(code)
