"""The vetting of a job as its plan has it: which checks, by which protocol, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.runs.folder import RunFolder, write_atomically


class VettingExamination(Examination):
    """What is looked at on every node before the ranks."""

    field = "vet"

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        """Return what is looked at, a protocol with all that it takes from the site."""
        vet, protocol = self.loaded.job.vet, self.loaded.read.get("vetting")
        policy = model.VetPolicy(
            commands=vet.commands,
            modules=vet.modules,
            min_memory_bytes=vet.min_memory,
            min_disk_bytes=vet.min_disk,
            max_load_ratio=vet.max_load,
            deadline_s=vet.deadline,
            protocol=protocol.resolved() if protocol else None,
        )
        return Contribution(policy, self._history_without_protocol())

    def _history_without_protocol(self) -> list[Finding]:
        """Say that nothing is kept of a vetting without a protocol."""
        vet = self.loaded.job.vet
        if vet.protocol is not None or not vet.history:
            return []
        file, line = self.loaded.place("vet", "history")
        text = "vet.history keeps the results of a protocol, and there is none"
        what = 'add protocol = "quick", or remove history'
        return [Finding(text, "warn", "no-meaning", file=file, line=line, given=vet.history, next=what)]


def keep_protocol(folder: RunFolder, loaded: LoadedJob, plan: model.Plan) -> tuple[str, ...]:
    """Keep the protocol as it was given and as it was resolved."""
    protocol = loaded.read.get("vetting")
    if protocol is not None:
        write_atomically(folder.documents / "protocol.yaml", protocol.text)
        write_atomically(folder.documents / "protocol.json", json.dumps(plan.step.vet.protocol, indent=1))
    return ()
