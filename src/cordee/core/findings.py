"""One Finding for documents, scans, vetting and insight."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Optional

SEVERITIES = ("info", "warn", "error")


@dataclass(frozen=True)
class Finding:
    """Something worth telling a person, with its place and what to do about it.

    Attributes:
        text: what was found, one sentence.
        severity: `info`, `warn` or `error` (an error makes the document or the run bad).
        rule: stable identifier such as `unknown-key` or `restart-from-zero`.
        file, line: where (line counts from 1).
        given, allowed, next: as in `cordee.core.errors.CordeeError`.
        evidence: machine-readable facts behind the sentence.
    """

    text: str
    severity: str = "error"
    rule: str = ""
    file: Optional[str] = None
    line: Optional[int] = None
    given: Any = None
    allowed: Any = None
    next: Optional[str] = None
    evidence: Any = None

    def document(self) -> dict[str, Any]:
        """Return the finding as a JSON-ready dict with all keys present."""
        return asdict(self)

    def place(self) -> dict[str, Any]:
        """Return what it is about: `ranks` and `nodes`, lists, and `where`, a line of code or a file; None: of no place."""
        evidence = self.evidence if isinstance(self.evidence, dict) else {}
        line = f"{self.file}:{self.line}" if self.file and self.line else self.file
        ranks, nodes = (evidence.get(key) for key in ("ranks", "nodes"))
        return {
            "ranks": ranks if isinstance(ranks, list) else [],
            "nodes": nodes if isinstance(nodes, list) else [],
            "where": evidence.get("where") or line,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Finding:
        """Rebuild a finding from `document()`; unknown keys of newer versions are ignored."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        return cls(**known)

    def __str__(self) -> str:
        where = ""
        if self.file:
            where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        parts = [f"{where}{self.severity}: {self.text}"]
        if self.given is not None:
            parts.append(f"  given:   {self.given}")
        if self.allowed is not None:
            allowed = self.allowed
            if isinstance(allowed, (list, tuple)):
                allowed = ", ".join(str(item) for item in allowed)
            parts.append(f"  allowed: {allowed}")
        if self.next:
            parts.append(f"  next:    {self.next}")
        return "\n".join(parts)
