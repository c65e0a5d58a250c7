"""Findings that point at a key of the job document."""

from __future__ import annotations

from typing import Any

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob


class JobFindings:
    """Collects what is said about one job; `error`, `warn` and `info` take the key it is about."""

    def __init__(self, loaded: LoadedJob) -> None:
        self.findings: list[Finding] = []
        self._loaded = loaded

    def error(self, key: str, rule: str, text: str, **details: Any) -> None:
        """Say why the job must not be submitted."""
        self._say("error", key, rule, text, details)

    def warn(self, key: str, rule: str, text: str, **details: Any) -> None:
        """Say what may go wrong."""
        self._say("warn", key, rule, text, details)

    def info(self, key: str, rule: str, text: str, **details: Any) -> None:
        """Say what will happen."""
        self._say("info", key, rule, text, details)

    def _say(self, severity: str, key: str, rule: str, text: str, details: dict[str, Any]) -> None:
        file, line = self._loaded.place(*key.split("."))
        self.findings.append(Finding(text, severity, rule, file=file, line=line, **details))
