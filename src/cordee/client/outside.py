"""The `cordee` command as node.zip has it: a rank, a task or a step that calls it gets the installed one.

The zip hides an installed Cordée from every Python of a run, and holds the node side alone. It lies there under the names
by which the command is started.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def main() -> None:
    """Start the same command line again, in a Python that looks past the zip."""
    zipped = [path for path in sys.path if path.endswith(".zip") and __file__.startswith(path + os.sep)]
    if PathFinder.find_spec("cordee", [path for path in sys.path if path not in zipped]) is None:
        sys.exit(
            "error: this Python has no cordee command: the run brings what its ranks need, not the command\n"
            f"  given:   {sys.executable}\n  next:    pip install cordee there, or call the one that started the run"
        )
    left = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in zipped]
    sys.stdout.flush()
    code = "from cordee.faces.cli import main; main()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env.update({"PYTHONPATH": os.pathsep.join(left)} if left else {})
    os.execve(sys.executable, [sys.executable, "-P", "-c", code, *sys.argv[1:]], env)


if __name__ == "__main__":
    main()
