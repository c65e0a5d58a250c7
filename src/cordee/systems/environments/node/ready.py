"""An environment as one node has it: its own name filled in, and what its hooks bring."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Callable, Mapping

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.hooks import hooked


def node_name(host: Mapping[str, str]) -> str:
    """Return the name of this node as its scheduler has it, else the host's."""
    return host.get("CORDEE_NODE") or host.get("SLURMD_NODENAME") or os.uname().nodename


def ready_here(environment: Environment, host: Mapping[str, str], warn: Callable[[str], None]) -> Environment:
    """Return the environment as this node can have it.

    Args:
        environment: as it was resolved.
        host: the variables of this node.
        warn: takes a line about each hook that lacks something here and can be done without.

    Raises:
        EngineError: a hook that it asks for lacks something here.
    """
    if "{node}" in environment.overlay:
        environment = replace(environment, overlay=environment.overlay.replace("{node}", node_name(host)))
    return hooked(environment, host, warn)
