"""HTCondor: a run travels to a machine that shares no files with this one, and comes home from it."""

from __future__ import annotations

from cordee.core.backends import Abilities, Backend

BACKEND = Backend(
    name="htcondor",
    abilities=Abilities(
        queues=True,
        several_machines=True,
        shares_files=False,
        chains=True,
        honours=("need.memory", "need.disk", "environment.image"),
        most_nodes=1,
        prints_to="htcondor-{job}.out",
    ),
    submission="cordee.backends.htcondor.submitter:HTCondorSubmitter",
    allocation="cordee.backends.htcondor.node.allocation:HTCondorAllocation",
    site="cordee.backends.htcondor.site:values_here",
    discover="cordee.backends.htcondor.site:discover",
    examine="cordee.backends.htcondor.examine:examine_htcondor",
    facts="cordee.backends.htcondor.facts:collect_facts",
    reasons="cordee.backends.htcondor.wait_reasons:REASONS",
    scripts="cordee.backends.htcondor.submit_file.reader:READER",
)
