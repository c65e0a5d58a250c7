"""What the fake commands share: answers of HTCondor 23.9.6 that were recorded, in the folder $FAKE_HTCONDOR.

A file there is what a command prints: `queue`, `history`, `machines`, `why`, `removed`. A missing one is a command that fails, with what the
file `error` has. `slow`: the command does not answer.
"""

import os
import sys
import time
from pathlib import Path


def answer(name: str) -> None:
    """Print what was recorded, or fail."""
    folder = Path(os.environ["FAKE_HTCONDOR"])
    with open(folder / "asked", "a") as file:
        file.write(f"{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}\n")
    if (folder / "slow").exists():
        time.sleep(600)
    if not (folder / name).exists():
        sys.exit((folder / "error").read_text() if (folder / "error").exists() else f"no answer: {name}")
    print((folder / name).read_text(), end="")
