"""The site's catalogue of data sets in a cluster profile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from cordee.core.documents.fields import Document, wrong


class SharedDataset(Document):
    """`[datasets.NAME]`: a data set that the site keeps for all, so that nobody makes a copy."""

    path: str
    """A folder, a file, or an `s3://` address."""
    licence: str | None = None
    """The terms that it may be used under."""
    group: str | None = None
    """The Unix group that may read it."""
    about: str | None = None
    """What it is, in a few words."""
    tier: str | None = None
    """The `[storage]` that it lies on; without it, the one whose path it is below."""
    source: str | None = None
    """Where it came from."""
    samples: Annotated[int, Field(ge=0)] | None = None
    """How many samples it holds, where its index does not say."""

    @field_validator("path")
    @classmethod
    def _one_place_for_all(cls, value: str) -> str:
        if not value or "\0" in value or not (value.startswith(("/", "~", "$")) or "://" in value):
            raise wrong("is not the path of a shared data set", "an absolute path, or an s3:// address")
        return value
