"""The site's catalogue of data sets in a cluster profile."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from cordee.core.documents.fields import Document, wrong


class SharedDataset(Document):
    """`[datasets.NAME]`: a data set that the site keeps for all, so that nobody makes a copy.

    `path` is a folder, a file or an `s3://` address; `group` the Unix group that may read it, `tier` the `[storage]` it lies
    on, `source` where it came from, `samples` how many it holds where its index does not say.
    """

    path: str
    licence: str | None = None
    group: str | None = None
    about: str | None = None
    tier: str | None = None
    source: str | None = None
    samples: Annotated[int, Field(ge=0)] | None = None

    @field_validator("path")
    @classmethod
    def _one_place_for_all(cls, value: str) -> str:
        if not value or "\0" in value or not (value.startswith(("/", "~", "$")) or "://" in value):
            raise wrong("is not the path of a shared data set", "an absolute path, or an s3:// address")
        return value
