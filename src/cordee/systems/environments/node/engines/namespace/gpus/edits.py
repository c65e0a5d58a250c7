"""What devices add to a container, and the error for a device that is not there."""

from __future__ import annotations

from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional


class Unknown(EngineRefused):
    """A device that is asked for and that this machine does not have."""

    def __init__(self, capability: str, text: str, given: Optional[str] = None, next: Optional[str] = None) -> None:
        super().__init__(text, given, next)
        self.capability = capability


class Edits:
    """What devices add to a container.

    Attributes:
        nodes: (source on the host, target) of device files and folders of them.
        mounts: (source on the host, target, flags).
        variables: (name, value) to be set.
        appended: (name, value) to be appended to a list with colons.
        links: (path, what it points to).
        hooks: of CDI files, that are to be run: `stage`, `path`, `args`, `env`, `timeout`.
    """

    __slots__ = ("appended", "hooks", "links", "mounts", "nodes", "variables")

    def __init__(self) -> None:
        self.nodes: list[tuple[str, str]] = []
        self.mounts: list[tuple[str, str, tuple[str, ...]]] = []
        self.variables: list[tuple[str, str]] = []
        self.appended: list[tuple[str, str]] = []
        self.links: list[tuple[str, str]] = []
        self.hooks: list[dict[str, Any]] = []
