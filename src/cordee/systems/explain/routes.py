"""What explain answers to pages."""

from __future__ import annotations

from fastapi import APIRouter

from cordee.systems.explain.correlation.routes import router as correlation
from cordee.systems.explain.flight.routes import router as flight
from cordee.systems.explain.hang.routes import router as hangs
from cordee.systems.explain.topology.routes import router as topology
from cordee.systems.explain.traces.routes import router as traces

router = APIRouter()
for part in (topology, hangs, correlation, flight, traces):
    router.include_router(part)
