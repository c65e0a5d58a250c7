"""What was found in one file, and what that makes of it."""

from __future__ import annotations

import struct
from typing import Any, Iterable, NamedTuple

# Between who asks and the process that looks: whether keys are looked for, and after how many seconds it is killed.
ORDER = struct.Struct("<?d")
MESSAGE_BYTES = 128 << 10  # of its answer
VERDICTS = ("clean", "warn", "unknown", "block")


class Sight(NamedTuple):
    """One thing that was seen in a file.

    Attributes:
        rule: such as `model-pickle-call`.
        severity: `warn` (worth knowing), `unknown` (nobody can say that it is harmless) or `block` (it does harm, or hides something).
        text: what, one sentence.
        where: inside of the file: an entry of an archive, a position; may be empty.
    """

    rule: str
    severity: str
    text: str
    where: str = ""


class FileVerdict(NamedTuple):
    """What is to be said of a file.

    Attributes:
        path: of the file.
        verdict: the worst of `clean`, `warn`, `unknown`, `block`.
        kinds: what the file is, from outside to inside, such as `zip`, `pickle`.
        sights: what was seen, at most some hundred.
        seconds: that it took.
    """

    path: str
    verdict: str
    kinds: tuple[str, ...]
    sights: tuple[Sight, ...]
    seconds: float = 0.0

    @property
    def trusted(self) -> bool:
        """Whether it may be loaded."""
        return self.verdict in ("clean", "warn")

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-ready dict."""
        return {**self._asdict(), "kinds": list(self.kinds), "sights": [sight._asdict() for sight in self.sights]}


def worst(severities: Iterable[str]) -> str:
    """Return the worst verdict; `clean` where there is none."""
    return max(severities, key=VERDICTS.index, default="clean")
