"""Whether srun can start MPI programs in the way that the job names."""

from __future__ import annotations

from cordee.backends.slurm.node.commands import SlurmError, run_command
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob

_ASK_S = 10.0


def examine_mpi(loaded: LoadedJob) -> list[Finding]:
    """Return the findings on `[slurm] mpi`; where srun does not answer here, nothing is known."""
    saying, mpi = JobFindings(loaded), loaded.job.slurm.mpi
    if mpi is None:
        return []
    if loaded.job.launch != "srun":
        text = f"slurm.mpi has no meaning with launch = {loaded.job.launch} and is left out"
        saying.info("slurm.mpi", "no-meaning", text, given=mpi, next='add launch = "srun" for an MPI program')
        return saying.findings
    known = _known()
    if known and mpi not in known:
        what = did_you_mean(mpi, known, "choose one of these, or remove it for the site's own")
        saying.error("slurm.mpi", "no-mpi", f"this Slurm has no MPI of kind {mpi}", given=mpi, allowed=known, next=what)
    return saying.findings


def _known() -> list[str]:
    """Return what `srun --mpi=list` names, empty when it cannot be asked."""
    try:
        lines = run_command(["srun", "--mpi=list"], timeout_s=_ASK_S).splitlines()
    except SlurmError:
        return []
    kinds = [line.strip() for line in lines if line.startswith(("\t", " "))]
    versions = [word for line in lines if "versions available:" in line for word in line.partition(":")[2].split(",")]
    return [*kinds, *(version.strip() for version in versions)]
