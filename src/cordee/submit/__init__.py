"""Handing a frozen plan to whatever runs it; one small seam, one file per back end."""

from __future__ import annotations

from importlib import import_module

from cordee.errors import SubmitError
from cordee.submit._base import Standing, Submitter

__all__ = ["Standing", "Submitter", "submitter"]

_BACKENDS = {"local": "cordee.submit.local:LocalSubmitter"}


def submitter(backend: str) -> Submitter:
    """Return the submitter of a back end.

    Raises:
        SubmitError: this version has no such back end.
    """
    if backend not in _BACKENDS:
        raise SubmitError(
            f"this version cannot submit to {backend!r}",
            given=backend,
            allowed=sorted(_BACKENDS),
            next="choose a cluster whose profile has one of these schedulers, or `--on local`",
        )
    module, _, name = _BACKENDS[backend].partition(":")
    made: Submitter = getattr(import_module(module), name)()
    return made
