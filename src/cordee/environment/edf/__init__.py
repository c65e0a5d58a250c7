"""Environment Definition Files: read, inherited, merged, expanded, each value with its origin."""

from __future__ import annotations

from cordee.environment.edf.origins import Origin
from cordee.environment.edf.resolve import Resolved, resolve
from cordee.environment.edf.search import search_folders

__all__ = ["Origin", "Resolved", "resolve", "search_folders"]
