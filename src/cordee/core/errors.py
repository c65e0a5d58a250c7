"""One error base for the whole of Cordée, and the only table of exit codes.

Every error says what was given, what is allowed and what to do next. Command-line code maps an error to
an exit code and a JSON document here and nowhere else.
"""

from __future__ import annotations

from typing import Any, Optional

EXIT_DONE = 0
EXIT_BAD = 1
EXIT_USAGE = 2
EXIT_EXCLUDE = 3
EXIT_ABORT = 4
EXIT_INTERNAL = 5


class CordeeError(Exception):
    """Base of all errors that a person may see.

    Args:
        text: what is wrong, one sentence.
        file, line: where in a document, when it is a document's fault (line counts from 1).
        given: the offending value as it was given.
        allowed: what would have been accepted.
        next: what to do now, as an instruction.
    """

    kind = "internal"
    exit_code = EXIT_INTERNAL

    def __init__(
        self,
        text: str,
        *,
        file: Optional[str] = None,
        line: Optional[int] = None,
        given: Any = None,
        allowed: Any = None,
        next: Optional[str] = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.file = file
        self.line = line
        self.given = given
        self.allowed = allowed
        self.next = next

    def document(self) -> dict[str, Any]:
        """Return the `{"error": {...}}` document that `--json` prints."""
        return {
            "error": {
                "kind": self.kind,
                "text": self.text,
                "file": self.file,
                "line": self.line,
                "given": self.given,
                "allowed": self.allowed,
                "next": self.next,
            }
        }

    def __str__(self) -> str:
        where = ""
        if self.file:
            where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        lines = [where + self.text]
        if self.given is not None:
            lines.append(f"  given:   {self.given}")
        if self.allowed is not None:
            allowed = self.allowed
            if isinstance(allowed, (list, tuple)):
                allowed = ", ".join(str(item) for item in allowed)
            lines.append(f"  allowed: {allowed}")
        if self.next:
            lines.append(f"  next:    {self.next}")
        return "\n".join(lines)


class UsageError(CordeeError):
    """The command line is wrong."""

    kind = "usage"
    exit_code = EXIT_USAGE


class DocumentError(CordeeError):
    """A document (job, profile, plan) is wrong; carries one or more findings when there are several faults."""

    kind = "document"
    exit_code = EXIT_USAGE

    def __init__(self, text: str, *, findings: Optional[list[Any]] = None, **details: Any) -> None:
        super().__init__(text, **details)
        self.findings = list(findings or [])

    def __str__(self) -> str:
        if len(self.findings) < 2:
            return super().__str__()
        return "\n".join([f"{len(self.findings)} faults", *(str(finding) for finding in self.findings)])


class RunNotFound(UsageError):
    """No run folder answers to the name that was given."""

    kind = "run_not_found"


class RunFolderError(CordeeError):
    """A run folder cannot be read or written (missing, full disk, read-only, newer schema)."""

    kind = "run_folder"


class OwnershipError(CordeeError):
    """Another supervisor owns the run."""

    kind = "ownership"


class WireError(CordeeError):
    """The peer broke the protocol or could not prove that it knows the token."""

    kind = "wire"


class SubmitError(CordeeError):
    """The place that should run the job refused or could not be reached."""

    kind = "submit"


class CheckpointError(CordeeError):
    """A checkpoint could not be written or read."""

    kind = "checkpoint"


class DataError(CordeeError):
    """A data set could not be surveyed, packed or read (unreadable, full disk, storage that does not answer)."""

    kind = "data"


class CorruptDataError(DataError):
    """A data set holds other bytes than its index says; `given` names the sample's key and where it lies."""

    kind = "corrupt_data"
    exit_code = EXIT_BAD
