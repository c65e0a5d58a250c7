"""Environments: what ranks run in, from an EDF to a container that each node holds open."""

from __future__ import annotations

from cordee.registry import System

SYSTEM = System(
    name="environments",
    tables={"environment": ""},
    examine="cordee.environment.examine:EnvironmentExamination",
    keep="cordee.environment.examine:keep_environment",
    node_parts={"enclosure": "cordee.environment.node.container:Container"},
)
