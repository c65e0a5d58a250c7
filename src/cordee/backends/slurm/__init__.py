"""Slurm: one batch script per run, submitted once, asked about rarely."""

from __future__ import annotations

from cordee.client.variables import SLURM_WORLD
from cordee.core.backends import Abilities, Backend

BACKEND = Backend(
    name="slurm",
    abilities=Abilities(
        queues=True,
        several_machines=True,
        chains=True,
        honours=(
            "need.account",
            "need.partition",
            "need.qos",
            "need.constraint",
            "need.reservation",
            "need.memory",
            "slurm.options",
            "slurm.mpi",
            "launch",
            "environment.step_option",
        ),
        rank_variables=SLURM_WORLD,
        prints_to="slurm-{job}.out",
    ),
    submission="cordee.backends.slurm.submitter:SlurmSubmitter",
    allocation="cordee.backends.slurm.node.allocation:SlurmAllocation",
    claim="cordee.backends.slurm.node.rescue:claim",
    site="cordee.backends.slurm.site:values_here",
    discover="cordee.backends.slurm.site.discover:discover",
    examine="cordee.backends.slurm.examine:examine_slurm",
    facts="cordee.backends.slurm.facts:collect_facts",
    reasons="cordee.backends.slurm.wait_reasons:REASONS",
    rank_environment="cordee.backends.slurm.node.world:rank_environment",
    scripts="cordee.backends.slurm.sbatch.reader:READER",
    cluster_variable="SLURM_CLUSTER_NAME",
    network="cordee.backends.slurm.node.topology:ask_network",
    job_nodes="cordee.backends.slurm.topology:nodes_of_job",
)
