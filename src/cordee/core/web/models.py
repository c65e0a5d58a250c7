"""The shapes that several JSON answers have; times are UTC epoch seconds, what is not known is null."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Moment = float | None


class Answer(BaseModel):
    """An answer may grow new keys; those that are here stay."""

    model_config = ConfigDict(extra="allow")


class Missing(Answer):
    """Something that cannot be shown, and why."""

    what: str = Field(description="What cannot be shown.")
    why: str
    next: str | None = Field(None, description="How to give it.")


class Evidence(Answer):
    """Where a finding can be seen."""

    page: str = Field(description="The page that shows it: heat, node, rank, logs, storage, data, score.")
    query: dict[str, str] = Field(description="What to open it with.")


class FindingLine(Answer):
    """A finding."""

    severity: str = Field(description="info, warn or error.")
    code: str = Field(description="A stable identifier such as `log-dropped`.")
    text: str
    given: Any = None
    next: str | None = None
    at: Moment = Field(None, description="When it was written, where that is known.")
    evidence: Evidence | None = None
    facts: Any = Field(None, description="Machine-readable facts behind the sentence.")
