"""HTCondor: a run is a job that takes its folder along and brings it home."""

from __future__ import annotations

from cordee.core.backends import Abilities, Backend

BACKEND = Backend(
    name="htcondor",
    abilities=Abilities(queues=True, several_machines=True, chains=True, most_nodes=1),
    submission="cordee.backends.htcondor.submitter:HTCondorSubmitter",
    allocation="cordee.backends.htcondor.node.allocation:HTCondorAllocation",
    site="cordee.backends.htcondor.site:values_here",
    discover="cordee.backends.htcondor.site:discover",
    scripts="cordee.backends.htcondor.submit_file.reader:READER",
)
