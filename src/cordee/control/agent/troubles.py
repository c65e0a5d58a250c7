"""What is wrong on this node: said in its agent's log, and told to the supervisor, which makes findings of it."""

from __future__ import annotations

import sys
import traceback

from cordee.core.errors import CordeeError
from cordee.runs.folder import say

_MOST = 20


class NodeTroubles:
    """Sentences about one node, each told once.

    Args:
        node: its name.

    Attributes:
        texts: all of them, in order.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self.texts: list[str] = []

    def tell(self, text: str) -> None:
        """Say what is wrong, and from which error, if one is being handled; not more than a run can use."""
        if text in self.texts or len(self.texts) >= _MOST:
            return
        self.texts.append(text)
        say(f"cordee agent {self._node}: {text}")
        if sys.exc_info()[0] is not None:
            traceback.print_exc()


def words_of(error: Exception) -> str:
    """Return what an error says: alone where it was made for people, with its name where it was not."""
    return error.text if isinstance(error, CordeeError) else f"{type(error).__name__}: {error}"
