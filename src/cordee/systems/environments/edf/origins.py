"""Where every value of an environment came from, and what would hold without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cordee.systems.environments.edf.fields import GivenValue

EDF, VIEW, IMAGE, HOST, DEFAULT = "edf", "view", "image", "host", "default"


@dataclass(frozen=True)
class EdfOrigin:
    """Where one value came from.

    Attributes:
        kind: `edf`, `view`, `image`, `host` or `default`.
        value: what it is there; of a file's value as it stands there, before expansion.
        file, line: of the EDF (line counts from 1), or the view and None; None for the other kinds.
        instead: what would hold if this were taken away; None: nothing would.
    """

    kind: str
    value: Any
    file: str | None = None
    line: int | None = None
    instead: EdfOrigin | None = None

    def all(self) -> Iterator[EdfOrigin]:
        """Yield this and, in their order, what would hold without those before."""
        origin: EdfOrigin | None = self
        while origin is not None:
            yield origin
            origin = origin.instead

    def document(self) -> dict[str, Any]:
        """Return the JSON document; `otherwise` is what would hold instead, the next in line first."""
        plain = [{"kind": each.kind, "file": each.file, "line": each.line, "value": each.value} for each in self.all()]
        return {**plain[0], "otherwise": plain[1:]}

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.kind


def chain(given: list[GivenValue], instead: EdfOrigin | None = None) -> EdfOrigin | None:
    """Return the origin of a value that these files give, the one that holds first.

    Args:
        given: what files say.
        instead: what holds where none of them says anything.
    """
    for each in reversed(given):
        instead = EdfOrigin(EDF, each.value, str(each.edf.path), each.edf.line(each.keys), instead)
    return instead
