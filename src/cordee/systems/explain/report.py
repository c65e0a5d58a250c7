"""What explain says in a run's report."""

from __future__ import annotations

from cordee.systems.explain.hang.report import HangSection
from cordee.systems.explain.topology.report import TopologySection

SECTIONS = (HangSection, TopologySection)
