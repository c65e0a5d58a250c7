"""Rules: what operators want to be told of runs, as data; judged while a run goes on, and of old runs."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="rules",
    always=True,
    examine="cordee.systems.rules.examine:RulesExamination",
    node_parts={"watcher/rules": "cordee.systems.rules.node.watch:RuleWatch"},
)
