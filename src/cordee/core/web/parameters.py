"""Parameters that several routes take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

Start = Annotated[float | None, Query(description="From this time on, UTC epoch seconds.")]
Stop = Annotated[float | None, Query(description="Before this time, UTC epoch seconds.")]
Points = Annotated[int, Query(ge=2, le=5000, description="At most so many for each curve.")]
