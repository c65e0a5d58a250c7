"""The seam of hooks: what annotations of an EDF ask for by `com.hooks.NAME.enabled`."""

from __future__ import annotations

from typing import Mapping

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import MissingCapability


class Hook:
    """Brings something of the machine into environments. Called on the node that is to run one, before its container is
    made, and by `cordee env check`; it starts nothing, so that it can be called anywhere.

    Attributes:
        name: as in its annotations.
        required: an environment that asks for it does not start without what it needs; otherwise that is said, and it is left out.
    """

    name = ""
    required = True

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        """Return what this machine lacks for it; empty: nothing.

        Args:
            settings: its annotations, by the last part of their names, and those of `netstack` as `netstack.KEY`.
            host: the machine's variables.
        """
        raise NotImplementedError("a hook knows what it needs")

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        """Return the environment with what the hook adds. What the EDF says itself stays: its variables, and its mounts at the
        same targets. Called only where nothing is missing."""
        raise NotImplementedError("a hook adds something")
