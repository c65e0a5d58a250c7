"""What `cordee init` makes of a job script of a back end: what the document says, and what it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

_MOST_LETTERS = 120


@dataclass(frozen=True)
class Left:
    """A piece of a script that was not carried over, with its line (from 1) and the reason."""

    line: int
    text: str
    why: str

    @property
    def shown(self) -> str:
        """The piece on one line, without control characters, not too long."""
        text = " ".join("".join(letter if letter.isprintable() else " " for letter in self.text).split())
        return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."

    def document(self) -> dict[str, object]:
        """Return it for `--json`."""
        return {"line": self.line, "text": self.shown, "why": self.why}


@dataclass
class Conversion:
    """What the document of a job script says.

    Attributes:
        directives: how many options its directives gave.
        mpi: srun's kind of MPI, None when the script leaves it to the site.
        run: the command, None when the script shows none.
        environment: an EDF's name or path.
        image: what that EDF has to name, where it is to be written beside the document.
        script: the Python script in it.
        code: whether the run takes a copy of the job's folder.
        need, vet, checkpoint, restart, sweep, farm: keys of these tables.
        left: what is not carried over, by line.
    """

    name: str | None = None
    directives: int = 0
    script: str | None = None
    run: str | list[str] | None = None
    launch: str = "fork"
    mpi: str | None = None
    environment: str | None = None
    image: str | None = None
    code: str = "live"
    setup: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    need: dict[str, Any] = field(default_factory=dict)
    vet: dict[str, Any] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    checkpoint: dict[str, str] = field(default_factory=dict)
    restart: dict[str, int] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    farm: dict[str, Any] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)


class ScriptReader(Protocol):
    """Turns the job scripts of a back end into documents; nothing of them is run."""

    def find(self, folder: Path) -> list[str]:
        """Return the job scripts of a folder, the most likely training first."""

    def convert(self, path: Path) -> Conversion:
        """Return what the document of a script says.

        Raises:
            DocumentError: it cannot be read, or is no script.
        """

    def render(
        self, found: Conversion, *, source: str, name: str, run: str | Sequence[str], checkpoint: Sequence[str]
    ) -> str:
        """Return the text of cordee.toml.

        Args:
            source: what the script is called.
            name, run: where the script has none, something else's.
            checkpoint: lines about checkpoints.
        """
