"""The site: its nodes with all that ran on them, and what data sets there are."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from cordee.core import registry
from cordee.faces.report.datasets import catalogue_document
from cordee.faces.web.answers.forms import document_answer
from cordee.faces.web.answers.models import Catalogue, Fleet, PageList
from cordee.faces.web.fleet import fleet_document
from cordee.faces.web.server import server_of

router = APIRouter(prefix="/api", tags=["site"])


@router.get("/fleet", response_model=Fleet)
def fleet(request: Request) -> Response:
    """Return all nodes with what runs and ran on them, other jobs where Slurm is asked, and what vettings said."""
    server = server_of(request)
    return document_answer(request, fleet_document(server.shelf.summaries(), server.site))


@router.get("/pages", response_model=PageList)
def pages(request: Request) -> Response:
    """Return the pages that systems bring beside those that are always there."""
    found = [
        {**page._asdict(), "file": f"../systems/{system.name}/{page.file}"}
        for system in registry.all_systems()
        for page in system.pages
    ]
    return document_answer(request, {"pages": found})


@router.get("/catalogue", response_model=Catalogue)
def catalogue(request: Request) -> Response:
    """Return every data set that Cordée leaves: fields, units, how to read them."""
    return document_answer(request, catalogue_document())
