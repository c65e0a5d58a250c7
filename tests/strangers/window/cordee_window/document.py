"""Its table of the job document."""

from __future__ import annotations

from cordee.core.documents.fields import Document, Duration


class Window(Document):
    """`[window]`: how long it is open."""

    open: Duration
