"""Parts that are named by a text, `module:object`, and imported by whoever asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cordee.core.errors import CordeeError


def load(part: str) -> Any:
    """Return the object that `module:object` names.

    Raises:
        CordeeError: there is none; says what is missing.
    """
    module, _, name = part.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CordeeError(
            f"a part cannot be loaded: {error}", given=part, allowed="module:object", next="install what brings it"
        ) from error
