"""The first words of a command line of the engine."""

from __future__ import annotations

import sys

# Runs `main` without running the packages around it: their imports would take longer than the container.
_BOOT = """import sys
at, name = sys.argv[1], ""
for part in ("cordee", "systems", "environments", "node", "engines", "namespace"):
    name = name + "." + part if name else part
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = [at + "/" + name.replace(".", "/")]
from cordee.systems.environments.node.engines.namespace.main import main
main(sys.argv[2:])
"""
_HERE = "/cordee/systems/environments/node/engines/namespace/"


def first_words() -> list[str]:
    """Return this interpreter, isolated, told to run the engine from where this module lies: a folder or a zip."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, __file__[: __file__.rindex(_HERE)]]
