"""How runs get into the queue, and where they stand there."""

from __future__ import annotations

import shlex
import time
from typing import Any

from cordee.control.keeper_start import keeper_command
from cordee.core.errors import SubmitError
from cordee.job.submit._base import Standing, Submitter
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal
from spool.queue import add, job_of, spool

_CANCEL_S = 20.0


class SpoolSubmitter(Submitter):
    """Puts the keeper of a run into the queue."""

    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return the keeper's command line, and what the agents start."""
        tasks = plan["steps"][0]["tasks"]
        return f"{shlex.join(self._command(folder))}\n# which starts: {shlex.join(tasks['argv'])}\n"

    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Add a job, unless one of the run waits or runs."""
        if not spool().is_dir():
            raise SubmitError("there is no queue", given=str(spool()), next="make the folder that SPOOL names")
        known = job_of(folder.id)
        if known is not None and known.suffix in (".waiting", ".running"):
            return known.stem
        journal = client_journal(folder.journal)
        journal.append("placing")
        job = add(folder.id, self._command(folder))
        journal.append("placed", job=job)
        return job

    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Look into the folder."""
        return [self._standing(folder) for folder in folders]

    def cancel(self, folder: RunFolder) -> None:
        """Take the job away and end what is left of it."""
        job = job_of(folder.id)
        if job is not None and job.suffix == ".waiting":
            try:
                job.rename(job.with_suffix(".gone"))
            except FileNotFoundError:
                job = job_of(folder.id)
        if job is not None and job.suffix == ".running":
            job.with_suffix(".cancel").touch()
            deadline = time.monotonic() + _CANCEL_S
            while job.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            job.with_suffix(".cancel").unlink()
            processes.sweep(f"{folder.id}/")

    @staticmethod
    def _command(folder: RunFolder) -> list[str]:
        # Nodes need not have this package: the run's own copy of Cordée has it.
        return ["env", f"PYTHONPATH={folder.node_zip}", *keeper_command(folder)]

    @staticmethod
    def _standing(folder: RunFolder) -> Standing:
        job = job_of(folder.id)
        if job is None or job.suffix == ".gone":
            return Standing("gone", job.stem if job else None, "it left the queue" if job else "it was never placed")
        if job.suffix == ".waiting":
            return Standing("waiting", job.stem, "another run has the machine")
        return Standing("running", job.stem)
