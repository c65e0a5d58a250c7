"""torch's DeviceMesh: the coordinate of the rank in the mesh that a script makes over all its ranks is its place."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from cordee.client import layout


def wrap(module: ModuleType) -> None:
    """Look at every mesh that is made.

    Raises:
        AttributeError: the module has no DeviceMesh.
    """
    original = module.DeviceMesh.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands for DeviceMesh's
        original(self, *args, **kwargs)
        layout.mesh_made(self)

    module.DeviceMesh.__init__ = __init__
