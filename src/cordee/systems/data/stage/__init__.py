"""Data sets brought to a node: to its memory or its own disk, once for all jobs of a person there. See `stage`."""

from cordee.systems.data.stage.stage import Staged, stage

__all__ = ["Staged", "stage"]
