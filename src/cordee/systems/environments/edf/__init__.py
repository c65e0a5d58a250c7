"""Environment Definition Files: read, inherited, merged, expanded, each value with its origin."""

from __future__ import annotations

from cordee.systems.environments.edf.origins import EdfOrigin
from cordee.systems.environments.edf.resolve import Resolved, resolve
from cordee.systems.environments.edf.search import search_folders

__all__ = ["EdfOrigin", "Resolved", "resolve", "search_folders"]
