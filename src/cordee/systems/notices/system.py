"""Notices: who is told that a run has ended."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="notices",
    tables={"notify": ""},
    examine="cordee.systems.notices.examine:NoticesExamination",
    node_parts={"ended/notices": "cordee.systems.notices.node.notice:send_notices"},
)
