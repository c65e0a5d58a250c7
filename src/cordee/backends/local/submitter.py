"""One machine: nodes are processes under a keeper that outlives the terminal."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

from cordee.control.identity import living_record
from cordee.control.keeper_start import keeper_command, keeper_record, start_keeper
from cordee.control.supervisor.ownership import Ownership
from cordee.core.errors import SubmitError
from cordee.core.secrets import masked_text, masked_words
from cordee.core.words import counted
from cordee.job.submit._base import Standing, Submitter
from cordee.machine.processes import tree as processes
from cordee.machine.processes.module_command import START
from cordee.runs.folder import RunFolder

_START_S = 20.0
_POLL_S = 0.01


class LocalSubmitter(Submitter):
    """Starts the keeper of a run on this machine."""

    keeps_place = True

    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return the command lines of the keeper, the agents and the ranks, without keys: nobody runs them from here."""
        request = plan["steps"][0]["request"]
        tasks = plan["steps"][0]["tasks"]
        names = [f"local-{index}" for index in range(request["nodes"] + request["spare_nodes"])]
        base = f'{sys.executable} -s -c "$start"'
        ranks, nodes = counted(request["ranks_per_node"], "rank"), counted(request["nodes"], "node")
        lines = [
            f"# On this machine, {ranks} on {'each of ' if request['nodes'] > 1 else ''}{nodes}:",
            f"#   cd {shlex.quote(plan['workdir'])} && {shlex.join(masked_words(tasks['argv']))}",
            *(f"# on every node, before the ranks: {masked_text(line)}" for line in tasks["setup"]),
            "",
            "export PYTHONPATH=<run>/node.zip",
            f"start={shlex.quote(START)}",
        ]
        lines.append(f"{base} cordee.control.keeper --folder <run>")
        lines.append("# which starts, and restarts when they die:")
        lines.append(f"{base} cordee.control.supervisor.supervisor --folder <run>")
        lines += [f"{base} cordee.control.agent.agent --folder <run> --node {name} --incarnation 1" for name in names]
        return "\n".join(lines) + "\n"

    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Start the keeper, unless one runs already, and return once it has the run: from then on it can be found."""
        record = keeper_record(folder)
        if record:
            return f"pid {record['pid']}"
        keepers = Ownership(folder.control / "keepers")
        before = keepers.newest()
        try:
            pid = start_keeper(folder)
        except OSError as error:
            raise self._failed(folder, str(error)) from error
        deadline = time.monotonic() + _START_S
        while not (record := keeper_record(folder)) and _lives(pid) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not record and keepers.newest() == before:
            raise self._failed(folder, "it ended at once" if not _lives(pid) else f"not within {_START_S:.0f} s")
        return f"pid {record.get('pid', pid)}"

    @staticmethod
    def _failed(folder: RunFolder, why: str) -> SubmitError:
        return SubmitError(
            f"cannot start the keeper: {why}",
            given=shlex.join(keeper_command(folder)),
            next=f"see {folder.control / 'keeper.log'}",
        )

    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Return whether the runs' keepers or any of their processes live on this machine."""
        return [self._standing(folder) for folder in folders]

    @staticmethod
    def _standing(folder: RunFolder) -> Standing:
        record = keeper_record(folder)
        if record:
            return Standing("running", f"pid {record['pid']}")
        return Standing("running" if processes.with_marker(f"{folder.id}/") else "gone")

    def cancel(self, folder: RunFolder) -> None:
        """Kill every process of the run; for a run whose supervisor does not answer."""
        record = keeper_record(folder)
        if record:
            processes.kill_all([record["pid"]])
        for name in ("supervisor", *(path.stem for path in folder.control.glob("agent-*.json"))):
            living = living_record(folder.control / f"{name}.json")
            if living:
                processes.kill_all([living["pid"]])
        processes.sweep(f"{folder.id}/")


def _lives(pid: int) -> bool:
    process = processes.read_process(pid)
    return process is not None and process.state not in ("Z", "X")
