"""The first words of a command line of this engine."""

from __future__ import annotations

import sys

# Runs `main` without running the packages around it: their imports would take longer than entering a container.
_BOOT = """import sys
at, name = sys.argv[1], ""
for part in ("cordee", "systems", "environments", "node", "engines", "namespace", "podman"):
    above = name.rpartition(".")[0] if part == "podman" else name
    name = above + "." + part if above else part
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = [at + "/" + name.replace(".", "/")]
from cordee.systems.environments.node.engines.podman.main import main
main(sys.argv[2:])
"""


def first_words() -> list[str]:
    """Return this interpreter, isolated, told to run the engine from where this module lies: a folder or a zip."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, __file__.rpartition("/cordee/")[0]]
