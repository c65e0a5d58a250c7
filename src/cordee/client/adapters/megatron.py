"""Megatron-core: once its groups are made, they are asked where the rank stands."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from cordee.client import layout


def wrap(module: ModuleType) -> None:
    """Look at the groups whenever they are made.

    Raises:
        AttributeError: the module makes no groups.
    """
    original: Any = module.initialize_model_parallel  # type: ignore[attr-defined]

    @functools.wraps(original)
    def initialize_model_parallel(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        layout.state_made(module)
        return result

    module.initialize_model_parallel = initialize_model_parallel  # type: ignore[attr-defined]
