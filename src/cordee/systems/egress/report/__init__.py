"""What a run has sent where, in its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.core.units import format_size
from cordee.systems.egress.views import EgressSums, sums_of
from cordee.telemetry.shown.section import Reported, Section

_MOST_LINES = 10


class EgressSection(Section):
    """Bytes by class and by destination, how they were counted, and what that leaves out."""

    name = key = "egress"
    place = "use"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        self.sums: EgressSums = sums_of(reported.run.facts("egress"))

    @property
    def missing(self) -> list[str]:
        return list(self.sums.remarks)

    def document(self) -> Mapping[str, Any] | None:
        return self.sums.document() if self.sums.methods else None

    def lines(self) -> list[str]:
        if not self.sums.destinations:
            return []
        lines = ["Sent and received"]
        for kind, one in self.sums.classes.items():
            lines.append(f"  {kind:14} {format_size(one.sent):>10} sent {format_size(one.received):>10} received")
        outside = self.sums.outside()[:_MOST_LINES]
        lines += [f"  {one.address:39} {format_size(one.sent):>10} sent, {one.kind}" for one in outside]
        return [*lines, f"  counted by {', '.join(sorted(self.sums.methods))}"]

    def html(self) -> str:
        from cordee.core.draw.pages import page_environment

        if not self.sums.destinations:
            return ""
        template = page_environment(__name__).get_template("egress.html.j2")
        return template.render(sums=self.sums, size=format_size, outside=self.sums.outside()[:50])


SECTIONS = (EgressSection,)
