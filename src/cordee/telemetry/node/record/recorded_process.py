"""Where a recorded process stands: which rank of what, on which node, as whatever started it says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Mapping, Optional

from cordee.machine.processes.tree import read_process

# Slurm's numbers from here on are no steps of srun: the batch script, the interactive shell and the like (slurm.h).
_FIRST_SPECIAL_STEP = 0xFFFFFFF0


@dataclass(frozen=True)
class RecordedProcess:
    """One process among those that were started together.

    Attributes:
        launcher: `torchrun`, `mpirun`, `srun` or `env` (RANK, WORLD_SIZE); empty: it was started alone.
        rank: among all of them; 0 for a process that was started alone.
        attempt: how often the launcher has started the ranks anew.
        world_size: how many they are, None where not told.
        local_rank: among those of the node, None where not told.
        node: as the scheduler names it, else the host's name.
        job, step: Slurm's, empty outside of it.
        key: the same for all that were started together, and for nobody else as far as the launcher tells them apart.
        node_index, nodes: the node's place among the step's nodes, and how many those are; None where not told.
    """

    launcher: str
    rank: int
    attempt: int
    world_size: Optional[int]
    local_rank: Optional[int]
    node: str
    host: str
    job: str
    step: str
    key: str
    node_index: Optional[int] = None
    nodes: Optional[int] = None

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> RecordedProcess:
        """Return the place of this process; launchers inside others come first, since they know more."""
        host = os.uname().nodename
        job, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")
        if (_number(step) or 0) >= _FIRST_SPECIAL_STEP:
            step = ""
        launcher, names, start = _launcher(environ, bool(job and step))
        rank, size, local = (_number(environ.get(name)) for name in names)
        if not launcher:
            process = read_process(os.getpid())
            start = f"alone {host} {os.getpid()} {process.start_ticks if process else 0}"
        if launcher and job:
            start = f"slurm {job}.{step} start {environ.get('SLURM_RESTART_COUNT', '0')} {start}"
        return cls(
            launcher=launcher,
            rank=rank or 0,
            attempt=_number(environ.get("TORCHELASTIC_RESTART_COUNT")) or 0,
            world_size=size if launcher else 1,
            local_rank=local,
            node=environ.get("SLURMD_NODENAME") or host,
            host=host,
            job=job,
            step=step,
            key=start.strip(),
            node_index=_number(environ.get("SLURM_NODEID")) if job and step else None,
            nodes=_number(environ.get("SLURM_STEP_NUM_NODES")) if job and step else None,
        )

    @property
    def numbers(self) -> tuple[Optional[int], int]:
        """First and stride of the numbers of this node's samplers; the first is None where nodes are not numbered."""
        if self.node_index is None or not self.nodes:
            return None, 1
        return self.node_index + 1, self.nodes

    @property
    def together(self) -> bool:
        """Whether others were started with it, who meet in one recording."""
        return bool(self.launcher) and self.world_size != 1


def _launcher(environ: Mapping[str, str], in_step: bool) -> tuple[str, tuple[str, str, str], str]:
    """Return its name, the variables of rank, size and local rank, and what tells this start of it from others."""
    if "RANK" in environ and "TORCHELASTIC_RUN_ID" in environ:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        return "torchrun", names, f"torchrun {environ['TORCHELASTIC_RUN_ID']}"  # the port changes with each restart
    if "OMPI_COMM_WORLD_RANK" in environ:
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
        start = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
        return "mpirun", names, f"mpirun {start}"
    if in_step and "SLURM_PROCID" in environ:
        return "srun", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"), ""
    if "PMI_RANK" in environ:
        return "mpirun", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"), f"mpirun {environ.get('PMI_PORT', '')}"
    if "RANK" in environ and "WORLD_SIZE" in environ:
        address = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
        return "env", ("RANK", "WORLD_SIZE", "LOCAL_RANK"), f"env {address}"
    return "", ("", "", ""), ""


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() else None
