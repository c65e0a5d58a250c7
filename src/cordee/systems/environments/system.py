"""Environments: what ranks run in, from an EDF to a container that each node holds open."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="environments",
    tables={"environment": ""},
    examine="cordee.systems.environments.examine:EnvironmentExamination",
    keep="cordee.systems.environments.examine:keep_environment",
    offers={"images": "cordee.systems.environments.workshop:WORKSHOP"},
    node_parts={"enclosure": "cordee.systems.environments.node.container:NodeContainer"},
)
