"""What a script holds that has no place in the document."""

from __future__ import annotations

from dataclasses import dataclass

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
