"""Repro: two runs of the same job compute the same, bit for bit, as far as its libraries can."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(name="repro", tables={"repro": ""}, examine="cordee.systems.repro.examine:ReproExamination")
