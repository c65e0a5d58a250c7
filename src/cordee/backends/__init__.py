"""Whatever runs jobs, one folder each; a package of somebody else begins with these two."""

from __future__ import annotations

from cordee.core.backends import Abilities, Backend

__all__ = ["Abilities", "Backend"]
