"""Whether the site wants signs of misuse looked for."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.job.plan.examination import Contribution, Examination, ShownPaths


class MisuseExamination(Examination):
    """Looked for on clusters whose profile says so: nobody mines on a laptop that is not theirs."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        misuse = self.loaded.cluster.misuse
        return Contribution({"names": list(misuse.names)}) if misuse.watch else Contribution()
