"""The OpenAPI document: errors in one shape, tables in three forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordee.faces.web.answers.models import ErrorAnswer
from cordee.faces.web.answers.tables import ARROW_TYPE, FRAME_TYPE

if TYPE_CHECKING:
    from fastapi import FastAPI

_BINARY = {"schema": {"type": "string", "format": "binary"}}
TABLE: dict[int | str, dict[str, Any]] = {
    200: {"content": {FRAME_TYPE: _BINARY, ARROW_TYPE: _BINARY}},
    406: {"model": ErrorAnswer, "description": "Arrow needs pyarrow where the server runs."},
}
_ERRORS = {
    "400": "A parameter is wrong.",
    "401": "A token is needed.",
    "403": "The request comes from another site, or calls the server by another name.",
    "404": "There is no such run, node, rank or page.",
    "409": "The run's folder cannot be read as it is: damaged, or written by a newer version.",
    "503": "Too much was asked at once; ask again.",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application, with every error that a route may answer."""
    from fastapi.openapi.utils import get_openapi

    document = get_openapi(
        title="Cordée",
        version=app.version,
        description="Runs as `cordee serve` shows them: read-only. Times are UTC epoch seconds, ratios 0-1, null is not known.",
        routes=app.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_error_schemas())
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            answers.pop("422", None)
            for status, text in _ERRORS.items():
                answers.setdefault(status, {"description": text, "content": reference})
    return document


def _error_schemas() -> dict[str, Any]:
    schema = ErrorAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "ErrorAnswer": schema}
