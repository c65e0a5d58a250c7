"""What explain says in a run's report."""

from __future__ import annotations

from cordee.systems.explain.flight.report import CommunicationSection
from cordee.systems.explain.hang.report import HangSection
from cordee.systems.explain.topology.report import TopologySection
from cordee.systems.explain.traces.report import TracesSection

SECTIONS = (HangSection, CommunicationSection, TracesSection, TopologySection)
